//go:build adversary && linux && amd64

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
)

// seed is a valid input, and the places in it that edits are to prefer.
type seed struct {
	name    string
	bytes   []byte
	regions [][2]int
}

// elfSeed has the headers and small sections of an ELF file as regions.
func elfSeed(t *testing.T, name string, b []byte) seed {
	t.Helper()
	s := seed{name: name, bytes: b}
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err, name)
	add := func(off, size uint64) {
		if size > 0 && off+size <= uint64(len(b)) {
			s.regions = append(s.regions, [2]int{int(off), int(off + size)})
		}
	}
	add(0, 64)
	for i := range f.Progs {
		add(64+uint64(i)*56, 56)
	}
	shoff := uint64(0)
	for i := range 8 {
		shoff |= uint64(b[40+i]) << (8 * i)
	}
	for i, sec := range f.Sections {
		add(shoff+uint64(i)*64, 64)
		if sec.Type == elf.SHT_NOBITS {
			continue
		}
		switch {
		case strings.Contains(sec.Name, "_frame"), strings.HasPrefix(sec.Name, ".note"), strings.HasPrefix(sec.Name,
			".gcc_except"),
			strings.HasPrefix(sec.Name,
				".debug_"), sec.Name == ".dynamic", sec.Type == elf.SHT_SYMTAB, sec.Type == elf.SHT_DYNSYM,
			sec.Type == elf.SHT_RELA:
			add(sec.Offset, sec.FileSize)
			add(sec.Offset, min(sec.FileSize, 128))
		}
	}
	return s
}

// mutate changes a few places of a seed; equal numbers, equal inputs.
func (s *seed) mutate(r *rand.Rand, other *seed) []byte {
	b := bytes.Clone(s.bytes)
	interesting := []uint64{0, 1, 2, 3, 7, 8, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000, 0x7fff, 0x8000, 0xffff, 0x10000,
		1<<24 - 1,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(0) - 7}
	place := func() int {
		if len(s.regions) > 0 && r.IntN(10) < 8 {
			region := s.regions[r.IntN(len(s.regions))]
			return region[0] + r.IntN(region[1]-region[0])
		}
		return r.IntN(len(s.bytes))
	}
	for range 1 + r.IntN(1<<r.IntN(5)) {
		if len(b) == 0 {
			break
		}
		offset := min(place(), len(b)-1)
		n := min(1+r.IntN(1<<r.IntN(9)), len(b)-offset)
		switch r.IntN(12) {
		case 0, 1:
			b[offset] ^= 1 << r.IntN(8)
		case 2, 3:
			b[offset] = byte(r.Uint32())
		case 4, 5, 6, 7:
			v, width := interesting[r.IntN(len(interesting))], 1<<r.IntN(4)
			if r.IntN(4) == 0 {
				v = uint64(len(b)) + v - 8
			}
			offset &^= width - 1
			for i := range width {
				if offset+i < len(b) {
					b[offset+i] = byte(v >> (8 * i))
				}
			}
		case 8:
			copy(b[offset:offset+n], b[min(place(), len(b)-1):])
		case 9:
			copy(b[offset:offset+n], other.bytes[r.IntN(len(other.bytes)):])
		case 10:
			clear(b[offset : offset+n])
		case 11:
			switch r.IntN(4) {
			case 0:
				b = b[:offset]
			case 1:
				b = append(b, make([]byte, n)...)
			case 2:
				b = append(b[:offset], b[offset+n:]...)
			case 3:
				b = append(b[:offset], append(bytes.Clone(b[offset:offset+n]), b[offset:]...)...)
			}
		}
	}
	return b
}

