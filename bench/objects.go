package main

import (
	"debug/elf"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// object is an ELF file of the machine.
type object struct {
	Path    string
	EHFrame int64 // bytes of .eh_frame
	Hdr     int64 // bytes of .eh_frame_hdr
}

// findObjects returns the x86-64 executables and shared objects below some
// folders with their unwind sections, by size. Links count once.
func findObjects(roots []string) []object {
	var list []object
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	for _, root := range roots {
		filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil
			}
			info, err := e.Info()
			if err != nil || info.Size() < 16<<10 { // smaller ones have hardly any rows
				return nil
			}
			st, ok := info.Sys().(*syscall.Stat_t)
			if !ok || seen[file{st.Dev, st.Ino}] {
				return nil
			}
			if o, ok := readObject(path); ok {
				seen[file{st.Dev, st.Ino}] = true
				list = append(list, o)
			}
			return nil
		})
	}
	slices.SortFunc(list, func(a, b object) int {
		if a.EHFrame != b.EHFrame {
			return int(a.EHFrame - b.EHFrame)
		}
		return strings.Compare(a.Path, b.Path)
	})
	return list
}

// readObject looks at the sections of a file.
func readObject(path string) (o object, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return o, false
	}
	defer f.Close()
	var magic [4]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != elf.ELFMAG {
		return o, false
	}
	defer func() {
		if recover() != nil { // debug/elf is not hardened
			ok = false
		}
	}()
	e, err := elf.NewFile(f)
	if err != nil || e.Machine != elf.EM_X86_64 || e.Type != elf.ET_DYN && e.Type != elf.ET_EXEC {
		return o, false
	}
	s := e.Section(".eh_frame")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return o, false
	}
	o = object{Path: path, EHFrame: int64(s.Size)}
	if h := e.Section(".eh_frame_hdr"); h != nil {
		o.Hdr = int64(h.Size)
	}
	return o, true
}

// wellKnown are objects that a choice takes where it can.
var wellKnown = []string{"/libc.so.6", "/libstdc++.so.6.0.", "/libcrypto.so.", "/gdb", "/libpython3.11.so.1.0",
	"/libgcc_s.so.1"}

// choose picks n objects of ascending size, from about 10 KB of .eh_frame to the
// largest, at equal factors; near each step a well-known one if there is one.
func choose(all []object, n int) []object {
	const first = 10 << 10
	if len(all) == 0 {
		return nil
	}
	largest := float64(all[len(all)-1].EHFrame)
	taken := make([]bool, len(all))
	// Equal factors are equal steps of the logarithm.
	var list []object
	for i := range n {
		want := first * math.Pow(largest/first, float64(i)/float64(n-1))
		best, cost := -1, math.Inf(1)
		for k, o := range all {
			if taken[k] || o.EHFrame == 0 {
				continue
			}
			c := math.Abs(math.Log(float64(o.EHFrame) / want))
			// A well-known object within half a step counts as a perfect match.
			if c < math.Log(largest/first)/float64(n-1)/2 && isWellKnown(o.Path) {
				c = 0
			}
			if c < cost {
				best, cost = k, c
			}
		}
		if best >= 0 {
			taken[best] = true
			list = append(list, all[best])
		}
	}
	slices.SortFunc(list, func(a, b object) int { return int(a.EHFrame - b.EHFrame) })
	return list
}

// isWellKnown reports whether a path in /usr ends in one of wellKnown, which may leave out a
// version.
func isWellKnown(path string) bool {
	return strings.HasPrefix(path, "/usr/") && slices.ContainsFunc(wellKnown, func(w string) bool {
		i := strings.LastIndex(path, w)
		return i >= 0 && !strings.Contains(path[i+1:], "/") && (strings.HasSuffix(w, ".") || strings.HasSuffix(path, w))
	})
}
