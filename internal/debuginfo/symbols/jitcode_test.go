package symbols

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unwind adds unwind information for the next code: rows, and an index of some bytes.
func (d dump) unwind(rows string, index int) dump {
	return d.record(jitCodeUnwind, append(append(words(uint64(len(rows)+index), uint64(index), 0), rows...),
		make([]byte, index)...))
}

// codeOf writes parts of a file one after the other and returns the code after each.
func codeOf(t *testing.T, parts ...dump) (f *JITFile, list []JITCode) {
	path := filepath.Join(t.TempDir(), "jit-1234.dump")
	require.NoError(t, os.WriteFile(path, newDump(), 0o600))
	f, err := OpenJITFile(Written{Path: path, PID: 1}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	for _, part := range parts {
		out, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = out.Write(part)
		require.NoError(t, err)
		require.NoError(t, out.Close())
		list, err = f.Update(list, 100)
		require.NoError(t, err)
	}
	return f, list
}

// TestJITCode: code is found with its rows while the file grows, also in the middle of a record, and later code
// replaces earlier.
func TestJITCode(t *testing.T) {
	d := dump(nil).unwind("first", 20).load(1, 0x1000, 0x100, "f").load(2, 0x2000, 0x10, "bare")
	d = d.unwind("lost", 0).unwind("second", 4).record(3, nil).load(3, 0x3000, 0x20, "g")
	d = d.load(4, 0x1080, 0x10, "replaces first")
	for cut := range d {
		f, list := codeOf(t, d[:cut], d[cut:])
		require.Len(t, list, 3)
		assert.Nil(t, FindJITCode(list, 0x1000))
		assert.Nil(t, FindJITCode(list, 0x3020))
		bare, second := FindJITCode(list, 0x2000), FindJITCode(list, 0x301f)
		assert.Zero(t, bare.RowsSize())
		require.NotZero(t, second.RowsSize())
		assert.Equal(t, "second", string(f.Rows(second)))
		assert.Equal(t, uint64(0x1080), NextJITCode(list, 0x1000).Start)
		code := make([]byte, 100)
		assert.Equal(t, 0x10, f.ReadCode(second, 0x3010, code))
		assert.Zero(t, f.ReadCode(second, 0x3020, code))
	}
}

// TestJITCodeHostile: sizes that cannot be true are not believed.
func TestJITCodeHostile(t *testing.T) {
	const huge = ^uint64(0)
	rows := func(sizes ...uint64) dump { return dump(nil).record(jitCodeUnwind, append(words(sizes...), "rows"...)) }
	code := func(addr, size uint64) dump {
		return dump(nil).record(jitCodeLoad, append(words(0, addr, addr, size, 1), "f\x00codecode"...))
	}
	for name, d := range map[string]dump{
		"huge rows":       append(rows(huge, 0, 0), code(0x1000, 8)...),
		"huge index":      append(rows(4, huge, 0), code(0x1000, 8)...),
		"nothing but it":  append(rows(4, 4, 0), code(0x1000, 8)...),
		"short":           append(dump(nil).record(jitCodeUnwind, words(4)), code(0x1000, 8)...),
		"more than bound": append(dump(nil).unwind(strings.Repeat("x", mostJITRows+1), 0), code(0x1000, 8)...),
	} {
		_, list := codeOf(t, d)
		require.Len(t, list, 1, name)
		assert.Zero(t, list[0].RowsSize(), name)
	}
	for name, d := range map[string]dump{
		"huge code": code(0x1000, huge), "wraps": code(huge-3, 8), "none": code(0x1000, 0),
		"larger than record": code(0x1000, 100),
		"a record of 4 GB":   {4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		_, list := codeOf(t, d)
		assert.Empty(t, list, name)
	}
	var many dump
	for i := range uint64(300) {
		many = append(many, code(0x1000+i*16, 8)...)
	}
	_, list := codeOf(t, many)
	assert.Len(t, list, 100)
	f, list := codeOf(t, code(0x1000, 8))
	bad := binary.LittleEndian.AppendUint64(nil, 1<<32) // a record of one byte
	require.NoError(t, os.WriteFile(f.file.Name(), append(newDump(), append(code(0x1000, 8), append(bad, bad...)...)...),
		0o600))
	_, err := f.Update(list, 100)
	assert.ErrorIs(t, err, errJITRecord)
}

// TestJITFiles: a limited number of files is open at a time, and those that are no jitdump files do not count.
func TestJITFiles(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "jit-1.dump"), filepath.Join(t.TempDir(), "jit-2.dump")
	require.NoError(t, os.WriteFile(good, newDump(), 0o600))
	require.NoError(t, os.WriteFile(bad, make([]byte, 100), 0o600))
	open := NewOpenFiles(1)
	_, err := OpenJITFile(Written{Path: bad, PID: 1}, open)
	assert.ErrorIs(t, err, errNoJITDump)
	_, err = OpenJITFile(Written{Path: bad + "x", PID: 1}, open)
	assert.ErrorIs(t, err, os.ErrNotExist)
	for range 3 {
		f, err := OpenJITFile(Written{Path: good, PID: 1}, open)
		require.NoError(t, err)
		_, err = OpenJITFile(Written{Path: good, PID: 1}, open)
		assert.ErrorIs(t, err, errOpenFiles)
		require.NoError(t, f.Close())
	}
}
