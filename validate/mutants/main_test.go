package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestList reads the list: each change still applies.
func TestList(t *testing.T) {
	list, err := parse(listText)
	require.NoError(t, err)
	require.Greater(t, len(list), 56)
	for _, m := range list {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		require.NoError(t, err, m.name)
		_, err = m.apply(string(text))
		assert.NoError(t, err, m.name)
		assert.NotEqual(t, m.old, m.new, m.name)
	}
}

func TestParse(t *testing.T) {
	for text, why := range map[string]string{
		"-a\n":                                   "before the first",
		"== x\n-a\n":                             "no file",
		"== x\nfile f\n":                         "no line",
		"== x\nfile f\n-a\n== x\nfile f\n-a\n":   "twice",
		"== x\nfile f\n-a\nsomething\n":          "neither",
		"# text\n== x\nfile f\n b\n-a\n+c\n+d\n": "",
	} {
		_, err := parse(text)
		if why == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, why)
	}
}

func TestApply(t *testing.T) {
	m := mutant{old: []string{"b", "c"}, new: []string{"\tb", "\tx", "\ty"}}
	got, err := m.apply("a\n\t b\n\tc\nd")
	require.NoError(t, err)
	assert.Equal(t, "a\n\tb\n\tx\n\ty\nd", got)
	_, err = m.apply("a\nb\nd")
	assert.ErrorContains(t, err, "update list.txt")
	_, err = m.apply("b\nc\nb\nc")
	assert.ErrorContains(t, err, "twice")
}

// TestEmit proves what the unchanged emitter emits, and finds that a run on its own
// prints the same.
func TestEmit(t *testing.T) {
	var out, again, failures strings.Builder
	require.Zero(t, run([]string{"--emit", "/bin/true"}, &out, &failures))
	require.Zero(t, run([]string{"--emit", "/bin/true"}, &again, &failures))
	assert.Equal(t, out.String(), again.String())
	assert.Contains(t, out.String(), `"Refused":null`)
	assert.Empty(t, failures.String())
}
