package cdecl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// graph is types by name: "int" and the like are named types.
func graph(types map[string]Type[string]) Graph[string] {
	return func(k string) (Type[string], error) {
		if t, ok := types[k]; ok {
			return t, nil
		}
		return Type[string]{Name: k}, nil
	}
}

func TestDeclare(t *testing.T) {
	g := graph(map[string]Type[string]{
		"p":        {Kind: Pointer, Of: "int"},
		"cp":       {Kind: Pointer, Of: "const char"},
		"const":    {Kind: Qualified, Name: "const", Of: "cp"},
		"pcp":      {Kind: Pointer, Of: "const"},
		"volatile": {Kind: Qualified, Name: "volatile", Of: "arr"},
		"arr":      {Kind: Array, Count: 3, Of: "p"},
		"parr":     {Kind: Pointer, Of: "arr"},
		"open":     {Kind: Array, Count: -1, Of: "arr"},
		"fn":       {Kind: Function, Of: "parr", Params: []Param[string]{{"a", "int"}, {"", "cb"}}, Varargs: true},
		"cb":       {Kind: Pointer, Of: "none"},
		"none":     {Kind: Function, Of: "void", Empty: "void"},
		"more":     {Kind: Function, Of: "void", Varargs: true},
		"ref":      {Kind: Reference, Name: "&", Of: "arr"},
		"member":   {Kind: Pointer, Name: "C", Of: "none"},
	})
	for k, want := range map[string]string{
		"int": "int x", "p": "int *x", "pcp": "const char *const *x", "arr": "int *x[3]", "parr": "int *(*x)[3]",
		"open": "int *x[][3]",
		"fn":   "int *(*x(int a, void (*)(void), ...))[3]", "cb": "void (*x)(void)", "ref": "int *(&x)[3]",
		"member":   "void (C::*x)(void)",
		"volatile": "int *volatile x[3]", "more": "void x(...)",
	} {
		s, err := Declare(g, k, "x")
		require.NoError(t, err)
		assert.Equal(t, want, s)
	}
	s, err := Declare(g, "parr", "")
	require.NoError(t, err)
	assert.Equal(t, "int *(*)[3]", s)
	s, err = Parameters(g, "fn")
	require.NoError(t, err)
	assert.Equal(t, "(int a, void (*)(void), ...)", s)
	_, err = Parameters(g, "cb")
	assert.ErrorIs(t, err, ErrKind)
}

// TestBounds has graphs without end, and one whose declaration doubles with each type.
func TestBounds(t *testing.T) {
	for _, of := range []Type[int]{
		{Kind: Pointer}, {Kind: Qualified, Name: "const"}, {Kind: Array, Count: 1}, {Kind: Function},
		{Kind: Function, Params: []Param[int]{{}, {}}},
	} {
		_, err := Declare(func(int) (Type[int], error) { return of, nil }, 0, "x")
		assert.ErrorIs(t, err, ErrLarge)
	}
	_, err := Declare(func(k int) (Type[int], error) {
		if k == 40 {
			return Type[int]{Name: "int"}, nil
		}
		return Type[int]{Kind: Function, Of: 40, Params: []Param[int]{{Of: k + 1}, {Of: k + 1}}}, nil
	}, 0, "x")
	assert.ErrorIs(t, err, ErrLarge)
}
