package ctf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/klauspost/compress/zlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// builder makes a dict, by include/ctf.h.
type builder struct {
	flags, version      uint8
	parent              uint32 // string offset of the parent's name: of a child
	funcs, index, types []uint32
	strings             []byte
}

func newBuilder() *builder { return &builder{version: version3, strings: []byte{0}} }

func (b *builder) str(s string) uint32 {
	if s == "" {
		return 0
	}
	at := len(b.strings)
	b.strings = append(append(b.strings, s...), 0)
	return uint32(at)
}

// typ adds a type: count is how many members or arguments it has.
func (b *builder) typ(kind, count uint32, name string, ref uint32, more ...uint32) {
	b.types = append(append(b.types, b.str(name), kind<<26|1<<25|count, ref), more...)
}

func (b *builder) function(name string, id uint32) {
	b.funcs, b.index = append(b.funcs, id), append(b.index, b.str(name))
}

func words(list []uint32) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func (b *builder) bytes(t testing.TB) []byte {
	f, n := uint32(4*len(b.funcs)), uint32(4*len(b.index))
	types := f + n
	str := types + uint32(4*len(b.types))
	head := []uint32{0, b.parent, 0, 0, 0, 0, f, f, types, types, str, uint32(len(b.strings))}
	out := append(binary.LittleEndian.AppendUint16(nil, magic), b.version, b.flags)
	out = append(out, words(head)...)
	require.Len(t, out, headerSize)
	data := append(append(words(b.funcs), words(b.index)...), append(words(b.types), b.strings...)...)
	if b.flags&flagCompressed == 0 {
		return append(out, data...)
	}
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return append(out, packed.Bytes()...)
}

// sample has a function of each kind of type.
func sample() *builder {
	const child = 0
	b := newBuilder()
	b.typ(kindInteger, 0, "int", 4, 32)                        // 1
	b.typ(kindFloat, 0, "double", 8, 64)                       // 2
	b.typ(kindPointer, 0, "", 1)                               // 3: int *
	b.typ(kindArray, 0, "", 0, 1, 1, 7)                        // 4: int[7]
	b.typ(kindPointer, 0, "", 4)                               // 5: int (*)[7]
	b.typ(kindStruct, 2, "s", 8, b.str("a"), 0, 1, 0, 32, 1)   // 6
	b.typ(kindUnion, 1, "", 4, 0, 0, 1)                        // 7: without a tag
	b.typ(kindEnum, 2, "e", 4, b.str("A"), 0, b.str("B"), 1)   // 8
	b.typ(kindForward, 0, "f", kindStruct)                     // 9
	b.typ(kindTypedef, 0, "name_t", 6)                         // 10
	b.typ(kindConst, 0, "", 1)                                 // 11
	b.typ(kindPointer, 0, "", 11)                              // 12: const int *
	b.typ(kindRestrict, 0, "", 3)                              // 13
	b.typ(kindVolatile, 0, "", 3)                              // 14
	b.typ(kindPointer, 0, "", 9)                               // 15: struct f *
	b.typ(kindFunction, 2, "", 1, 12, 0)                       // 16: int (const int *, ...)
	b.typ(kindPointer, 0, "", 16)                              // 17
	b.typ(kindFunction, 0, "", 0)                              // 18: void ()
	b.typ(kindFunction, 3, "", 17, 5, 6, 17, child)            // 19, padded
	b.typ(kindFunction, 4, "", 10, 2, 7, 8, 13)                // 20
	b.typ(kindFunction, 2, "", 0, 14, 15)                      // 21
	b.typ(kindStruct, 1, "large", 1<<29, b.str("m"), 0, 1, 0)  // 22: members of 16 bytes
	b.typ(kindStruct, 1, "huge", ^uint32(0), 1, 0, 0, 0, 1, 0) // 23: the size has 8 bytes
	b.typ(kindFunction, 2, "", 0, 22, 23)                      // 24
	b.typ(kindSlice, 0, "", 0, 1, 3<<16)                       // 25: a part of a word, of members only
	b.typ(kindFunction, 1, "", 25, 1, 0)                       // 26
	for name, id := range map[string]uint32{"variable": 16, "none": 18, "pointers": 19, "values": 20, "qualified": 21,
		"wide": 24, "sliced": 26} {
		b.function(name, id)
	}
	return b
}

