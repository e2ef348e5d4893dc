package symbols

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unsafe"
)

// ErrHidden is returned where the kernel shows zeros for its addresses.
var ErrHidden = errors.New("the kernel hides its addresses (kernel.kptr_restrict)")

// Kernel is the kernel's symbols by address. A symbol ends where the next one begins. It
// does not change.
type Kernel struct {
	text  string
	lines []kernelLine
}

// kernelLine is a line of the text. There are more than 100,000, of which a recording
// needs a few: no more is made of them before they are asked for.
type kernelLine struct {
	addr uint64
	at   uint32 // of the symbol's type in the text
}

// Kallsyms reads the symbols of the running kernel: proc(5), /proc/kallsyms. Of
// several at one address the last of the file is kept, as perf does.
func Kallsyms(path string) (*Kernel, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	const usual = 40 // bytes of a line, at least
	k := &Kernel{text: text, lines: make([]kernelLine, 0, len(text)/usual)}
	some, sorted := false, true
	last := kernelLine{}
	for at := 0; at < len(text); {
		end := strings.IndexByte(text[at:], '\n') + at
		if end < at {
			end = len(text)
		}
		digits := strings.IndexByte(text[at:end], ' ')
		kind := at + digits + 1
		if digits < 0 || kind+1 >= end || text[kind+1] != ' ' || !isCodeOrData[text[kind]] {
			at = end + 1
			continue
		}
		addr, err := parseHex(text[at : at+digits])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		at = end + 1
		some = some || addr != 0
		line := kernelLine{addr, uint32(kind)}
		switch n := len(k.lines); {
		case n > 0 && last.addr == addr:
			k.lines[n-1] = line
		default:
			sorted = sorted && last.addr <= addr
			k.lines = append(k.lines, line)
		}
		last = line
	}
	if !some {
		return nil, ErrHidden
	}
	if !sorted { // with modules it is not
		slices.SortFunc(k.lines, func(a, b kernelLine) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(b.at, a.at)) })
		k.lines = slices.CompactFunc(k.lines, func(a, b kernelLine) bool { return a.addr == b.addr })
	}
	return k, nil
}

// isCodeOrData is the types of symbols that are kept: nm(1).
var isCodeOrData = func() (t [256]bool) {
	for _, c := range "TtWwDdBb" {
		t[c] = true
	}
	return t
}()

// parseHex is strconv.ParseUint for the usual: it takes a fifth of the time.
func parseHex(s string) (uint64, error) {
	const most = 16
	var v uint64
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return strconv.ParseUint(s, 16, 64)
		}
		v = v<<4 | uint64(c)
	}
	if len(s) == 0 || len(s) > most {
		return strconv.ParseUint(s, 16, 64)
	}
	return v, nil
}

// Find returns the symbol that holds addr, or nil.
func (k *Kernel) Find(addr uint64) *Symbol {
	if k == nil {
		return nil
	}
	i := sort.Search(len(k.lines), func(i int) bool { return k.lines[i].addr > addr }) - 1
	if i < 0 {
		return nil
	}
	const lastOne = 4096 // how long the last symbol is taken to be
	s := &Symbol{Start: k.lines[i].addr, End: k.lines[i].addr + lastOne}
	if i+1 < len(k.lines) {
		s.End = k.lines[i+1].addr
	}
	if addr >= s.End {
		return nil
	}
	name, _, _ := strings.Cut(k.text[k.lines[i].at+2:], "\n")
	s.Name, s.Module, _ = strings.Cut(name, "\t")
	return s
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
	size := int64(16 << 20)
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		size = min(st.Size(), maxText) + 1
	}
	b := make([]byte, 0, size)
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
