package dwarfcfa

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// The table of a real object says at each raw row's start what the raw row
// says, but for what normalising changes: defaults, and same value for a save
// slot below rsp.
func TestTableAgainstRawRows(t *testing.T) {
	for _, path := range testtool.Sweep([]string{"/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6"}) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if _, err := os.Stat(path); err != nil {
				t.Skip("needs", path)
			}
			o, err := Open(path)
			require.NoError(t, err)
			defer o.Close()
			table, rep, err := BuildTable(o, BuildOptions{Strict: true})
			require.NoError(t, err)
			require.NoError(t, table.Verify())
			require.Zero(t, rep.Entries.OutsideCode+rep.Entries.Shadowed+rep.Entries.Clipped)
			s, err := o.Section(SourceAuto)
			require.NoError(t, err)
			in := NewInterp()
			rows := 0
			for e, err := range s.Entries() {
				require.NoError(t, err)
				if e.FDE == nil {
					continue
				}
				raws, err := in.Rows(e.FDE)
				require.NoError(t, err)
				for i := range raws {
					rows++
					checkNormalised(t, table, in, &raws[i])
				}
			}
			assert.Equal(t, rep.Rows.Ranges, rows)
		})
	}
}

func checkNormalised(t *testing.T, table *Table, in *Interp, raw *RawRow) {
	for _, pc := range []Addr{raw.Start, raw.End - 1} {
		r, ok := table.Lookup(pc)
		require.True(t, ok, "%#x", uint64(pc))
		row := &table.Rows[r.Row]
		if ra := raw.Row.Regs[abi.RIP].Kind; ra == RuleUndefined || ra == RuleUnspecified {
			require.Equal(t, endOfStackRow(), *row)
			continue
		}
		require.Equal(t, raw.Row.Flags, row.Flags)
		if cfa := raw.Row.CFA; cfa.Kind == CFARegOffset {
			require.Equal(t, cfa, row.CFA, "%#x", uint64(pc))
		} else if row.CFA.Kind == CFAExpr {
			want, err := in.Expr(cfa.Expr)
			require.NoError(t, err)
			require.Equal(t, want, table.Exprs[row.CFA.Expr].Raw)
		}
		for i, got := range row.Regs {
			want := raw.Row.Regs[i]
			switch {
			case want.Kind == RuleUnspecified:
				want = defaultRule(i)
			case want.Kind == RuleExpression || want.Kind == RuleValExpression:
				if got.Expr != 0 {
					bytes, _ := in.Expr(want.Expr)
					require.Equal(t, bytes, table.Exprs[got.Expr].Raw)
				}
				continue
			case want.Kind == RuleOffset && got.Kind == RuleSameValue:
				require.True(t, row.CFA.Kind == CFARegOffset && row.CFA.Reg == abi.RSP, "%#x", uint64(pc))
				require.Less(t, row.CFA.Offset+want.Offset, int64(0), "%#x", uint64(pc))
				continue
			}
			if want != got { // millions are equal
				require.Equal(t, want, got, "%#x: %s", uint64(pc), abi.RegName(i))
			}
		}
	}
}
