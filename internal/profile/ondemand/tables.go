package ondemand

import (
	"context"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/unwind"
)

// Tables makes the tables by which the kernel unwinds an object, proven to mean its rows: those that EhElf compiles.
func (d *Maker) Tables(ctx context.Context, o *unwind.Object) (*bpfunwind.Tables, error) {
	file, size, err := o.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	object, err := dwarfcfa.NewObject(o.Name, file, size)
	if err != nil {
		return nil, err
	}
	table, err := compile.NewTable(ctx, object, d.code(), compile.Target{Mapped: true})
	if err != nil {
		return nil, err
	}
	return bpfunwind.Make(table.Table)
}

// code returns the options of what is compiled meanwhile.
func (d *Maker) code() compile.Options {
	opt := compile.Options{Dispatch: compile.Packed, Synth: compile.SynthMissing, Source: d.opt.Source}
	if d.opt.TablesOnly {
		opt.Synth = compile.SynthOff
	}
	return opt
}
