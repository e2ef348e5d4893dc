package symbols

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ehasm/ehasm/internal/files/regular"
)

// Records of a jitdump file: enum jit_record_type of tools/perf/util/jitdump.h.
const (
	jitCodeLoad = 0
	jitCodeMove = 1
)

// Sizes of struct jitheader, jr_prefix, and of jr_code_load and jr_code_move without what all
// records begin with.
const (
	jitHeaderSize = 40
	jitPrefixSize = 16
	jitLoadSize   = 40
	jitMoveSize   = 48
)

// jitMagic is "JiTD" as a number, in the order of bytes of the processor.
const jitMagic = 0x4a695444

// JITDump reads the symbols of a jit-PID.dump file, which a run-time compiler writes, code and all:
// tools/perf/Documentation/jitdump-specification.txt. The file must belong to root or to the user.
// If pieces of code have used the same place one after the other, the last counts. A file that its
// program is still writing may end in the middle of a record. Its symbols count towards a budget.
func JITDump(path string, pid int32, budget *Budget) (*Table, error) {
	f, size, err := openOwn(path, pid)
	if errors.Is(err, regular.ErrEmpty) {
		err = fmt.Errorf("%s: %w", path, errNoJITDump)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	taken := budget.account()
	list, err := readJITDump(f, size, taken)
	if err != nil {
		taken.giveBack()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return newTable(lastAt(list), nil), nil
}

// Errors of jitdump files.
var (
	errNoJITDump  = errors.New("no jitdump file")
	errOtherOrder = errors.New("jitdump of a processor with another order of bytes")
	errJITRecord  = errors.New("jitdump record is damaged")
)

// readJITDump returns the symbols in the order in which their code was loaded.
func readJITDump(r io.ReaderAt, size int64, taken *account) (list []Symbol, err error) {
	const most = mostSymbols
	le := binary.LittleEndian
	// A record's head and a name of usual length; the code is skipped.
	buf := make([]byte, 1024)
	n, err := r.ReadAt(buf[:jitHeaderSize], 0)
	if n < jitHeaderSize {
		if err == io.EOF {
			err = errNoJITDump
		}
		return nil, err
	}
	switch le.Uint32(buf) {
	case jitMagic:
	case 0x4454694a:
		return nil, errOtherOrder
	default:
		return nil, errNoJITDump
	}
	byIndex := make(map[uint64]int) // code_index: in list
	at := int64(le.Uint32(buf[8:]))
	if at < jitHeaderSize {
		return nil, errJITRecord
	}
	for at+jitPrefixSize <= size {
		n, err := r.ReadAt(buf, at)
		if n < jitPrefixSize {
			if err == io.EOF {
				return list, nil
			}
			return nil, err
		}
		id, length := le.Uint32(buf), int64(le.Uint32(buf[4:])) // bytes of the whole record
		if length < jitPrefixSize {
			return nil, fmt.Errorf("%w at %#x", errJITRecord, at)
		}
		if at+length > size {
			return list, nil // it is being written
		}
		body := buf[jitPrefixSize:max(jitPrefixSize, min(int64(n), length))]
		switch {
		// JIT_CODE_LOAD: pid, tid, vma, code_addr, code_size, code_index, then the name and the
		// code.
		case id == jitCodeLoad && len(body) > jitLoadSize:
			addr, code, index := le.Uint64(body[16:]), le.Uint64(body[24:]), le.Uint64(body[32:])
			name, err := jitName(r, at+jitPrefixSize+jitLoadSize, length-jitPrefixSize-jitLoadSize, body[jitLoadSize:])
			if err != nil {
				return nil, err
			}
			if addr+code < addr || len(list) == most {
				break
			}
			byIndex[index] = len(list)
			list = append(list, Symbol{Start: addr, End: addr + code, Name: name})
			if !taken.add(&list[len(list)-1]) {
				return nil, errManySymbols
			}
		// JIT_CODE_MOVE: pid, tid, vma, old_code_addr, new_code_addr, code_size, code_index. The
		// old place stays named: samples taken before the move lie there.
		case id == jitCodeMove && len(body) >= jitMoveSize:
			to, code, index := le.Uint64(body[24:]), le.Uint64(body[32:]), le.Uint64(body[40:])
			if i, ok := byIndex[index]; ok && to+code >= to && len(list) < most {
				list = append(list, Symbol{Start: to, End: to + code, Name: list[i].Name})
				if !taken.add(&list[len(list)-1]) {
					return nil, errManySymbols
				}
			}
		}
		if len(list) == most {
			return nil, errManySymbols
		}
		at += length
	}
	return list, nil
}

// jitName returns the name at an offset, which ends with a zero; begin is what has been read of
// the rest of its record.
func jitName(r io.ReaderAt, at, rest int64, begin []byte) (string, error) {
	const longest = 64 << 10 // bytes
	if i := bytes.IndexByte(begin, 0); i >= 0 {
		return string(begin[:i]), nil
	}
	long := make([]byte, min(rest, longest))
	n, err := r.ReadAt(long, at)
	if err != nil && err != io.EOF {
		return "", err
	}
	name, _, _ := bytes.Cut(long[:n], []byte{0})
	return string(name), nil
}

// lastAt leaves out symbols whose place later ones have taken.
func lastAt(list []Symbol) []Symbol {
	// In the order of starts; of kept, each ends before the next begins.
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(list[a].Start, list[b].Start), cmp.Compare(a, b)) })
	var kept []int
	for _, i := range order {
		taken := false
		for len(kept) > 0 && list[kept[len(kept)-1]].End > list[i].Start {
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
	out := make([]Symbol, len(kept))
	for k, i := range kept {
		out[k] = list[i]
	}
	return out
}
