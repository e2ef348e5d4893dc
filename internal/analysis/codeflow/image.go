package codeflow

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/files/elffile"
)

// This file holds what the analysis knows of a file besides its code: segments, symbols, relocations, PLTs. It answers
// two questions: what is at an address, and what may an address be (a function, a label, a part, a PLT entry).

// Image is an ELF file as loaded at bias 0: its segments with relative relocations applied, and what symbol names say
// about its code.
type Image struct {
	segs     []segment
	sections []section       // executable ones
	starts   map[uint64]bool // function symbols
	exported map[uint64]bool // functions that other files may call
	parts    map[uint64]bool // symbols of parts of functions that have no type: clang's .__part.N
	relText  map[uint64]bool // addresses of code that relative relocations store
	relAt    []stored        // the same, by place
	labels   map[uint64]bool // of these, labels rather than functions
	called   callees
	symbols  []Symbol
	goText   struct{ lo, hi uint64 } // the functions that the Go linker placed
	foreign  []span                  // V8's builtins
	entry    uint64
	lo, hi   uint64 // of executable segments
}

// callees is what is known of functions that are called through words of data, or through the PLT.
type callees struct {
	noReturn map[uint64]bool   // functions that never return, by name
	noRetGOT map[uint64]bool   // words that get the address of one
	gotOwn   map[uint64]uint64 // functions of the file whose address a word gets by name, by word
	own      map[uint64]uint64 // the same by PLT entry
	ownHi    uint64            // the PLTs with them lie below it
	exitsIf  map[uint64]bool   // PLT entries of functions that end the process if their first argument is not 0
	exitsGOT map[uint64]bool   // words that get the address of one
}

// Symbol is a function symbol.
type Symbol struct {
	Addr, Size uint64
	Name       string
}

// stored is a word of memory that holds an address of code.
type stored struct{ addr, code uint64 }

type segment struct {
	lo, hi uint64
	data   []byte // nil if pieces hold it
	pieces *pieces
	exec   bool
}

type section struct {
	name   string
	lo, hi uint64
}

// maxSpan bounds the address range of an image's code, and maxLoad the bytes read. The small and medium code models
// reach 2 GB (psABI §3.5.1), so 4 GB leave no real file out; a header alone can claim more.
const (
	maxSpan = 4 << 30
	maxLoad = 4 << 30
)

// NewImage reads an ELF file. Symbols and relocations that can't be read count as none. The image reads constants when
// it needs them, so r must stay valid as long as the image is in use.
func NewImage(r io.ReaderAt) (img *Image, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf on hostile headers
			err = fmt.Errorf("codeflow: %v", p)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, err
	}
	img = &Image{starts: map[uint64]bool{}, exported: map[uint64]bool{}, parts: map[uint64]bool{},
		relText: map[uint64]bool{}, entry: f.Entry, lo: ^uint64(0), called: callees{
			noReturn: map[uint64]bool{}, noRetGOT: map[uint64]bool{},
			gotOwn: map[uint64]uint64{}, own: map[uint64]uint64{}, exitsIf: map[uint64]bool{}, exitsGOT: map[uint64]bool{},
		}}
	if err := img.load(f, r); err != nil {
		return nil, err
	}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_PROGBITS && s.Size > 0 {
			img.sections = append(img.sections, section{s.Name, s.Addr, s.Addr + s.Size})
		}
	}
	sort.Slice(img.sections, func(i, j int) bool { return img.sections[i].lo < img.sections[j].lo })
	if !entered(f) {
		img.entry = 0
	}
	dyn, _ := f.DynamicSymbols()
	img.addSymbols(dyn)
	if st, err := f.Symbols(); err == nil {
		img.addSymbols(st)
	}
	slices.SortStableFunc(img.symbols, func(a, b Symbol) int { return cmp.Compare(a.Addr, b.Addr) })
	for rel, err := range elffile.Relocs(f) {
		if err != nil {
			break
		}
		img.relocate(rel, dyn)
	}
	img.plts()
	img.findForeign()
	img.findLabels()
	return img, nil
}

