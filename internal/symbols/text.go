package symbols

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

const maxText = 512 << 20 // bytes of a text file of symbols

// ErrHidden is returned where the kernel shows zeros for its addresses.
var ErrHidden = errors.New("the kernel hides its addresses (kernel.kptr_restrict)")

// Kallsyms reads the symbols of the running kernel: proc(5), /proc/kallsyms. Of
// several at one address the last of the file is kept, as perf does.
func Kallsyms(path string) (*Table, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	// The names are parts of the text: there are hundreds of thousands.
	list := make([]Symbol, 0, strings.Count(text, "\n")+1)
	some := false
	for line := range strings.Lines(text) {
		start, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		kind, rest, ok := strings.Cut(rest, " ")
		if !ok || len(kind) != 1 || !strings.Contains("TtWwDdBb", kind) {
			continue
		}
		addr, err := strconv.ParseUint(start, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		some = some || addr != 0
		name, module, _ := strings.Cut(rest, "\t")
		list = append(list, Symbol{Start: addr, End: addr, Name: name, Module: module, rank: rankEmpty})
	}
	if !some {
		return nil, ErrHidden
	}
	byStart := func(a, b Symbol) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(list, byStart) { // with modules it is not
		slices.SortStableFunc(list, byStart)
	}
	kept := list[:0]
	for i, s := range list {
		if i+1 == len(list) || list[i+1].Start != s.Start {
			kept = append(kept, s)
		}
	}
	return extend(kept), nil
}

// KallsymsAddress returns the address of a symbol in a file like /proc/kallsyms.
// It reads up to its first appearance.
func KallsymsAddress(path, name string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxText))
	for lines.Scan() {
		if start, ok := strings.CutSuffix(lines.Text(), " "+name); ok {
			start, _, _ = strings.Cut(start, " ")
			return strconv.ParseUint(start, 16, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s: no symbol %s", path, name)
}

// readText reads a file of symbols.
func readText(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// /proc/kallsyms has no size, and 5 to 15 MB. What is not used of this costs
	// nothing; growing would cost as much as parsing.
	b := make([]byte, 0, 16<<20)
	for r := io.LimitReader(f, maxText); ; {
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return unsafe.String(unsafe.SliceData(b), len(b)), nil // nothing writes to b any more
		}
		if err != nil {
			return "", err
		}
	}
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
