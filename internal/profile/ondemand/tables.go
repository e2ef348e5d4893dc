package ondemand

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/unwind"
)

// This file keeps the tables by which the kernel unwinds beside the eh_elfs of the user's cache. They say which memory
// a BPF program reads, so a file that another user can have written is not used.

// Tables returns the tables by which the kernel unwinds an object: those of the user's cache or, if wanted, such that
// are made now, proven to mean its rows. They have the rows that EhElf compiles, but for rows made from the code of
// large files. Both results are nil if the cache has none, and none are wanted.
func (d *Maker) Tables(ctx context.Context, o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) {
	file, size, err := o.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	object, err := dwarfcfa.NewFile(o.Name, file, size)
	if err != nil {
		return nil, err
	}
	return d.tables(ctx, object, wanted, d.opt.Keep && d.believed(object.Name(), pathOf(object, file)))
}

// KeepTables adds to the user's cache the tables by which the kernel unwinds an object, unless they are there, or
// cannot be made.
func KeepTables(ctx context.Context, object *dwarfcfa.File) {
	New(Options{}).tables(ctx, object, true, true)
}

// tables is Tables; keep adds what is made to the cache.
func (d *Maker) tables(ctx context.Context, object *dwarfcfa.File, wanted, keep bool) (*bpfunwind.Tables, error) {
	opt := d.code()
	if object.FileSize() > rows.LargestMade { // its code without rows is for walks of copies
		opt.Synth = compile.SynthOff
	}
	how := fmt.Sprintf("%s %s %x", compile.Release, opt.OfTable(), object.DebugFrameHash())
	if ts := d.cachedTables(object, how); ts != nil || !wanted {
		return ts, nil
	}
	table, err := compile.NewTable(ctx, object, opt, compile.Target{Mapped: true})
	if err != nil {
		return nil, err
	}
	ts, err := bpfunwind.Make(table.Table)
	if err == nil && keep {
		d.keepTables(object, table, ts, how)
	}
	return ts, err
}

// tablesPath returns where the user's cache has an object's tables; "": nowhere.
func (d *Maker) tablesPath(object *dwarfcfa.File) string {
	folder, err := builder.CacheFolder(os.Getenv)
	name := builder.TablesName(object)
	if err != nil || name == "" || !d.opt.Usual() {
		return ""
	}
	return filepath.Join(folder, name)
}

// cachedTables returns the tables of the cache if no other user can have written them, and this release made them from
// the object.
func (d *Maker) cachedTables(object *dwarfcfa.File, how string) *bpfunwind.Tables {
	path := d.tablesPath(object)
	if path == "" {
		return nil
	}
	f, err := input.OpenTrusted(path) // they say which memory is read
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCached))
	if err != nil {
		return nil
	}
	from, ts, err := bpfunwind.ParseFile(b)
	if err != nil || from.Made != how || from.Note.Check(object.File()) != nil {
		return nil
	}
	return ts
}

// keepTables writes tables to the cache. Without it they are made again the next time; FillCache tells why nothing is
// kept.
func (d *Maker) keepTables(object *dwarfcfa.File, table *compile.Table, ts *bpfunwind.Tables, how string) {
	path := d.tablesPath(object)
	content, _, err := object.Content(table.Report, func(func(dwarfcfa.Addr) bool) {})
	if path == "" || err != nil || len(content) == 0 || builder.MakeCache(filepath.Dir(path)) != nil {
		return
	}
	note := abi.Note{Version: abi.Version, BuildID: object.BuildID(), FileSize: uint64(object.FileSize()),
		Content: content}
	output.WriteFile(path, ts.AppendFile(nil, bpfunwind.Origin{Note: note, Made: how}), 0o600)
}

// code returns the options of what is compiled meanwhile: packed, which is made sooner than a tree.
func (d *Maker) code() compile.Options {
	opt := compile.Options{Dispatch: compile.Packed, Synth: compile.SynthMissing, Source: d.opt.Source}
	if d.opt.TablesOnly {
		opt.Synth = compile.SynthOff
	}
	return opt
}
