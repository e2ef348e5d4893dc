//go:build linux

package stack

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/unwind"
)

// note is a note of a core.
func note(name string, kind uint32, desc []byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(name)+1))
	b = le.AppendUint32(b, uint32(len(desc)))
	b = le.AppendUint32(b, kind)
	b = append(b, name...)
	b = append(b, make([]byte, 4-len(name)%4)...)
	b = append(b, desc...)
	return append(b, make([]byte, -len(desc)&3)...)
}

// mappedFiles is the contents of NT_FILE with a page of each file.
func mappedFiles(names ...string) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(nil, uint64(len(names))), 4096)
	for i := range names {
		for _, w := range []int{0x40_0000 + i*4096, 0x40_1000 + i*4096, 0} {
			b = le.AppendUint64(b, uint64(w))
		}
	}
	for _, name := range names {
		b = append(append(b, name...), 0)
	}
	return b
}

// coreFile is a small core, made by hand: two threads, a file, a stack of a page, and more notes.
func coreFile(more ...[]byte) []byte {
	le := binary.LittleEndian
	thread := func(tid uint32, rip uint64) []byte {
		d := make([]byte, 336)
		le.PutUint16(d[12:], 11)
		le.PutUint32(d[32:], tid)
		le.PutUint64(d[112+8*16:], rip)
		le.PutUint64(d[112+8*19:], 0x7000_0100)
		return note("CORE", ntPrstatus, d)
	}
	info := make([]byte, 136)
	le.PutUint32(info[24:], 77)
	copy(info[40:], "crasher")
	signal := make([]byte, 128)
	le.PutUint32(signal, 11)
	le.PutUint32(signal[8:], 1)
	le.PutUint64(signal[16:], 0xdead)
	var auxv []byte
	for _, w := range []uint64{atEntry, 0x40_0010, atSysinfoEhdr, 0x5000_0000, 0, 0} {
		auxv = le.AppendUint64(auxv, w)
	}
	notes := bytes.Join([][]byte{thread(78, 0x40_0100), note("CORE", ntPrpsinfo, info),
		note("CORE", ntSiginfo, signal), note("CORE", ntAuxv, auxv),
		note("CORE", ntFile, mappedFiles("/absent/file")), thread(77, 0x5000_0100), bytes.Join(more, nil)}, nil)
	const headers = 4
	header := make([]byte, ehdrSize)
	copy(header, "\x7fELF\x02\x01\x01")
	le.PutUint16(header[16:], uint16(elf.ET_CORE))
	le.PutUint16(header[18:], uint16(elf.EM_X86_64))
	le.PutUint64(header[32:], ehdrSize)
	le.PutUint16(header[54:], phdrSize)
	le.PutUint16(header[56:], headers)
	start := uint64(ehdrSize + headers*phdrSize)
	segment := func(kind elf.ProgType, flags elf.ProgFlag, addr, filesz, memsz uint64) {
		h := le.AppendUint32(nil, uint32(kind))
		h = le.AppendUint32(h, uint32(flags))
		for _, w := range []uint64{start, addr, 0, filesz, memsz, 1} {
			h = le.AppendUint64(h, w)
		}
		header = append(header, h...)
		start += filesz
	}
	segment(elf.PT_NOTE, 0, 0, uint64(len(notes)), 0)
	segment(elf.PT_LOAD, elf.PF_R|elf.PF_X, 0x40_0000, 0, 0x1000)
	segment(elf.PT_LOAD, elf.PF_R|elf.PF_X, 0x5000_0000, 0x1000, 0x1000)
	segment(elf.PT_LOAD, elf.PF_R|elf.PF_W, 0x7000_0000, 0x1000, 0x1000)
	stack := make([]byte, 0x1000)
	le.PutUint64(stack[0x120:], 0x40_0200)
	return bytes.Join([][]byte{header, notes, make([]byte, 0x1000), stack}, nil)
}