// load reads the segments. Code and data that relocations change are read whole; read-only data, often most of a
// file, in pieces when a jump table needs them. The bounds are against headers that claim more than the file has.
func (img *Image) load(f *elf.File, r io.ReaderAt) error {
	var total uint64
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 {
			continue
		}
		total += p.Filesz
		if total > maxLoad || p.Vaddr+p.Filesz < p.Vaddr {
			return fmt.Errorf("segments of %d bytes and more", total)
		}
		if p.Flags&(elf.PF_X|elf.PF_W) == 0 {
			if q := newPieces(r, p.Off, p.Filesz); q != nil {
				img.segs = append(img.segs, segment{lo: p.Vaddr, hi: p.Vaddr + p.Filesz, pieces: q})
				continue
			}
		}
		data, err := readAll(r, p.Off, p.Filesz)
		if err != nil {
			return fmt.Errorf("segment at %#x: %w", p.Vaddr, err)
		}
		s := segment{lo: p.Vaddr, hi: p.Vaddr + uint64(len(data)), data: data, exec: p.Flags&elf.PF_X != 0}
		img.segs = append(img.segs, s)
		if s.exec {
			img.lo, img.hi = min(img.lo, s.lo), max(img.hi, s.hi)
		}
	}
	if img.hi > img.lo && img.hi-img.lo > maxSpan {
		return fmt.Errorf("code spans %d bytes", img.hi-img.lo)
	}
	if img.hi == 0 {
		img.lo = 0
	}
	return nil
}

// readAll reads n bytes in pieces, so that a size beyond the file's end allocates nothing.
func readAll(r io.ReaderAt, off, n uint64) ([]byte, error) {
	const piece = 16 << 20
	var out []byte
	for n > 0 {
		k := min(n, piece)
		first := len(out)
		if out == nil {
			out = make([]byte, 0, min(n, 1<<30))
		}
		out = slices.Grow(out, int(k))[:first+int(k)]
		got, err := r.ReadAt(out[first:], int64(off)+int64(first))
		if got < int(k) {
			if err == io.EOF {
				return out[:first+got], nil
			}
			return nil, err
		}
		n -= k
	}
	return out, nil
}

// addSymbols notes what symbols say of code: where functions begin, which other objects may call, which never return,
// and where compilers have split off parts. A part's symbol begins no function: control comes to it with a frame.
func (img *Image) addSymbols(ss []elf.Symbol) {
	for _, s := range ss {
		t := elf.ST_TYPE(s.Info)
		if t == elf.STT_NOTYPE && s.Section != elf.SHN_UNDEF && partName(s.Name) {
			img.parts[s.Value] = true
		}
		if s.Value == 0 || s.Section == elf.SHN_UNDEF || t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC {
			continue
		}
		switch s.Name { // the Go linker brackets its functions; C functions that it links follow
		case "runtime.text":
			img.goText.lo = s.Value
			continue
		case "runtime.etext":
			img.goText.hi = s.Value
			continue
		}
		img.symbols = append(img.symbols, Symbol{s.Value, s.Size, s.Name})
		if v := elf.ST_VISIBILITY(s.Other); elf.ST_BIND(s.Info) != elf.STB_LOCAL &&
			(v == elf.STV_DEFAULT || v == elf.STV_PROTECTED) {
			img.exported[s.Value] = true
		}
		if img.Code(s.Value) != nil && !partName(s.Name) {
			img.starts[s.Value] = true
		}
		if neverReturns(s.Name) {
			img.called.noReturn[s.Value] = true
		}
	}
}

// relocate applies a relative relocation, and notes names and addresses of code. Symbol 0 and others outside of dyn
// count as none.
func (img *Image) relocate(r elffile.Reloc, dyn []elf.Symbol) {
	if sym := uint64(r.Symbol); sym > 0 && sym <= uint64(len(dyn)) {
		name := dyn[sym-1].Name
		if neverReturns(name) {
			img.called.noRetGOT[r.Addr] = true
		} else if (r.Type == elf.R_X86_64_JMP_SLOT || r.Type == elf.R_X86_64_GLOB_DAT) && img.starts[dyn[sym-1].Value] {
			img.called.gotOwn[r.Addr] = dyn[sym-1].Value
		}
		if name == "error" || name == "error_at_line" {
			img.called.exitsGOT[r.Addr] = true
		}
		return
	}
	if r.Type != elf.R_X86_64_RELATIVE && r.Type != elf.R_X86_64_IRELATIVE {
		return
	}
	b := img.at(r.Addr, 8)
	// DT_RELR and relocations without an addend have it in the word itself.
	if r.InFile && b != nil {
		r.Addend = binary.LittleEndian.Uint64(b)
	}
	if img.Code(r.Addend) != nil {
		img.relText[r.Addend] = true
		img.relAt = append(img.relAt, stored{r.Addr, r.Addend})
	}
	if b != nil {
		binary.LittleEndian.PutUint64(b, r.Addend)
	}
}

