package compile

import (
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/sites"
)

// Plan returns the plan of a table, in the layout that opt asks for, for ehasm dump.
func Plan(t *dwarfcfa.Table, opt Options) (*plan.Plan, error) {
	return plan.Build(t, plan.Options{Dispatch: opt.Dispatch})
}

// Code returns the machine code of a plan, for ehasm dump.
func Code(p *plan.Plan, opt Options) (*asmgen.Code, error) {
	return asmgen.Assemble(p, asmgen.Options{NoDeref: opt.NoDeref})
}

// Sites returns an object's table for exceptions as decoded from its encoding, for ehasm dump, and what it leaves out; nil
// if the object has no tables.
func Sites(object *dwarfcfa.Object, opt Options) (table *sites.Table, leftOut []error, err error) {
	sections, err := object.Sections(opt.Source)
	if len(sections) == 0 {
		return nil, nil, err
	}
	built, report, err := sites.Build(object, sections)
	if err != nil {
		return nil, nil, err
	}
	b, err := built.Encode()
	if err != nil {
		return nil, nil, err
	}
	if table, err = sites.Decode(b); err != nil {
		return nil, nil, err
	}
	copy(table.Personalities, built.Personalities) // with their names
	return table, report.Details, nil
}
