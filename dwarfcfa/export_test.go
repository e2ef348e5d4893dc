package dwarfcfa

import (
	"testing"

	"github.com/ehasm/ehasm/sframe"
)

// What the tests of package convert's sections, which are not in this package, take from its tests.
var (
	CompareRows    = compareRows
	CompareObjdump = compareObjdump
	GSFrame        = gsframe
	SFrameTable    = sframeTable
	EndOfStackRow  = endOfStackRow
	DefaultRule    = defaultRule
)

// SFrameObjects returns the objects that the flag names.
func SFrameObjects() string { return *sframeObjects }

// RowsOf makes the table of a section of an object.
func RowsOf(t testing.TB, s *sframe.Section, o *File) *Table {
	t.Helper()
	table, _, err := buildSource(&sframeSource{s: s}, codeImage{segments: o.code}, BuildOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// RowAt looks a row up.
func (t *LazyTable) RowAt(pc Addr) (*Row, []Expr) { return t.rowAt(pc) }

// RowAt looks a row up.
func (t *Table) RowAt(pc Addr) (*Row, []Expr) { return t.rowAt(pc) }
