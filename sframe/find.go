package sframe

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// Find returns the row for a link-time pc, by a binary search for the function and a scan of its rows. ok is false if
// there is none. The section's flags must say that its functions ascend. Find believes them: with a wrong flag it
// finds another row or none. pc is an address as Function.Start.
func (s *Section) Find(pc uint64) (row Row, ok bool, err error) {
	if s.Flags&flagSorted == 0 {
		return row, false, fmt.Errorf("%w: functions that do not ascend", ErrUnsupported)
	}
	i := sort.Search(s.num, func(i int) bool { return s.start(i) > pc }) - 1
	if i < 0 {
		return row, false, nil
	}
	f, err := s.Function(i)
	if err != nil || pc-f.Start >= uint64(f.Size) {
		return row, false, err
	}
	rel := uint32(pc - f.Start)
	if f.Repeat != 0 {
		rel %= uint32(f.Repeat)
	}
	pos := f.pos
	for range f.Rows {
		next, n, err := s.row(&f, pos)
		if err != nil {
			return Row{}, false, err
		}
		if next.Start > rel {
			break
		}
		row, ok, pos = next, true, pos+n
	}
	return row, ok, nil
}

// start returns the start address of function i.
func (s *Section) start(i int) uint64 {
	off := s.fdes + i*s.fdeSize()
	// Starts are distances: from the section, or from the field itself.
	base := s.addr
	if s.Flags&flagPCRel != 0 {
		base += uint64(off)
	}
	if s.Version == 3 {
		return base + binary.LittleEndian.Uint64(s.data[off:])
	}
	return base + uint64(int64(int32(binary.LittleEndian.Uint32(s.data[off:]))))
}
