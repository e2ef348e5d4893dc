package symbols

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ehasm/ehasm/internal/files/input"
)

// Records of a jitdump file: enum jit_record_type of tools/perf/util/jitdump.h.
const (
	jitCodeLoad   = 0
	jitCodeMove   = 1
	jitCodeUnwind = 4
)

// Sizes of struct jitheader, jr_prefix, and of jr_code_load, jr_code_move and jr_code_unwinding_info
// without what all records begin with.
const (
	jitHeaderSize = 40
	jitPrefixSize = 16
	jitLoadSize   = 40
	jitMoveSize   = 48
	jitUnwindSize = 24
)

// jitMagic is "JiTD" as a number, in the order of bytes of the processor.
const jitMagic = 0x4a695444

// JITDump reads the symbols of a jit-PID.dump file, which a run-time compiler writes, code and all:
// tools/perf/Documentation/jitdump-specification.txt. The file must belong to root or to the user.
// If pieces of code have used the same place one after the other, the last counts. A file that its
// program is still writing may end in the middle of a record. Its symbols count towards a budget.
func JITDump(w Written, budget *Budget) (*Table, error) {
	f, size, err := w.open()
	if errors.Is(err, input.ErrEmpty) {
		err = fmt.Errorf("%s: %w", w.Name, errNoJITDump)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	taken := budget.account()
	list, err := readJITDump(f, size, taken)
	if err != nil {
		taken.giveBack()
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	return newTable(lastAt(list), nil), nil
}

// Errors of jitdump files.
var (
	errNoJITDump  = errors.New("no jitdump file")
	errOtherOrder = errors.New("jitdump of a processor with another order of bytes")
	errJITRecord  = errors.New("jitdump record is damaged")
)

// readJITDump returns the symbols in the order in which their code was loaded. Too many of them are an error, not a
// part of them: names would be missing at random.
func readJITDump(r io.ReaderAt, size int64, taken *account) (list []Symbol, err error) {
	le := binary.LittleEndian
	offset, err := jitStart(r)
	if err != nil {
		return nil, err
	}
	byIndex := make(map[uint64]int) // code_index: in list
	add := func(addr, code uint64, name string) error {
		// an end beyond the last address is damage
		if addr+code < addr || len(list) == mostSymbols {
			return nil
		}
		list = append(list, Symbol{Start: addr, End: addr + code, Name: name})
		if !taken.add(&list[len(list)-1]) {
			return errManySymbols
		}
		return nil
	}
	_, err = eachJITRecord(r, offset, size, func(rec *jitRecord) error {
		body := rec.body
		switch {
		case rec.id == jitCodeLoad && len(body) > jitLoadSize:
			name, err := jitName(r, rec.offset+jitPrefixSize+jitLoadSize, rec.length-jitPrefixSize-jitLoadSize,
				body[jitLoadSize:])
			if err != nil {
				return err
			}
			n := len(list)
			if err := add(le.Uint64(body[16:]), le.Uint64(body[24:]), name); err != nil {
				return err
			}
			if len(list) > n {
				byIndex[le.Uint64(body[32:])] = n
			}
		// JIT_CODE_MOVE: pid, tid, vma, old_code_addr, new_code_addr, code_size, code_index. The
		// old place stays named: samples taken before the move lie there.
		case rec.id == jitCodeMove && len(body) >= jitMoveSize:
			if i, ok := byIndex[le.Uint64(body[40:])]; ok {
				return add(le.Uint64(body[24:]), le.Uint64(body[32:]), list[i].Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// jitName returns the name at an offset, which ends with a zero; begin is what has been read of
// the rest of its record.
func jitName(r io.ReaderAt, offset, rest int64, begin []byte) (string, error) {
	const longest = 64 << 10 // bytes
	if i := bytes.IndexByte(begin, 0); i >= 0 {
		return string(begin[:i]), nil
	}
	long := make([]byte, min(rest, longest))
	n, err := r.ReadAt(long, offset)
	if err != nil && err != io.EOF {
		return "", err
	}
	name, _, _ := bytes.Cut(long[:n], []byte{0})
	return string(name), nil
}

// lastAt leaves out symbols whose place later ones have taken.
func lastAt(list []Symbol) []Symbol {
	return lastOf(list, func(s *Symbol) (start, end uint64) { return s.Start, s.End })
}

// lastOf leaves out ranges whose place later ones have taken, wholly or in part: compilers free code and use its
// memory again. The result ascends, and its ranges do not overlap. It takes n log n steps: a hostile file has
// millions.
func lastOf[T any](list []T, of func(*T) (start, end uint64)) []T {
	starts := make([]uint64, len(list))
	ends := make([]uint64, len(list))
	// In the order of starts; of kept, each ends before the next begins.
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
		starts[i], ends[i] = of(&list[i])
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(starts[a], starts[b]), cmp.Compare(a, b)) })
	var kept []int
	for _, i := range order {
		taken := false
		for len(kept) > 0 && ends[kept[len(kept)-1]] > starts[i] {
			if kept[len(kept)-1] > i { // a later symbol has the place
				taken = true
				break
			}
			kept = kept[:len(kept)-1] // its place is taken: it is left out
		}
		if !taken {
			kept = append(kept, i)
		}
	}
	out := make([]T, len(kept))
	for k, i := range kept {
		out[k] = list[i]
	}
	return out
}