func coreReader(b []byte) (io.ReaderAt, int64) { return bytes.NewReader(b), int64(len(b)) }

// take reads a core whole.
func take(t *testing.T, b []byte) (*Target, error) {
	c, err := OpenCore(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	_, _ = c.VDSO() // must not panic
	return c.Target(t.Context(), Options{Objects: unwind.NewObjects(unwind.Options{})})
}

func TestCore(t *testing.T) {
	b := coreFile()
	c, err := OpenCore(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	assert.Equal(t, "/absent/file", c.Program())
	vdso, err := c.VDSO()
	require.NoError(t, err)
	assert.Len(t, vdso, 0x1000)
	assert.Equal(t, uint64(0x7000_0100), c.threads[0].regs.Reg[abi.RSP])
	target, err := take(t, b)
	require.NoError(t, err)
	assert.Equal(t, "SIGSEGV at address 0xdead", target.Reason)
	assert.Equal(t, "crasher", target.Comm)
	assert.Equal(t, int32(77), target.PID)
	require.Len(t, target.Threads, 2)
	assert.Equal(t, int32(78), target.Threads[0].TID, "the one that crashed")
	assert.Equal(t, []uint64{0x40_0100}, target.Threads[0].PCs)
	assert.Equal(t, unwind.NoObject, target.Threads[0].End)
	assert.Empty(t, target.Notes)

	short, err := take(t, b[:len(b)-0x1000])
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprintf("the core is cut short: it has %d of %d bytes; stacks may end early",
		len(b)-0x1000, len(b))}, short.Notes)
}

// TestCoreFiles: hostile lists of files take memory and time as their bytes do, and stacks stay.
func TestCoreFiles(t *testing.T) {
	c, err := coreOf(coreReader(coreFile(note("CORE", ntFile, mappedFiles("/other", "/more")))))
	require.NoError(t, err)
	require.Len(t, c.mappings, 1, "the first list counts")
	assert.Equal(t, "/absent/file", c.mappings[0].Name)

	var many []string
	for i := range mostFiles + 100 {
		many = append(many, fmt.Sprint("/", i), "/same")
	}
	c = &Core{}
	c.mapped(mappedFiles(append(many, "/"+strings.Repeat("x", mostPath))...))
	assert.Len(t, c.mappings, mostFiles-1+mostFiles+100, "each name once, and all mappings of a known one")
	assert.Equal(t, []string{"mapped memory is taken to be of no file: the core has more than 16384 names of files, or names of more than 4096 bytes (102 times)"}, c.notes)

	b := budget{func(p []byte, _ uint64) int { return len(p) }, 20}
	assert.Equal(t, []int{16, 4, 0}, []int{b.read(make([]byte, 16), 0), b.read(make([]byte, 16), 0),
		b.read(make([]byte, 16), 0)})
}

// TestCoreCut: of a core of any length, there are threads or an error.
func TestCoreCut(t *testing.T) {
	b := coreFile()
	for n := range len(b) - 0x2000 {
		target, err := take(t, b[:n])
		if err == nil {
			require.NotEmpty(t, target.Threads, n)
			require.NotEmpty(t, target.Notes, n)
		}
		if n < ehdrSize {
			require.ErrorIs(t, err, ErrNotCore)
		}
	}
}

// TestCoreMutants changes bytes of headers and notes. EHASM_MUTANTS sets how many mutants there are.
func TestCoreMutants(t *testing.T) {
	b := coreFile()
	n, err := strconv.Atoi(os.Getenv("EHASM_MUTANTS"))
	if err != nil {
		n = 3000
	}
	random := rand.New(rand.NewPCG(3, 4))
	extremes := []byte{0, 1, 0x7f, 0x80, 0xff}
	read, failed := 0, 0
	for range n {
		m := bytes.Clone(b)
		for range 1 + random.IntN(6) {
			off := random.IntN(len(b) - 0x2000)
			for range 1 + random.IntN(8) {
				m[min(off, len(m)-1)] = extremes[random.IntN(len(extremes))]
				off++
			}
		}
		if target, err := take(t, m); err != nil {
			failed++
			require.NotContains(t, err.Error(), "\n")
		} else {
			read++
			require.NotEmpty(t, target.Threads)
		}
	}
	assert.Greater(t, read, n/10)
	assert.Greater(t, failed, n/100)
}

