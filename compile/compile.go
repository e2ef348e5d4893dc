package compile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/sites"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/prove"
)

// This file runs the stages from tables to a proven file.

// Target says what becomes of an object. The zero value is a proven file beside it.
type Target struct {
	// Name is the file's name without abi.Suffix; "" means the object's base name.
	Name string
	// Object is the object's own name where Name is another, as in a cache; it goes into the build note.
	Object string
	// Mapped says that a process has the object mapped: it gets a file even if it has no rows.
	Mapped bool
	// Strict fails if an FDE or a row cannot be compiled, instead of leaving it out.
	Strict bool
	// Unproven leaves out the proof.
	Unproven bool
	// Transient is for files that this process alone uses: they do not say which object they are for.
	Transient bool
}

// Result is an eh_elf in memory. Image.WriteFile writes it, and ehelf.FromBytes loads it. The file is complete: its
// bytes do not depend on where it is written.
type Result struct {
	Image   *elfout.Image
	Stats   Stats
	Details []error // what Stats.Losses counts
}

// Object makes the eh_elf of an object. The error wraps what dwarfcfa.NewFile and dwarfcfa.BuildTable document, is
// ctx.Err(), or says at which place of the file the proof failed.
func Object(ctx context.Context, object *dwarfcfa.File, opt Options, target Target) (*Result, error) {
	table, err := NewTable(ctx, object, opt, target)
	if err != nil {
		return nil, err
	}
	return table.Compile(ctx, Identify(object, opt, target))
}

// Table is the table that an eh_elf must mean, with what is known of its object.
type Table struct {
	*dwarfcfa.Table
	Report *dwarfcfa.Report // what was read, and what was left out

	object *dwarfcfa.File
	opt    Options
}

// NewTable makes the table of an object: the rows of its FDEs, and of its code if asked for. Of target, Mapped and
// Strict count.
func NewTable(ctx context.Context, object *dwarfcfa.File, opt Options, target Target) (*Table, error) {
	rows, err := synth.Of(object, synth.Options{Mode: opt.Synth, Wrong: check.WrongRows})
	if err = firstError(ctx, err); err != nil {
		return nil, err
	}
	table, found, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{
		Source: opt.Source, Strict: target.Strict, AllowEmpty: target.Mapped, Made: rows.Made(object.Name()),
	})
	if err = firstError(ctx, err); err != nil {
		return nil, err
	}
	return &Table{Table: table, Report: found, object: object, opt: opt}, nil
}

// Compile makes the file that id names, and proves it unless its target says not to. On an error there is no Result,
// though the file may have been made: what is not proven does not leave this function.
func (t *Table) Compile(ctx context.Context, id *Identity) (*Result, error) {
	source, err := t.source(ctx, id)
	if err != nil {
		return nil, err
	}
	// The figures are known before the code: the build note in the file has them.
	res := &Result{Stats: newStats(t.Report, t.Table), Details: details(t.Report)}
	res.Stats.Verified = !id.target.Unproven
	source.Build = id.note(res.Stats)
	layout := Layout{
		Dispatch: t.opt.Dispatch, NoDeref: t.opt.NoDeref, Tables: res.Stats.TableBytes, Calls: t.object.Calls(),
	}
	image, code, err := layout.Build(t.Table, source)
	if err = firstError(ctx, err); err != nil {
		return nil, err
	}
	res.Image = image
	res.Stats.CodeBytes = int64(len(code.Text) + len(code.Data))
	res.Stats.Layout = layoutName(code.Packed)
	if res.Stats.Verified {
		if _, err := prove.Image(image.Bytes(), t.Table); err != nil {
			// A defect of ehasm, not of the object. It must not become a file.
			return nil, fmt.Errorf("verification: %w", err)
		}
	}
	return res, nil
}

// source returns what the file says of its object, and the encoded sites. The notes about the build are missing. The
// error is ErrNoContent if no part of the object's image identifies it.
func (t *Table) source(ctx context.Context, id *Identity) (elfout.Source, error) {
	source := elfout.Source{
		Name: filepath.Base(id.name()), BuildID: t.object.BuildID(), FileSize: t.object.FileSize(), Relro: t.opt.Relro,
		HasSites: t.hasSites(),
	}
	table, err := t.sites()
	if err = firstError(ctx, err); err != nil {
		return source, err
	}
	if !id.target.Transient {
		var sites bool
		source.Content, sites, err = t.object.Content(t.Report, table.LSDAs())
		if err == nil && len(source.Content) == 0 {
			err = ErrNoContent
		}
		if err = firstError(ctx, err); err != nil {
			return source, err
		}
		source.HasSites = source.HasSites && sites // otherwise nothing tells what the LSDAs say
	}
	if source.HasSites && table != nil {
		source.Sites, err = table.Encode()
	}
	return source, firstError(ctx, err)
}

// encodedSites returns the sites as the file has them; they are empty where no function needs one.
func (t *Table) encodedSites() ([]byte, error) {
	table, err := t.sites()
	if err != nil || table == nil {
		return nil, err
	}
	return table.Encode()
}

// ErrNoContent is returned for an object whose eh_elf no reader would accept.
var ErrNoContent = errors.New(
	"its tables and its code are in segments that may be written, or are relocated: nothing identifies it")

// hasSites reports whether the file has a table for exceptions. Objects whose rows are of .sframe, which says nothing
// of them, have none.
func (t *Table) hasSites() bool { return !t.opt.NoExceptions && t.Report.Source != dwarfcfa.SFrameName }

// sites returns the table for exceptions, nil where no function needs one. The error is of the sections: an LSDA that
// can't be read is none.
func (t *Table) sites() (*sites.Table, error) {
	if !t.hasSites() || len(t.Ranges) == 0 {
		return nil, nil
	}
	sections, err := t.object.Sections(t.opt.Source)
	if len(sections) == 0 {
		if errors.Is(err, dwarfcfa.ErrNoUnwindInfo) { // all rows are made
			err = nil
		}
		return nil, err
	}
	table, _ := sites.Build(t.object, sections)
	return table, nil
}

// firstError returns err or, if there is none, that the work was interrupted.
func firstError(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}
