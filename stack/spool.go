package stack

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ehasm/ehasm/abi"
)

// This file keeps of a core in a pipe what stacks need: of a database's 100 GB some MB. The rest is read and dropped,
// since the writer waits for it.

// Bounds on what is kept of a core that comes by a pipe, in bytes.
const (
	smallSegment = 8 << 20  // kept whole
	segmentHead  = 64 << 10 // of larger ones: a file's build-id
	segmentTail  = 8 << 20  // and the end, where stacks begin
	stackKept    = 8 << 20  // from each stack pointer on
	mostKept     = 2 << 30  // in all, without pages of zeros
	spoolPage    = 4096     // the unit in which zeros are left out, as holes of the file
)

// OpenCorePipe reads a core from a pipe to its end. It keeps what stacks need in a temporary file without a name: small
// segments, and the beginning and the end of large ones. If the notes come first, as from the kernel, it also keeps 8
// MB from each thread's stack pointer on. So the heap of a large process takes no room. A stack ends
// where memory is missing. The headers say where everything lies; the pipe cannot go back to it.
func OpenCorePipe(r io.Reader) (*CoreFile, error) {
	head := headReader{in: r}
	im, err := head.image()
	if err != nil {
		return nil, err
	}
	var sps []uint64
	if im.notesFirst() {
		c, err := head.notes(im)
		if err != nil {
			return nil, err
		}
		for _, t := range c.threads {
			sps = append(sps, t.regs.Reg[abi.RSP])
		}
	}
	file, err := os.CreateTemp("", ".ehasm-core-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name()) // systems that cannot remove an open file keep it
	c, err := newSpool(r, head.head.Bytes(), file).core(im, sps)
	if err != nil {
		file.Close()
		return nil, err
	}
	c.finish()
	return &CoreFile{c, file}, nil
}

// notesFirst reports whether the notes come before the memory.
func (im *image) notesFirst() bool {
	for _, n := range im.notes {
		for _, s := range im.segments {
			if s.size > 0 && s.off < n.off {
				return false
			}
		}
	}
	return true
}

// spool copies pieces of a core to a file, at their offsets, so that the headers stay right. The file has holes
// between.
type spool struct {
	in     *bufio.Reader
	offset uint64 // of in
	head   []byte // what came before
	out    *os.File
	kept   uint64 // bytes written
}

// newSpool returns a spool for what follows head in the pipe.
func newSpool(r io.Reader, head []byte, out *os.File) *spool {
	return &spool{in: bufio.NewReaderSize(r, 1<<20), offset: uint64(len(head)), head: head, out: out}
}

// core keeps what stacks need, of threads with these stack pointers, and returns the core of it.
func (s *spool) core(im *image, sps []uint64) (*Core, error) {
	pieces := slices.Clone(im.notes)
	for i := range pieces {
		pieces[i].size = min(pieces[i].size, mostHead)
	}
	notes := len(pieces)
	pieces = append(pieces, im.pieces(sps)...)
	order := make([]int, len(pieces))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pieces[a].off, pieces[b].off) })
	end := uint64(len(s.head))
	for _, i := range order {
		p := &pieces[i]
		got, err := s.copy(p.off, p.size)
		if err != nil {
			return nil, err
		}
		p.size = got
		if got > 0 {
			end = max(end, p.off+got)
		}
	}
	n, err := io.Copy(io.Discard, s.in) // the kernel or gdb writes on; a closed pipe would be an error there
	if err != nil {
		return nil, err
	}
	s.offset += uint64(n)
	if _, err := s.out.WriteAt(s.head, 0); err != nil {
		return nil, err
	}
	if err := s.out.Truncate(int64(end)); err != nil { // zeros at the end are not written
		return nil, err
	}
	c, err := coreOf(s.out, int64(s.offset))
	if err != nil {
		return nil, err
	}
	c.image.segments = pieces[notes:]
	if s.kept > mostKept {
		c.notes = append(c.notes, fmt.Sprintf("the core has more than %d MB of stacks: the rest was not kept", mostKept>>20))
	}
	return c, nil
}

// copy keeps size bytes from an offset on, and returns how many there are; less if the core ends, or the room does.
// Calls must ascend by offset: what lies before is gone.
func (s *spool) copy(off, size uint64) (got uint64, err error) {
	if off+size <= s.offset {
		return size, nil // notes that are in the head
	}
	if off < s.offset || size == 0 {
		return 0, nil // segments that overlap
	}
	n, err := io.CopyN(io.Discard, s.in, int64(min(off-s.offset, 1<<62)))
	s.offset += uint64(n)
	if err == io.EOF {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	var page [spoolPage]byte
	for got < size && s.kept <= mostKept {
		n, err := io.ReadFull(s.in, page[:min(spoolPage, size-got)])
		if !zero(page[:n]) {
			if _, err := s.out.WriteAt(page[:n], int64(s.offset)); err != nil {
				return got, err
			}
			s.kept += uint64(n)
		}
		got, s.offset = got+uint64(n), s.offset+uint64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			return got, err
		}
	}
	return got, nil
}

// zero reports whether a page has no other bytes.
func zero(page []byte) bool {
	for ; len(page) >= 8; page = page[8:] {
		if binary.LittleEndian.Uint64(page) != 0 {
			return false
		}
	}
	return bytes.Count(page, []byte{0}) == len(page)
}

// pieces cuts the segments into pieces to keep and pieces to leave out; those have the size 0.
func (im *image) pieces(sps []uint64) (pieces []segment) {
	slices.Sort(sps)
	for _, s := range im.segments {
		if s.size <= smallSegment {
			pieces = append(pieces, s)
			continue
		}
		end := s.start + min(s.size, s.end-s.start) // what the file has
		addr := s.start
		add := func(from, to uint64, keep bool) {
			from, to = max(from, addr), min(to, end)
			if from >= to {
				return
			}
			p := segment{start: from, end: to, off: s.off + from - s.start, exec: s.exec}
			if keep {
				p.size = to - from
			}
			pieces, addr = append(pieces, p), to
		}
		keep := func(from, size uint64) {
			add(addr, from, false)
			add(from, from+size, true) // before it: a hole
		}
		keep(s.start, segmentHead)
		i, _ := slices.BinarySearch(sps, s.start)
		for ; i < len(sps) && sps[i] < end; i++ {
			keep((sps[i]-redZone)&^(spoolPage-1), stackKept+spoolPage)
		}
		// Main threads' stacks end at the end of their segment.
		keep(end-segmentTail, segmentTail)
		if s.end > addr {
			pieces = append(pieces, segment{start: addr, end: s.end, off: s.off + addr - s.start, exec: s.exec})
		}
	}
	return pieces
}