// declared returns what can be written, by name, and the errors.
func declared(list []Function) (map[string]string, map[string]error) {
	texts, errs := make(map[string]string), make(map[string]error)
	for _, f := range list {
		text, err := f.Declaration()
		if err != nil {
			errs[f.Name] = err
			continue
		}
		texts[f.Name] = text
	}
	return texts, errs
}

var sampleTexts = map[string]string{
	"variable":  "int variable(const int *, ...)",
	"none":      "void none()",
	"pointers":  "int (*pointers(int (*)[7], struct s, int (*)(const int *, ...)))(const int *, ...)",
	"values":    "name_t values(double, union {...}, enum e, int *restrict)",
	"qualified": "void qualified(int *volatile, struct f *)",
	"wide":      "void wide(struct large, struct huge)",
}

// TestKinds reads each kind of type, from a dict as it is and compressed.
func TestKinds(t *testing.T) {
	for _, flags := range []uint8{0, flagCompressed} {
		b := sample()
		b.flags = flags
		list, err := Read(b.bytes(t), Symbols{})
		require.NoError(t, err)
		texts, errs := declared(list)
		assert.Equal(t, sampleTexts, texts)
		assert.Len(t, errs, 1)
		assert.ErrorContains(t, errs["sliced"], "kind 14")
		for _, f := range list {
			if f.Name == "variable" {
				text, err := f.Parameters()
				require.NoError(t, err)
				assert.Equal(t, "(const int *, ...)", text)
			}
		}
	}
}

// archive puts dicts together.
func archive(dicts ...[]byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, archiveMagic)
	first := 40 + 16*len(dicts)
	for _, x := range []int{0, len(dicts), 0, first} { // model, count, names, members
		b = le.AppendUint64(b, uint64(x))
	}
	at := 0
	for _, d := range dicts {
		b = le.AppendUint64(le.AppendUint64(b, 0), uint64(at))
		at += 8 + len(d)
	}
	for _, d := range dicts {
		b = append(le.AppendUint64(b, uint64(len(d))), d...)
	}
	return b
}

// TestArchive has types of a parent that a child goes on from.
func TestArchive(t *testing.T) {
	const own = 1 << 31
	child := newBuilder()
	child.parent = child.str("parent")
	child.typ(kindStruct, 0, "s", 4)                  // of the child alone
	child.typ(kindPointer, 0, "", own|1)              // struct s *
	child.typ(kindFunction, 3, "", 1, own|2, 6, 3, 0) // int (struct s *, struct s of the parent, int *)
	child.typ(kindFunction, 1, "", 99, own|1, 0)      // returns what is not there
	child.function("both", own|3)
	child.function("missing", own|4)
	for _, order := range [][][]byte{{sample().bytes(t), child.bytes(t)}, {child.bytes(t), sample().bytes(t)}} {
		list, err := Read(archive(order...), Symbols{})
		require.NoError(t, err)
		texts, errs := declared(list)
		assert.Equal(t, "int both(struct s *, struct s, int *)", texts["both"])
		assert.Len(t, texts, len(sampleTexts)+1)
		assert.ErrorContains(t, errs["missing"], "type 0x63 is not there")
	}
	list, err := Read(archive(child.bytes(t)), Symbols{})
	require.NoError(t, err)
	_, errs := declared(list)
	assert.ErrorContains(t, errs["both"], "a parent that is not there")

	broken := sample()
	broken.version = 3
	list, err = Read(archive(broken.bytes(t), child.bytes(t)), Symbols{})
	assert.ErrorIs(t, err, ErrVersion)
	assert.Len(t, list, 2, "the other member is read")
}

