//go:build linux && amd64

package recorder

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/record"
)

// This file does what can fail before anything runs: names of events, commands, files and servers are looked up, so
// that a typing error does not show after an hour. Nothing is sampled yet.

// plan is what a recording has found and opened before anything is recorded.
type plan struct {
	session record.Options
	program string   // of the command; "": there is none
	raw     *rawFile // nil: there is none
	sender  *sender  // nil: profiles are not sent
}

// plan checks what only the system can tell, and opens files. With an error it returns what was opened so far, which
// the caller closes.
func (r *run) plan() (p *plan, err error) {
	p = &plan{session: r.sessionOptions()}
	if err = r.opt.Sampling.events(&p.session); err != nil {
		return p, &UsageError{fmt.Errorf("--event: %w", err)}
	}
	if path := r.opt.Target.Cgroup; path != "" {
		if p.session.Target.Cgroup, err = os.Open(path); err != nil {
			return p, &Error{Name: path, Err: err}
		}
	}
	if len(r.command) > 0 {
		if p.program, err = find.Command(r.command[0], find.SearchPath()); err != nil {
			return p, &Error{Name: r.command[0], Err: err, NotRun: true}
		}
	}
	if path := r.opt.Output.recording(); path != "" {
		if p.raw, err = openRaw(path, r.title()); err != nil {
			return p, &Error{Name: path, Err: err}
		}
		p.session.Raw, p.raw.writer.Chains = p.raw.writer, r.opt.Output.chains()
	}
	if p.sender, err = r.newSender(); err != nil {
		return p, &UsageError{fmt.Errorf("--push: %w", err)}
	}
	return p, nil
}

// events finds the events, and puts the first into to.Event, the others into to.More. Without any, to.Event stays, and
// gets the period of -c. Two of one name are refused: their samples could not be told apart in a profile.
func (s *Sampling) events(to *record.Options) error {
	var list []*record.Event
	for _, event := range s.Events.List {
		name := event.Name
		e, err := record.EventByName(name)
		if err == nil && event.Filter != "" {
			err = e.SetFilter(event.Filter)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(other *record.Event) bool { return other.Name == e.Name }) {
			return fmt.Errorf("%s is named twice", name)
		}
		list = append(list, e)
	}
	if len(list) == 0 {
		list = []*record.Event{to.Event}
	}
	if s.Period > 0 {
		for _, e := range list {
			e.SetPeriod(s.Period)
		}
	}
	to.Event, to.More = list[0], list[1:]
	return nil
}

// is reports whether samples are taken at one event, of this name.
func (s *Sampling) is(name string) bool {
	return len(s.Events.List) == 1 && s.Events.List[0].Name == name
}

// occurs reports whether all events are tracepoints or probes.
func (s *Sampling) occurs() bool {
	return len(s.Events.List) > 0 &&
		!slices.ContainsFunc(s.Events.List, func(e Event) bool { return !strings.Contains(e.Name, ":") })
}

// close drops the files of a recording that has failed: none is better than an empty one.
func (p *plan) close() {
	if p.raw != nil {
		p.raw.file.Abort()
	}
}

// sessionOptions returns the settings that need no system. OnObject lets the namer read symbols of a file while the
// recording goes on, and Left makes it finish with one that is released; with inlined functions, lines or signatures
// it needs the file until the end.
func (r *run) sessionOptions() record.Options {
	names := &r.opt.Output.Names
	opt := record.Options{
		Settings: r.opt.Sampling.Settings, Labels: r.opt.Output.Labels, Samples: r.opt.Output.Format.Samples,
		Objects: r.objects, Places: r.places, OnObject: r.names.Foresee, Event: record.DefaultEvent(),
		Tables: r.tables,
		Target: record.Target{PIDs: r.opt.Target.PIDs, Some: r.opt.Target.Selection.Given(), All: r.opt.Target.All},
	}
	if r.opt.Output.chains() {
		opt.OnObject, opt.Samples = nil, false // no names
		return opt
	}
	if !names.Inline && !names.Lines && !names.Signatures { // those need the files
		opt.Left = r.names.Settle
	}
	return opt
}

// rawFile is a perf.data file: of --raw, or the output.
type rawFile struct {
	writer *record.RawWriter
	file   *output.File
}

// openRaw creates a perf.data file, for its owner alone, as perf does: copies of stacks hold data of programs. It gets
// its name when it is finished.
func openRaw(path string, command []string) (*rawFile, error) {
	file, err := output.CreateOutput(path, 0o600)
	if err != nil {
		return nil, err
	}
	return &rawFile{record.NewRawWriter(file, command), file}, nil
}

// finish completes the file. After an error the previous file stays.
func (f *rawFile) finish() error {
	if err := f.writer.Finish(); err != nil {
		f.file.Abort()
		return err
	}
	return f.file.Commit()
}
