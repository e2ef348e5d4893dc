package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

const maxText = 512 << 20 // bytes of a text file of symbols

// ErrHidden is returned where the kernel shows zeros for its addresses.
var ErrHidden = errors.New("the kernel hides its addresses (kernel.kptr_restrict)")

// Kallsyms reads the functions of the running kernel: proc(5), /proc/kallsyms.
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
		var rank uint8
		switch f[1][0] {
		case 'T':
		case 't':
			rank = rankLocal
		case 'W', 'w':
			rank = rankWeak
		default:
			continue
		}
		addr, err := strconv.ParseUint(string(f[0]), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		some = some || addr != 0
		s := Symbol{Start: addr, End: addr, Name: string(f[2]), rank: rank}
		if len(f) > 3 {
			s.Module = string(f[3])
		}
		list = append(list, s)
	}
	if !some {
		return nil, ErrHidden
	}
	return newTable(list), nil
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
