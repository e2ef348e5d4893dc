package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/prove"
)

// This file proves files that exist already, of a cache or from another host.

// errSites says that the file is right but for exceptions.
var errSites = errors.New("its table for exceptions is not the object's")

// Proof is what Prove found.
type Proof struct {
	prove.Result
	Options Options       // by the build note; those that the table depends on
	Time    time.Duration // of the proof alone
}

// Prove proves that an existing eh_elf means the tables of its object, with the options of its build note, and that its
// table for exceptions is the object's. Errors: elfout.ErrNotEhElf, abi.ErrMismatch for another object's file, those of
// NewTable, and of the proof, with the place.
func Prove(ctx context.Context, image []byte, object *dwarfcfa.File) (p Proof, err error) {
	info, err := elfout.ReadInfo(bytes.NewReader(image))
	if err != nil {
		return p, err
	}
	if err := info.Note.Check(object.File()); err != nil {
		return p, fmt.Errorf("it was not made from %s: %w", object.Name(), err)
	}
	if p.Options, err = parseOptions(info.Build); err != nil {
		return p, err
	}
	// Mapped: a file without rows is right for a table without rows.
	table, err := NewTable(ctx, object, p.Options, Target{Mapped: true})
	if err != nil {
		return p, err
	}
	begin := time.Now() // the time of the proof is without the making of the table
	p.Result, err = prove.Image(image, table.Table)
	p.Time = time.Since(begin)
	if err != nil {
		return p, err
	}
	return p, table.sameSites(image)
}

// ErrOther says that a file may be right, but is not the one that Table.Compile would make.
var ErrOther = errors.New("made by another release of ehasm, with other options, or of another file")

// Accept returns the figures of an eh_elf that others have made, if it may take the place of the one that Compile would
// make: its notes are the same, and it is proven. Nothing of it is believed.
func (t *Table) Accept(image []byte, id *Identity) (Stats, error) {
	info, err := elfout.ReadInfo(bytes.NewReader(image))
	if err != nil {
		return Stats{}, err
	}
	stats := newStats(t.Report, t.Table)
	stats.Verified = true
	if !id.Current(info) || !slices.Equal(info.Build, id.note(stats)) || info.Soname != id.name()+abi.Suffix {
		return Stats{}, ErrOther
	}
	if _, err := prove.Image(image, t.Table); err != nil {
		return Stats{}, fmt.Errorf("not proven: %w", err)
	}
	if err := t.sameSites(image); err != nil {
		return Stats{}, err
	}
	if !elfout.OwnBuildID(image, info.BuildID) { // or it could pass for any other file, in caches and for debuginfod
		return Stats{}, errors.New("its own build-id does not match its bytes")
	}
	stats.CodeBytes, stats.Layout = info.TextSize+info.DataSize, StatsOf(info).Layout
	return stats, nil
}

// Bytes returns how many bytes the tables have that were read.
func (t *Table) Bytes() int64 { return t.Report.SectionSize + t.Report.HdrSize }

// sameSites compares the image's table for exceptions with the one that Compile makes.
func (t *Table) sameSites(image []byte) error {
	got, has, err := prove.Sites(image)
	if err != nil || !has { // without the flag, readers ask the object's own tables
		return err
	}
	if !t.hasSites() {
		return errSites
	}
	want, err := t.encodedSites()
	if err == nil && !bytes.Equal(got, want) {
		err = errSites
	}
	return err
}