// objects are small ELF files of many kinds.
func objects(t *testing.T) (all []seed) {
	t.Helper()
	add := func(name string, b []byte) { all = append(all, elfSeed(t, name, b)) }
	add("small", smallELF(t, 0))
	add("small with a build-id", withBuildID(t, smallELF(t, 1), []byte("01234567890123456789")))
	made := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: buildID("x"), Funcs: []unwindtest.Func{
		{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
		{Name: "f", Addr: 0x401040, Size: 0x40}}}
	add("made", made.Bytes())
	dir := t.TempDir()
	source := filepath.Join(dir, "s.cc")
	require.NoError(t, os.WriteFile(source, []byte(`
#include <stdexcept>
struct D { int *p; ~D() { ++*p; } };
template <class T> __attribute__((noinline)) T f(T n, int *p) { D d{p}; if (n > 3) throw std::runtime_error("x"); return n < 1 ? 0 : f(n - 1, p) + *p; }
static inline int g(int n) { int k = 0; try { return f(n, &k) + f((long)n, &k); } catch (std::exception &e) { return k + e.what()[0]; } }
extern "C" int h(int n) { char b[n & 0xfff]; b[0] = n; return g(n) + g(b[0]); }
`), 0o644))
	for _, flags := range []string{"-O2", "-O2 -g", "-O1 -g -gdwarf-4 -gz", "-O0 -gdwarf-2",
		"-O2 -g -fno-asynchronous-unwind-tables -fno-exceptions -DNOEH",
		"-O2 -g -Wl,--strip-debug -Wl,--no-eh-frame-hdr"} {
		src := source
		if strings.Contains(flags, "NOEH") {
			src = filepath.Join(dir, "c.c")
			require.NoError(t, os.WriteFile(src,
				[]byte("int k(int n){ return n < 2 ? n : k(n-1) + k(n-2); } int m(int*p){ *p = k(*p); return 3; }\n"), 0o644))
		}
		out := filepath.Join(dir, "out.so")
		args := append(strings.Fields(flags), "-shared", "-fPIC", "-nostartfiles", "-o", out, src)
		text, err := exec.Command("gcc", args...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		add("gcc "+flags, b)
		args = append(strings.Fields(flags), "-c", "-o", out, src)
		if text, err = exec.Command("gcc", args...).CombinedOutput(); err == nil {
			b, err = os.ReadFile(out)
			require.NoError(t, err)
			add("gcc -c "+flags, b)
		}
	}
	return all
}

// ehElfs returns what build makes of the objects.
func ehElfs(t *testing.T) (all []seed) {
	t.Helper()
	dir := t.TempDir()
	for i, s := range objects(t) {
		for _, dispatch := range []string{"tree", "packed"} {
			in := filepath.Join(dir, fmt.Sprint(dispatch, i))
			require.NoError(t, os.WriteFile(in, s.bytes, 0o644))
			if ehasm(t, "build", "-q", "--dispatch", dispatch, in).code != exitDone {
				continue
			}
			b, err := os.ReadFile(in + ".eh_elf.so")
			require.NoError(t, err)
			all = append(all, elfSeed(t, s.name, b))
		}
	}
	require.Greater(t, len(all), 8)
	return all
}

// recordings are perf.data files, whole and as streams.
func recordings(t *testing.T) (root string, all []seed) {
	t.Helper()
	r := newRecorder(t)
	kernel := uint64(0xffffffff81000000)
	write(t, programOf("main"), r.root, "bin/prog")
	r.exec(1, "prog", "/bin/prog", nil)
	mark := len(r.Data)
	var spans [][2]int
	for i := range 20 {
		r.sample(1, inFunction+uint64(i%8), i%3 == 0)
		if i == 5 {
			r.Mmap2(r.id(1), 0x30000, 0x2000, 0, "//anon")
			r.Fork(r.id(2), 1, 1)
			r.exec(3, "other", "/bin/prog", buildID("main"))
			r.Round()
		}
		id := r.id(1)
		r.Add(perfdatatest.Record(9, 1, kernel+16, id.PID, id.TID, id.Time, uint64(5), uint64(4), ^uint64(0)-127,
			kernel+16, kernel+64, ^uint64(0)-511,
			uint64(0)))
		r.Add(perfdatatest.Record(9, 2, uint64(0x30010), id.PID, id.TID, id.Time, uint64(5), uint64(0), uint64(0),
			uint64(0), uint64(0)))
	}
	r.BuildIDs = nil
	add := func(name string, b []byte) {
		s := seed{name: name, bytes: b, regions: append([][2]int{{0, min(len(b), 104)}, {0, min(len(b), 512)}}, spans...)}
		for off := 0; off+8 <= len(b); off += 8 { // what may be the header of a record
			if size := int(b[off+6]) | int(b[off+7])<<8; size >= 16 && size < 300 && b[off] < 90 && b[off+1] == 0 &&
				b[off+2] == 0 {
				s.regions = append(s.regions, [2]int{off, min(len(b), off+48)})
			}
		}
		all = append(all, s)
	}
	add("file", r.File())
	add("pipe", r.Pipe())
	r.Compress(mark, 81, 200)
	add("compressed", r.File())
	add("compressed pipe", r.Pipe())
	return r.root, all
}

var adversaryFormats = strings.Split(formatNames(), ", ")

// textSeed has regions of lines.
func textSeed(name, text string) seed {
	s := seed{name: name, bytes: []byte(text)}
	for i := 0; i < len(text); i += 32 {
		s.regions = append(s.regions, [2]int{i, min(len(text), i+32)})
	}
	return s
}
