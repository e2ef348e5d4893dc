//go:build linux && amd64

package recorder

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
)

// This file ends a recording: profile, summary, hints. The samples exist only in this process, so whatever fails here
// is reported and the rest is tried.

// write writes the profile and the files that go with it, and reports success. raw is nil if there is no perf.data
// file. It closes the session and the objects: nothing is recorded or unwound afterwards.
func (r *run) write(raw *rawFile) bool {
	begin := time.Now()
	c, opt := r.c, r.opt
	whole := true
	if raw != nil {
		defer r.signals.guard(raw.file)()
		if err := raw.finish(); err != nil {
			c.Fail(opt.Output.recording(), err)
			whole = !opt.Output.chains()
		}
	}
	// after the profile: names need the files that it keeps open
	defer r.session.Close()
	defer r.objects.Close()
	if opt.Run.Every > 0 {
		r.parts.finish()
		stats := &r.parts.all
		stats.Writing = r.parts.took.Load()
		r.tellLost(stats.Lost)
		if stats.Samples == 0 {
			r.tellNothing(stats.Lost)
		}
		r.tellRest(stats)
		return true // errors are reported where they occur
	}
	p := r.session.Take()
	if r.parts != nil {
		p = r.parts.last(p)
		r.session.Rest()
	}
	if r.top != nil {
		p = record.Join(append(r.top.all, p))
	}
	p.Command = r.title()
	shown := r.top != nil && !opt.Output.Named
	switch {
	case !opt.Output.chains():
		whole = shown || r.writeProfile(p)
	case whole:
		r.tellWritten()
	}
	took := time.Since(begin)
	if !opt.Run.Quiet {
		p.Text(c.Stderr())
	}
	r.tellLost(p.Counts.Lost)
	if p.Counts.Samples == 0 && !shown && (r.parts == nil || r.parts.all.Samples == 0) {
		r.tellNothing(p.Counts.Lost)
	}
	r.tellRest(p.Stats(took))
	return whole
}

// tellRest reports what names lack, and writes the file of --stats. Names end with it.
func (r *run) tellRest(stats *record.Stats) {
	c, opt := r.c, r.opt
	for _, text := range r.names.Nameless() {
		if !opt.Run.Quiet {
			c.Note("", errors.New(text))
		}
	}
	for _, w := range r.names.Close() {
		if !opt.Run.Quiet {
			c.Note("", w)
		}
	}
	if opt.Output.Stats != "" {
		if err := output.WriteStats(opt.Output.Stats, output.PermText, stats, c.Stderr()); err != nil {
			c.Fail(opt.Output.Stats, err)
		}
	}
}

// writable reports whether the output can be written, before anything runs. A file system that is full later is
// another matter: see writeProfile.
func (opt *Options) writable() error {
	if (opt.Run.Every > 0 || opt.Run.Top) && !opt.Output.Named {
		return nil // profiles are sent, or shown
	}
	if opt.Run.Every > 0 {
		return ondemand.WritableFolder(opt.Output.Path)
	}
	return output.Writable(opt.Output.Path)
}

// writeProfile writes the profile to the output, or if that fails, to the folder for
// temporary files, so that it is not lost.
func (r *run) writeProfile(p *record.Profile) bool {
	c, path := r.c, r.opt.Output.Path
	err := r.writeTo(p, path)
	if err == nil {
		r.tellWritten()
		return true
	}
	c.Fail(path, err)
	if path == "-" {
		return false
	}
	// In a new folder: others could have put a link at a predictable name.
	dir, err := os.MkdirTemp("", "ehasm-")
	if err != nil {
		c.Fail(os.TempDir(), err)
		return false
	}
	spare := filepath.Join(dir, filepath.Base(path))
	if err := r.writeTo(p, spare); err != nil {
		c.Fail(spare, err)
		os.Remove(dir)
	} else {
		c.Note(spare, errors.New("the profile is here instead"))
	}
	return false
}

// tellWritten says how to view the output.
func (r *run) tellWritten() {
	if path := r.opt.Output.Path; !r.opt.Run.Quiet && path != "-" {
		r.c.Note(path, errors.New(r.opt.Output.Format.HowToLook(output.Name(path))))
	}
}

// writeTo writes a profile with the recording's names.
func (r *run) writeTo(p *record.Profile, path string) error {
	return r.writeNamed(p, path, r.names)
}

// writeNamed writes a profile with names that are asked of namer. The file appears under its name once it is whole. It
// is safe for concurrent use with different namers.
func (r *run) writeNamed(p *record.Profile, path string, namer *symbolize.Namer) error {
	out, err := output.New(path, output.PermText, r.c.Stdout())
	if err != nil {
		return err
	}
	file := out.File()
	if file != nil {
		defer r.signals.guard(file)()
	}
	if err := p.Write(out, r.newFormat(), r.opt.Output.Format.Samples, namer); err != nil {
		if file != nil {
			file.Abort()
		}
		return err
	}
	return out.Finish()
}

// newFormat returns the output's format.
func (r *run) newFormat() stackfmt.Format {
	names := &r.opt.Output.Names
	return r.opt.Output.Format.New(stackfmt.Options{Inline: names.Inline, Lines: names.Lines,
		NoComm: !r.opt.Output.Labels.Has(labels.Comm)})
}
