package symbols

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ehasm/ehasm/internal/files/pages"
)

// This file reads /proc/kallsyms, and copies of it: lines of an address, a type, a name and perhaps a module. Addresses
// are indexed; a name is read when its symbol is asked for.

// ErrHidden is returned if the kernel shows zeros for its addresses.
var ErrHidden = errors.New("the kernel hides its addresses (kernel.kptr_restrict)")

// Kernel holds the kernel's symbols by address. A symbol ends where the next one begins.
// It does not change. There are more than 100,000 symbols, of which a recording needs a
// few, so names stay in the text.
type Kernel struct {
	text  string
	pages []byte       // that text lies in, where it is mapped
	lines []kernelLine // ascending

	all *allSymbols // where the text lacks the symbols of modules; else nil
}

// kernelLine is a line of the text.
type kernelLine struct {
	addr   uint64
	offset uint32
}

// Kallsyms reads the symbols of the running kernel: proc(5), /proc/kallsyms. Of
// several at one address the last of the file is kept, as perf does.
func Kallsyms(path string) (*Kernel, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readKernel(f, "")
}

// readKernel reads the symbols of a file. The error is errStale if it does not begin with head.
func readKernel(f *os.File, head string) (*Kernel, error) {
	text, pages, err := mapText(f)
	if err != nil {
		return nil, err
	}
	k := &Kernel{text: text, pages: pages}
	if !strings.HasPrefix(text, head) {
		err = errStale
	} else if err = k.index(); err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// index finds the lines of the text. The text may be a mapped file: if that shrinks, reads fault (SIGBUS), which
// SetPanicOnFault makes a panic.
func (k *Kernel) index() (err error) {
	defer func() {
		if p := recover(); p != nil { // the file has become shorter
			err = fmt.Errorf("%v", p)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	const usual = 40 // bytes of a line, at least
	k.lines = make([]kernelLine, 0, len(k.text)/usual)
	some, sorted := false, true // modules are in the order of their loading, BPF programs after them
	for start, next := 0, 0; start < len(k.text); start = next {
		var kind int
		kind, next = splitLine(k.text, start)
		if kind < 0 {
			continue
		}
		addr, err := parseHex(k.text[start : kind-1])
		if err != nil {
			return err
		}
		some = some || addr != 0
		line := kernelLine{addr, uint32(start)}
		if n := len(k.lines); n > 0 && addr <= k.lines[n-1].addr {
			if addr == k.lines[n-1].addr {
				k.lines[n-1] = line
				continue
			}
			sorted = false
		}
		k.lines = append(k.lines, line)
	}
	if !some {
		return ErrHidden
	}
	if !sorted {
		slices.SortFunc(k.lines, func(a, b kernelLine) int {
			return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(b.offset, a.offset))
		})
		k.lines = slices.CompactFunc(k.lines, func(a, b kernelLine) bool { return a.addr == b.addr })
	}
	return nil
}

// Close frees the text. Find must not be called after it.
func (k *Kernel) Close() {
	if k != nil {
		k.all.close()
		pages.Unmap(k.pages)
	}
}

// splitLine returns where the type of the symbol is in the line that begins at start, -1 if the
// line has none that is kept, and where the next line begins.
func splitLine(text string, start int) (kind, next int) {
	kind = start + 17
	if kind+2 > len(text) || text[kind-1] != ' ' { // no 16 digits
		kind = start + strings.IndexByte(text[start:], ' ') + 1
	}
	next = len(text)
	if n := strings.IndexByte(text[start:], '\n'); n >= 0 {
		next = start + n + 1
	}
	if kind == start || kind+1 >= next || text[kind+1] != ' ' || !isCodeOrData[text[kind]] {
		return -1, next
	}
	return kind, next
}

// isCodeOrData is the types of symbols that are kept: nm(1).
var isCodeOrData = func() (t [256]bool) {
	for _, c := range "TtWwDdBb" {
		t[c] = true
	}
	return t
}()

// parseHex is strconv.ParseUint with a fast path that takes a fifth of the
// time.
func parseHex(s string) (uint64, error) {
	const most = 16 // digits of 64 bits
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

// Find returns the symbol that holds addr, or nil. It is safe for concurrent use, and returns nil for all addresses
// once the file has become shorter. k may be nil.
func (k *Kernel) Find(addr uint64) (s *Symbol) {
	if k == nil {
		return nil
	}
	// a copy ends with the kernel: code of modules and BPF programs lies behind its last symbol
	if k.all != nil && addr >= k.lines[len(k.lines)-1].addr {
		return k.all.get().Find(addr)
	}
	i := sort.Search(len(k.lines), func(i int) bool { return k.lines[i].addr > addr }) - 1
	if i < 0 {
		return nil
	}
	defer func() {
		if recover() != nil { // the file has become shorter
			s = nil
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	start := int(k.lines[i].offset)
	s = &Symbol{Start: k.lines[i].addr, End: k.lines[i].addr + 4096} // the last one, whose end is not known
	if i+1 < len(k.lines) {
		s.End = k.lines[i+1].addr
	}
	if addr >= s.End {
		return nil
	}
	kind, next := splitLine(k.text, start)
	name, _, _ := strings.Cut(k.text[kind+2:next], "\n")
	s.Name, s.Module, _ = strings.Cut(strings.Clone(name), "\t")
	return s
}

// mapText maps a file of symbols, or reads it: /proc/kallsyms cannot be mapped. The second result is to be unmapped;
// nil: the text is in the heap.
func mapText(f *os.File) (string, []byte, error) {
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() > 0 && st.Size() <= maxText {
		b, err := pages.Map(f, 0, int(st.Size()))
		if err == nil {
			return unsafe.String(unsafe.SliceData(b), len(b)), b, nil
		}
	}
	return readText(f)
}

// KallsymsAddress returns the address of a symbol in a file like /proc/kallsyms; it is 0 if the kernel hides it. It
// reads up to its first appearance: the usual reference, _text, is among the first lines.
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

// readText reads a file of symbols into memory that only Kernel.Close frees, and not into the heap, of whose size it
// would be a large part. /proc/kallsyms has no size, and 5 to 15 MB.
func readText(f *os.File) (text string, kept []byte, err error) {
	const usual = 16 << 20 // what is not used of this costs nothing
	if kept, err = pages.Reserve(usual); err != nil {
		kept = nil
	}
	b := kept[:0]
	for r := io.LimitReader(f, maxText); ; {
		// more than usual: on in the heap
		if len(b) == cap(b) {
			b = slices.Grow(b, max(len(b), usual))
			pages.Unmap(kept)
			kept = nil
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return unsafe.String(unsafe.SliceData(b), len(b)), kept, nil // nothing writes to b any more
		}
		if err != nil {
			pages.Unmap(kept)
			return "", nil, err
		}
	}
}
