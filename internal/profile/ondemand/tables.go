package ondemand

import (
	"context"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/unwind"
)

// Tables makes the tables by which the kernel unwinds an object, proven to mean its rows: those that EhElf compiles, but for
// rows made from the code of large files.
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
	opt := d.code()
	if size > rows.LargestMade { // its code without rows is for walks of copies
		opt.Synth = compile.SynthOff
	}
	table, err := compile.NewTable(ctx, object, opt, compile.Target{Mapped: true})
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