// failing is a file whose reads fail.
type failing struct{ io.ReaderAt }

var errDisk = errors.New("disk on fire")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off > 0 {
		return 0, errDisk
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestCoreUnreadable(t *testing.T) {
	b := coreFile()
	_, err := OpenCore(failing{bytes.NewReader(b)}, int64(len(b)))
	assert.ErrorIs(t, err, errDisk)
}

// TestCopyPart: copies end with the mapping, and begin in it.
func TestCopyPart(t *testing.T) {
	var asked []uint64
	read := func(p []byte, addr uint64) int { asked = append(asked, addr, uint64(len(p))); return len(p) }
	region := func(addr uint64) (uint64, uint64) {
		if addr-0x1000 < 0x2000 {
			return 0x1000, 0x3000
		}
		return 0, 0
	}
	for _, c := range []struct {
		sp       uint64
		lo, size uint64
	}{{0x1800, 0x1780, 0x1880}, {0x1010, 0x1000, 0x2000}, {0x1804, 0x1780, 0x1880}, {0x9000, 0x8f80, firstCopy}} {
		p := copyPart(read, region, part{c.sp, firstCopy})
		assert.Equal(t, []uint64{c.lo, c.size}, asked)
		assert.Equal(t, c.lo, p.Lo)
		asked = nil
	}
}

// TestCoreLate: the stack of the thread that crashed is taken however late it is.
func TestCoreLate(t *testing.T) {
	b := coreFile()
	c, err := OpenCore(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	late, stop := context.WithCancel(t.Context())
	stop()
	target, err := c.Target(late, Options{Objects: unwind.NewObjects(unwind.Options{})})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, target.Threads, 1)
	assert.Equal(t, int32(78), target.Threads[0].TID)
}

// TestCoreOneName: files of one name, such as memfds, have their own bytes and build-ids, whether the core has these or
// not.
func TestCoreOneName(t *testing.T) {
	const name, page, base = "/memfd:plugin (deleted)", 0x1000, 0x40_0000
	le := binary.LittleEndian
	var memory, ranges []byte
	var names string
	c := &Core{image: &image{}}
	for i, id := range []string{"first", "second"} {
		e := unwindtest.ELF{Off: page, VAddr: page, Size: page, BuildID: []byte(id)}
		file := e.Bytes()
		require.Len(t, file, 2*page)
		for part := range uint64(2) {
			start := base + uint64(len(memory))
			c.image.segments = append(c.image.segments, segment{start: start, end: start + page, off: uint64(len(memory)),
				size: page, exec: part == 1})
			for _, w := range []uint64{start, start + page, part} {
				ranges = le.AppendUint64(ranges, w)
			}
			memory = append(memory, file[part*page:(part+1)*page]...)
			names += name + "\x00"
		}
		memory[len(memory)-1] = byte(i)
	}
	c.image.file, c.image.size = bytes.NewReader(memory), uint64(len(memory))
	c.mapped(slices.Concat(le.AppendUint64(le.AppendUint64(nil, 4), page), ranges, []byte(names)))
	c.finish()
	objects := unwind.NewObjects(unwind.Options{})
	for i, id := range []string{"first", "second"} {
		o := c.object(objects, c.file(base+uint64(2*i+1)*page))
		require.NoError(t, o.Err())
		assert.Equal(t, id, string(o.BuildID()))
		file, size, err := o.Open()
		require.NoError(t, err)
		last := []byte{0xff}
		_, err = file.ReadAt(last, size-1)
		require.NoError(t, err)
		assert.Equal(t, byte(i), last[0])
	}
}
