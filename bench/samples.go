package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// sample is a stack to unwind. Its bytes are those of the mapped flat file.
type sample struct {
	maps   *unwind.Maps
	regs   abi.Regs
	memory []byte
}

// flat is the samples of a recording in the file that all contenders map, whose
// layout perf/flat.h tells.
type flat struct {
	path    string
	samples []sample
	mapping []byte // of the whole file
}

const flatMagic = 0x74616c66666c6568 // the text "helfflat", as perf/flat.h has it

// flatWriter writes the words and strings of the file.
type flatWriter struct {
	*bufio.Writer
	offset int   // bytes written so far
	err    error // the first one
}

// words writes 64-bit little-endian words.
func (w *flatWriter) words(v ...uint64) {
	for _, x := range v {
		w.bytes(binary.LittleEndian.AppendUint64(nil, x))
	}
}

// bytes pads to 8. So all words in the file are aligned.
func (w *flatWriter) bytes(b []byte) {
	var pad [7]byte
	for _, p := range [][]byte{b, pad[:-len(b)&7]} {
		n, err := w.Write(p)
		w.offset += n
		if w.err == nil {
			w.err = err
		}
	}
}

// space is what tells the address spaces of a recording apart: a process, until
// it executes another program.
type space struct {
	pid    int32
	lowest unwind.Mapping
}

// flatten writes the stacks of a recording to the file path and maps it.
func flatten(recording, path string, objects *unwind.Objects) (*flat, error) {
	r, err := perfdata.Open(recording, perfdata.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	body, err := os.Create(path + ".samples")
	if err != nil {
		return nil, err
	}
	defer os.Remove(body.Name())
	defer body.Close()

	f := &flat{path: path}
	// Samples go to a temporary file first: objects and maps, which precede them, are known only at
	// the end.
	w := &flatWriter{Writer: bufio.NewWriter(body)}
	maps, spaces := map[*unwind.Maps]int{}, map[space]int{}
	var list []*unwind.Maps
	var offsets []int // of each sample's bytes, from the first sample on
	err = script.Stacks(r, objects, func(s *script.Stack) {
		m, ok := maps[s.Maps]
		if !ok {
			m = len(list)
			maps[s.Maps] = m
			list = append(list, s.Maps)
		}
		// Processes that execute another program have other mappings with the same pid.
		sp := space{pid: s.PID}
		if all := s.Maps.All(); len(all) > 0 {
			sp.lowest = unwind.Mapping{Start: all[0].Start, Object: all[0].Object}
		}
		if _, ok := spaces[sp]; !ok {
			spaces[sp] = len(spaces)
		}
		w.words(uint64(m), uint64(spaces[sp]), uint64(len(s.Memory)))
		w.words(s.Regs.Reg[:]...)
		offsets = append(offsets, w.offset)
		f.samples = append(f.samples, sample{maps: s.Maps, regs: s.Regs, memory: s.Memory[:len(s.Memory):len(s.Memory)]})
		w.bytes(s.Memory)
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return nil, err
	}
	head, err := writeHead(path, objects, list, len(spaces), len(f.samples), body)
	if err != nil {
		return nil, err
	}
	return f, f.open(head, offsets)
}

// writeHead writes what precedes the samples, then these; it returns where they
// begin.
func writeHead(path string, objects *unwind.Objects, maps []*unwind.Maps, spaces, samples int, body *os.File) (int,
	error) {
	out, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	w := &flatWriter{Writer: bufio.NewWriter(out)}
	all := objects.All()
	index := map[*unwind.Object]uint64{}
	w.words(flatMagic, uint64(len(all)), uint64(len(maps)), uint64(spaces), uint64(samples))
	for i, o := range all {
		index[o] = uint64(i)
		file := objectFile(o, filepath.Dir(path))
		w.words(uint64(len(file)))
		w.bytes([]byte(file))
	}
	for _, m := range maps {
		w.words(uint64(len(m.All())))
		for _, e := range m.All() {
			w.words(e.Start, e.End, e.Offset, index[e.Object])
		}
	}
	head := w.offset
	if w.err != nil {
		return 0, w.err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if _, err := io.Copy(w.Writer, body); err != nil {
		return 0, err
	}
	return head, w.Flush()
}

// objectFile returns the path of an object's file, or "" if it has none; the vDSO is
// written to the folder dir.
func objectFile(o *unwind.Object, dir string) string {
	image, size, err := o.Open()
	if err != nil {
		return ""
	}
	defer image.Close()
	if o.Path() != "" {
		return o.Path()
	}
	data := make([]byte, size)
	path := filepath.Join(dir, "vdso.so")
	if _, err := image.ReadAt(data, 0); err != nil || os.WriteFile(path, data, 0o666) != nil {
		return ""
	}
	return path
}

// open maps the file; at is where each sample's bytes begin, less head.
func (f *flat) open(head int, offsets []int) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	f.mapping, err = syscall.Mmap(int(file.Fd()), 0, int(st.Size()), syscall.PROT_READ,
		syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return err
	}
	for i := range f.samples {
		n := len(f.samples[i].memory)
		f.samples[i].memory = f.mapping[head+offsets[i]:][:n:n]
	}
	return nil
}
