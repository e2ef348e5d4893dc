package symbols

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dump is a jitdump file as the specification has it.
type dump []byte

func newDump() dump {
	d := binary.LittleEndian.AppendUint32(nil, jitMagic)
	for _, v := range []uint32{1, jitHeaderSize, 62, 0, 1234} { // version, size, EM_X86_64, padding, pid
		d = binary.LittleEndian.AppendUint32(d, v)
	}
	return append(d, make([]byte, 16)...) // time, flags
}

func (d dump) record(id uint32, body []byte) dump {
	d = binary.LittleEndian.AppendUint32(d, id)
	d = binary.LittleEndian.AppendUint32(d, uint32(jitPrefixSize+len(body)))
	return append(append(d, make([]byte, 8)...), body...)
}

func words(list ...uint64) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func (d dump) load(index, addr, size uint64, name string) dump {
	body := append(words(1234|1234<<32, addr, addr, size, index), name...)
	return d.record(jitCodeLoad, append(append(body, 0), make([]byte, size)...))
}

func (d dump) move(index, from, to, size uint64) dump {
	return d.record(jitCodeMove, words(1234|1234<<32, to, from, to, size, index))
}

func readDump(t *testing.T, d dump) (*Table, error) {
	path := filepath.Join(t.TempDir(), "jit-1234.dump")
	require.NoError(t, os.WriteFile(path, d, 0o600))
	return JITDump(Written{Path: path, PID: 1}, plenty())
}

func TestJITDump(t *testing.T) {
	long := strings.Repeat("a long name ", 300)
	// debug information
	d := newDump().load(1, 0x1000, 0x100, "first").load(2, 0x2000, 5000, long).record(2, make([]byte, 24)).
		load(3, 0x3fc0, 0x80, "moved").move(3, 0x3fc0, 0x5000,
		0x80).load(4, 0x10c0, 0x20, "over first").load(5, 0x6000, 0x10, "same").load(6, 0x6000, 0x10, "same, later")
	whole := len(d)
	d = d.load(7, 0x7000, 0x40, "being written")
	for _, part := range []dump{d[:whole], d[:whole+4], d[:len(d)-1]} {
		table, err := readDump(t, part)
		require.NoError(t, err)
		for addr, want := range map[uint64]string{0x1000: "", 0x10c0: "over first", 0x10df: "over first", 0x10e0: "",
			0x2000: long, 0x2000 + 4999: long,
			0x2000 + 5000: "", 0x5000: "moved", 0x507f: "moved", 0x6000: "same, later", 0x7000: ""} {
			got := ""
			if s := table.Find(addr); s != nil {
				got = s.Name
			}
			assert.Equal(t, want, got, "%#x", addr)
		}
	}
}

func TestJITDumpBad(t *testing.T) {
	other := newDump()
	binary.BigEndian.PutUint32(other, jitMagic)
	short := newDump()
	binary.LittleEndian.PutUint32(short[8:], 8)
	for _, c := range []struct {
		d    dump
		want error
	}{
		{nil, errNoJITDump}, {dump("JiT"), errNoJITDump}, {dump(strings.Repeat("x", 100)), errNoJITDump},
		{other, errOtherOrder}, {short, errJITRecord},
		{append(newDump(), make([]byte, 16)...), errJITRecord},
	} {
		_, err := readDump(t, c.d)
		assert.ErrorIs(t, err, c.want)
	}
	_, err := JITDump(Written{Path: filepath.Join(t.TempDir(), "none"), PID: 1}, plenty())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzJITDump(f *testing.F) {
	f.Add([]byte(newDump().load(1, 0x1000, 16, "f").move(1, 0x1000, 0x2000, 16)))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := readJITDump(strings.NewReader(string(b)), int64(len(b)), plenty().account())
		if err != nil {
			assert.Empty(t, list)
		}
		newTable(lastAt(list), nil)
	})
}

// plenty is a budget for more symbols than tests have.
func plenty() *Budget { return NewBudget(math.MaxInt) }