// TestBySymbols has functions in the order of symbols, with those that have no type, and names in the
// symbols' strings.
func TestBySymbols(t *testing.T) {
	static := Symbols{
		Static:  func() []string { return []string{"first", "second", "third"} },
		Dynamic: func() []string { return []string{"dynamic"} },
	}
	b := sample()
	b.index, b.funcs = nil, []uint32{16, 0, 18}
	list, err := Read(b.bytes(t), static)
	require.NoError(t, err)
	texts, _ := declared(list)
	assert.Equal(t, map[string]string{"first": "int first(const int *, ...)", "third": "void third()"}, texts)

	b.flags, b.funcs = flagDynamic, []uint32{18}
	list, err = Read(b.bytes(t), static)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "dynamic", list[0].Name)
	b.funcs = []uint32{18, 18}
	_, err = Read(b.bytes(t), static)
	assert.ErrorContains(t, err, "2 functions, and 1 symbols")
	_, err = Read(b.bytes(t), Symbols{})
	assert.ErrorContains(t, err, "need a symbol table, but the file has none")

	b = newBuilder()
	b.typ(kindFunction, 0, "", 0)
	b.funcs, b.index = []uint32{1, 1}, []uint32{1<<31 | 1, 1<<31 | 100}
	strings := func() []byte { return []byte("\x00external\x00") }
	list, err = Read(b.bytes(t), Symbols{StaticStrings: strings})
	require.NoError(t, err)
	require.Len(t, list, 1, "a name beyond the strings is none")
	assert.Equal(t, "external", list[0].Name)
}

// TestBad has what cannot be read: each ends in its own error.
func TestBad(t *testing.T) {
	good := sample().bytes(t)
	le := binary.LittleEndian
	with := func(change func([]byte) []byte) []byte { return change(bytes.Clone(good)) }
	field := func(i int, v uint32) []byte {
		return with(func(b []byte) []byte { le.PutUint32(b[4*i:], v); return b })
	}
	unknown := newBuilder()
	unknown.typ(15, 0, "", 0)
	many := newBuilder()
	many.typ(kindFunction, 3, "", 0, 1)
	loop := newBuilder()
	loop.typ(kindPointer, 0, "", 1)
	loop.typ(kindFunction, 1, "", 1, 1, 0)
	loop.function("loop", 2)
	short := newBuilder()
	short.typ(kindFunction, 0, "", 0)
	short.funcs, short.index = []uint32{1, 1}, []uint32{1}
	packed := sample()
	packed.flags = flagCompressed
	bomb := packed.bytes(t)
	le.PutUint32(bomb[48:], 1<<27)
	cut := packed.bytes(t)
	le.PutUint32(cut[48:], le.Uint32(cut[48:])+50)
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":            {nil, "header goes beyond the end"},
		"magic":            {with(func(b []byte) []byte { b[0]++; return b }), "not CTF"},
		"version":          {with(func(b []byte) []byte { b[2] = 3; return b }), "unknown version 3"},
		"strings":          {field(12, 1<<30), "a part goes beyond the end"},
		"order":            {field(6, 1<<20), "a part goes beyond the end"},
		"types":            {field(10, 1<<30), "a part goes beyond the end"},
		"unknown kind":     {unknown.bytes(t), "type 1: kind 15 is not known"},
		"cut type":         {many.bytes(t), "type 1: goes beyond the end"},
		"short index":      {short.bytes(t), "index of functions goes beyond the end"},
		"not what it says": {bomb, "are said to be"},
		"shorter stream":   {cut, "compressed data: unexpected EOF"},
		"many members":     {archive(good)[:41], "archive of 1 members goes beyond the end"},
		"members elsewhere": {func() []byte { b := archive(good); le.PutUint64(b[32:], 1<<40); return b }(),
			"members of the archive: goes beyond the end"},
		"member's offset": {func() []byte { b := archive(good); le.PutUint64(b[48:], 1<<40); return b }(),
			"member 0 goes beyond the end"},
		"member's size": {archive(good)[:200], "member 0 goes beyond the end"},
	} {
		_, err := Read(c.b, Symbols{})
		assert.ErrorContains(t, err, c.want, name)
	}
	list, err := Read(loop.bytes(t), Symbols{})
	require.NoError(t, err)
	_, errs := declared(list)
	assert.ErrorContains(t, errs["loop"], "more than 1000 types")
}