// plts finds the PLT entries of functions that never return, or that return only sometimes, and of those in the file.
// An entry ends with a jump.
func (img *Image) plts() {
	for _, s := range img.sections {
		if !strings.HasPrefix(s.name, ".plt") {
			continue
		}
		var in x86.Inst
		for pc, start := s.lo, s.lo; pc < s.hi; {
			if x86.Decode(img.Code(pc), &in) != nil {
				break
			}
			next := pc + uint64(in.Len)
			if in.Op == x86.OpJMP || pc == start && padding(&in) {
				a, _ := in.MemAddr(pc)
				if img.called.noRetGOT[a] {
					img.called.noReturn[start] = true
				} else if img.called.exitsGOT[a] {
					img.called.exitsIf[start] = true
				} else if to := img.called.gotOwn[a]; to != 0 {
					img.called.own[start], img.called.ownHi = to, max(img.called.ownHi, next)
				}
				start = next
			}
			pc = next
		}
	}
}

// through returns where a jump or call to t goes: through a PLT, to the function of the file that the loader is likely
// to choose.
func (img *Image) through(t uint64) uint64 {
	if t < img.called.ownHi {
		if to := img.called.own[t]; to != 0 {
			return to
		}
	}
	return t
}

// Code returns the bytes from a on of the executable segment that holds a, or
// nil if none does.
func (img *Image) Code(a uint64) []byte {
	for i := range img.segs {
		if s := &img.segs[i]; s.exec && a >= s.lo && a < s.hi {
			return s.data[a-s.lo:]
		}
	}
	return nil
}

// at returns n bytes from a on, at most 8, and what else is there; nil if they are not in the file.
func (img *Image) at(a, n uint64) []byte {
	for i := range img.segs {
		if s := &img.segs[i]; a >= s.lo && a < s.hi && s.hi-a >= n {
			if s.pieces != nil {
				return s.pieces.at(a - s.lo)
			}
			return s.data[a-s.lo:]
		}
	}
	return nil
}

// word returns the 8 bytes at a link-time address, after relative relocations; false if the file has none there.
func (img *Image) word(a uint64) (uint64, bool) {
	b := img.at(a, 8)
	if b == nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// half returns the 4 bytes at a link-time address, as jump tables have them: signed, from the table's own address on.
func (img *Image) half(a uint64) (int32, bool) {
	b := img.at(a, 4)
	if b == nil {
		return 0, false
	}
	return int32(binary.LittleEndian.Uint32(b)), true
}

// SectionOf returns the name of the executable section that holds a, empty if none does.
func (img *Image) SectionOf(a uint64) string {
	i := sort.Search(len(img.sections), func(i int) bool { return img.sections[i].hi > a })
	if i < len(img.sections) && img.sections[i].lo <= a {
		return img.sections[i].name
	}
	return ""
}

// IsGo reports whether the code at a was compiled by Go, as far as symbols tell. Go's ABIInternal has no registers that
// a callee keeps but rsp and rbp (cmd/compile's abi-internal.md).
func (img *Image) IsGo(a uint64) bool { return img.goText.lo <= a && a < img.goText.hi }

// Symbol returns the function symbol that holds a; ok is false if there is none. Symbols may nest and overlap; eight
// before a are looked at, which covers aliases.
func (img *Image) Symbol(a uint64) (Symbol, bool) {
	i := sort.Search(len(img.symbols), func(i int) bool { return img.symbols[i].Addr > a })
	for k := i - 1; k >= 0 && k > i-8; k-- {
		if s := img.symbols[k]; a < s.Addr+s.Size || s.Size == 0 && k == i-1 {
			return s, true
		}
	}
	return Symbol{}, false
}

// Executable calls yield with each executable section's range, or segment's if there are no sections.
func (img *Image) Executable(yield func(name string, lo, hi uint64)) {
	for _, s := range img.sections {
		yield(s.name, s.lo, s.hi)
	}
	if len(img.sections) == 0 {
		for _, s := range img.segs {
			if s.exec {
				yield("", s.lo, s.hi)
			}
		}
	}
}

// functionAlign is what compilers and authors of assembly align functions to, in bytes, but for -Os.
const functionAlign = 16

// findLabels finds, among the addresses of code that relocations store, those of labels, to which a function jumps
// through a table: they lie side by side with others of which one at least is aligned as no function is. Those of
// functions that are not aligned count as labels, too.
func (img *Image) findLabels() {
	slices.SortFunc(img.relAt, func(a, b stored) int { return cmp.Compare(a.addr, b.addr) })
	img.labels = map[uint64]bool{}
	for i := 0; i < len(img.relAt); {
		k, odd := i, false
		for ; k < len(img.relAt) && img.relAt[k].addr == img.relAt[i].addr+8*uint64(k-i); k++ {
			odd = odd || img.relAt[k].code%functionAlign != 0 && !img.starts[img.relAt[k].code]
		}
		for ; i < k; i++ {
			if a := img.relAt[i].code; odd && !img.starts[a] {
				img.labels[a] = true
			}
		}
	}
	img.relAt = nil
}

// Labels calls yield with addresses that relocations store and that are likely to be labels in functions.
func (img *Image) Labels(yield func(addr uint64)) {
	for a := range img.labels {
		yield(a)
	}
}

// Pointers calls yield with code addresses that relative relocations store (including init arrays), which are those of
// functions.
func (img *Image) Pointers(yield func(addr uint64)) {
	for a := range img.relText {
		if !img.labels[a] {
			yield(a)
		}
	}
}

// pointed reports whether a relocation stores the address of a function at a.
func (img *Image) pointed(a uint64) bool { return img.relText[a] && !img.labels[a] }

// Starts calls yield with addresses at which functions are known to begin: symbols, the entry point. They come in no
// order; some may come twice.
func (img *Image) Starts(yield func(addr uint64)) {
	for a := range img.starts {
		yield(a)
	}
	if img.Code(img.entry) != nil {
		yield(img.entry)
	}
}

// Exported reports whether other files may call the function at a.
func (img *Image) Exported(a uint64) bool { return img.exported[a] }

// StartsWithin returns the addresses in (lo, hi) at which symbols say that functions begin, ascending.
func (img *Image) StartsWithin(lo, hi uint64) (list []uint64) {
	i := sort.Search(len(img.symbols), func(i int) bool { return img.symbols[i].Addr > lo })
	for ; i < len(img.symbols) && img.symbols[i].Addr < hi; i++ {
		if a := img.symbols[i].Addr; img.starts[a] && (len(list) == 0 || list[len(list)-1] != a) {
			list = append(list, a)
		}
	}
	return list
}

// NeverReturns reports whether the function at addr, or the one that a PLT entry there leads to, never returns, judging
// by its name.
func (img *Image) NeverReturns(addr uint64) bool { return img.called.noReturn[addr] }

// entered reports whether the kernel or a loader enters the file at its entry point. In a shared object without a
// function _start, ld puts the beginning of .text there, whatever that is.
func entered(f *elf.File) bool {
	if f.Type == elf.ET_EXEC || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return true
	}
	if flags, err := f.DynValue(elf.DT_FLAGS_1); err == nil && len(flags) == 1 &&
		elf.DynFlag1(flags[0])&elf.DF_1_PIE != 0 {
		return true
	}
	text := f.Section(".text")
	return text != nil && text.Addr != f.Entry
}

