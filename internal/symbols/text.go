package symbols

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

const maxText = 512 << 20 // bytes of a text file of symbols

// ErrHidden is returned where the kernel shows zeros for its addresses.
var ErrHidden = errors.New("the kernel hides its addresses (kernel.kptr_restrict)")

// Kallsyms reads the symbols of the running kernel: proc(5), /proc/kallsyms. Of
// several at one address the last of the file is kept, as perf does.
func Kallsyms(path string) (*Table, error) {
	b, err := readBounded(path, maxText)
	if err != nil {
		return nil, err
	}
	var list []Symbol
	some := false
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 3 || len(f[1]) != 1 {
			continue
		}
		if bytes.IndexByte([]byte("TtWwDdBb"), f[1][0]) < 0 {
			continue
		}
		addr, err := strconv.ParseUint(string(f[0]), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		some = some || addr != 0
		s := Symbol{Start: addr, End: addr, Name: string(f[2]), rank: rankEmpty}
		if len(f) > 3 {
			s.Module = string(f[3])
		}
		list = append(list, s)
	}
	if !some {
		return nil, ErrHidden
	}
	slices.SortStableFunc(list, func(a, b Symbol) int { return cmp.Compare(a.Start, b.Start) })
	kept := list[:0]
	for i, s := range list {
		if i+1 == len(list) || list[i+1].Start != s.Start {
			kept = append(kept, s)
		}
	}
	return extend(kept), nil
}

// PerfMap reads the symbols that a run-time compiler has written for perf:
// tools/perf/Documentation/jit-interface.txt. The file must belong to root or
// to the user, as for perf: anyone may write to the folder it lies in.
func PerfMap(path string) (*Table, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.Mode().IsRegular() || sys.Uid != 0 && sys.Uid != uint32(os.Geteuid()) && os.Geteuid() != 0 {
		return nil, fmt.Errorf("%s: not a file of this user", path)
	}
	b, err := readBounded(path, maxText)
	if err != nil {
		return nil, err
	}
	var list []Symbol
	for line := range bytes.Lines(b) {
		start, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		size, name, ok := bytes.Cut(rest, []byte(" "))
		s, err1 := strconv.ParseUint(string(bytes.TrimPrefix(start, []byte("0x"))), 16, 64)
		n, err2 := strconv.ParseUint(string(bytes.TrimPrefix(size, []byte("0x"))), 16, 64)
		if !ok || err1 != nil || err2 != nil || s+n < s {
			continue
		}
		list = append(list, Symbol{Start: s, End: s + n, Name: string(name)})
	}
	return newTable(list), nil
}
