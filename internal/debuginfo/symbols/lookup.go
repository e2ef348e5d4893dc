package symbols

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// Lookup returns the functions of an ELF file with this name, as the file has it or demangled without parameters, at
// distinct link-time addresses, ascending. It reads .symtab and .dynsym; of versions of a symbol, the default one
// counts, to which a program linked today is bound. None is no error. It is for probes, which name a function once: it
// searches all symbols.
func Lookup(f *elf.File, name string) (list []elf.Symbol, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			list, err = nil, fmt.Errorf("debug/elf: %v", p)
		}
	}()
	static, _ := f.Symbols() // without a table there are none
	dynamic, _ := f.DynamicSymbols()
	all := slices.Concat(static, dynamic)
	last := name[strings.LastIndexByte(name, ':')+1:] // C++ and Rust: mangled names have the parts of a name
	for _, is := range []func(string) bool{
		func(s string) bool { return s == name },
		func(s string) bool { return strings.Contains(s, last) && Demangle(s) == name },
	} {
		for _, s := range all {
			function := elf.ST_TYPE(s.Info) == elf.STT_FUNC || elf.ST_TYPE(s.Info) == elf.STT_GNU_IFUNC ||
				elf.ST_TYPE(s.Info) == elf.STT_NOTYPE
			if function && s.Section != elf.SHN_UNDEF && is(s.Name) && !(s.HasVersion && s.VersionIndex.IsHidden()) {
				list = append(list, s)
			}
		}
		if len(list) > 0 {
			break
		}
	}
	slices.SortStableFunc(list, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	return slices.CompactFunc(list, func(a, b elf.Symbol) bool { return a.Value == b.Value }), nil
}
