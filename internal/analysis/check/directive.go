package check

import (
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// directive returns the directive of the GNU assembler that makes a row say what the code did; "" if none is known. It
// is a hint that people read, and what fix.go puts into sources.
func directive(w *wrong, row *dwarfcfa.Row, s *codeflow.State) string {
	switch w.kind {
	case KindCFA:
		// A CFA in memory needs an expression, which no directive but .cfi_escape gives.
		reg, off, ok := s.CFA()
		if !ok {
			return ""
		}
		// The shorter one, if the row's register is right.
		if row.CFA.Kind == dwarfcfa.CFARegOffset && row.CFA.Reg < 16 && hardware[row.CFA.Reg] == reg {
			return fmt.Sprintf(".cfi_def_cfa_offset %d", off)
		}
		return fmt.Sprintf(".cfi_def_cfa %%%s, %d", x86.Reg(reg), off)
	case KindSaved, KindClobbered:
		name := "%" + regName(w.reg)
		switch where := s.Saved(w.reg); where.Kind {
		case codeflow.Same:
			return ".cfi_same_value " + name
		case codeflow.AtCFA:
			return fmt.Sprintf(".cfi_offset %s, %d", name, where.Off)
		case codeflow.InReg:
			return fmt.Sprintf(".cfi_register %s, %%%s", name, x86.Reg(where.Reg))
		// No unwinder can restore it any more; undefined says that, and same value would be a lie.
		case codeflow.Lost:
			return ".cfi_undefined " + name
		}
	}
	return ""
}