// Entry returns the entry point, or 0 if the file has none.
func (img *Image) Entry() uint64 { return img.entry }

// neverReturns reports whether a function of that name ends the process, throws or jumps
// elsewhere.
func neverReturns(name string) bool {
	name, _, _ = strings.Cut(name, "@")
	switch name {
	case "abort", "exit", "_exit", "_Exit", "quick_exit", "thrd_exit", "pthread_exit", "__stack_chk_fail",
		"__fortify_fail", "__chk_fail", "__libc_fatal",
		"__assert_fail", "__assert", "__assert_perror_fail", "err", "errx", "verr", "verrx", "longjmp", "_longjmp",
		"siglongjmp", "__longjmp_chk",
		"__libc_start_main", "__libc_start_call_main", "_dl_signal_error", "_dl_fatal_printf",
		"__cxa_throw", "__cxa_rethrow", "__cxa_bad_cast", "__cxa_bad_typeid", "__cxa_throw_bad_array_new_length",
		"__cxa_pure_virtual", "__cxa_deleted_virtual",
		"__cxa_call_unexpected", "__cxa_call_terminate", "__clang_call_terminate", "_ZSt9terminatev", "_ZSt10unexpectedv",
		"_Unwind_Resume",
		"rust_begin_unwind", "g_assertion_message", "g_assertion_message_expr", "g_assertion_message_cmpnum",
		"_ZN2v88internal8V8_FatalEPKcz", "_Z8V8_FatalPKcz",
		"caml_raise", "caml_raise_exn", "caml_raise_exception": // OCaml's, whose ret leads to a handler
		return true
	}
	if rest, ok := strings.CutPrefix(name, "runtime."); ok { // Go's: a recovered panic goes on elsewhere
		switch rest {
		case "gopanic", "throw", "fatal", "fatalthrow", "fatalpanic", "goexit1":
			return true
		}
		return strings.HasPrefix(rest, "goPanic") || strings.HasPrefix(rest, "panic") &&
			!strings.HasPrefix(rest, "panicCheck") && !strings.Contains(rest, ".")
	}
	return strings.HasPrefix(name, "_ZSt") && strings.Contains(name, "__throw_")
}

// partName reports whether a symbol names a part of a function that was moved elsewhere: GCC's and clang's .cold,
// BOLT's .warm and .cold.N, clang's .__part.N.
func partName(name string) bool {
	return strings.Contains(name, ".cold") || strings.Contains(name, ".warm") || strings.Contains(name, ".__part.")
}
