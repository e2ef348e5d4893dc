package stacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/debuginfod"
	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// Options say whose stacks are taken, how, and as what they are written.
type Options struct {
	Processes  Selection // if there is no core
	Core       string    // a file; "-": standard input; "": none
	Executable string    // of the core, if it has moved; "": where it was

	Names      symbolize.Options
	Pointers   unwind.FramePointers
	MaxFrames  int           // of a stack; 0: stack.MaxFrames
	Consistent bool          // all threads at one moment
	Watch      time.Duration // between rounds; 0: one round
	Rounds     int           // with Watch; 0: until the context ends

	Format *stackfmt.Spec // nil: text
	Merge  *bool          // equal stacks, in text; nil: those of more than ManyThreads threads
	// Fetch returns the path of a file with this build-id, "" if there is none; nil: no server is asked.
	Fetch func(buildID []byte, kind debuginfod.Kind) (string, error)
}

// Selection chooses processes.
type Selection struct {
	PIDs     []int
	Name     *regexp.Regexp // of more processes; nil: none
	Every    bool           // all that the user may look at, and no PIDs or Name
	Children bool           // also the children of the chosen ones, and theirs
}

// Console takes what is said besides the stacks.
type Console interface {
	Fail(name string, err error) // something has failed
	Note(name string, err error) // something that is no failure
}

// ManyThreads is the number of threads above which equal stacks are merged by default.
const ManyThreads = 20

// Run writes stacks to out, and reports whether there were any. It tells c of failures, but for those of out.Write,
// which out remembers. When ctx ends, it shows what it has.
func Run(ctx context.Context, opt *Options, out *output.Output, c Console) (any bool) {
	r := &run{Options: opt, c: c, out: out, event: Event()} // the event is for formats of samples
	if opt.Format != nil {
		r.format = opt.Format.New(stackfmt.Options{Inline: opt.Names.Inline, Lines: opt.Names.Lines})
	}
	if r.Core == "" {
		any = r.ofProcesses(ctx)
	} else if err := r.ofCore(ctx); err != nil {
		c.Fail(r.coreName(), err)
	} else {
		any = true
	}
	if any && r.format != nil {
		rec := stackfmt.Recording{Command: []string{"stacks"}, Events: []*stackfmt.Event{r.event}, Objects: r.seen,
			Start: time.Now()}
		if err := r.format.Finish(out, &rec); err != nil && !out.Failed() {
			c.Fail("stacks", err)
		}
	}
	return any
}

// run is what one call of Run does.
type run struct {
	*Options
	c   Console
	out *output.Output

	format stackfmt.Format // nil: text
	event  *stackfmt.Event
	seen   []*unwind.Object // objects of all sources so far
}

// source is where the objects and names of a process or core come from. One serves all processes of a call, which
// share most libraries.
type source struct {
	objects *unwind.Objects
	names   *symbolize.Namer   // of objects
	cache   *symbolize.Cache   // of frames
	worker  stackfmt.Worker    // nil: text
	stop    context.CancelFunc // ends compiling in the background
}

// open makes a source, which is live if it is of processes: names of code made at run time are then read from where
// the process has its /tmp. vdso returns the vDSO that the stacks were made with: a core brings its own.
func (r *run) open(ctx context.Context, live bool, vdso func() ([]byte, error)) *source {
	compiling, stop := context.WithCancel(ctx)
	s := &source{stop: stop}
	opt := unwind.Options{DebugDirs: unwind.DefaultDebugDirs(), VDSO: vdso}
	names := r.Names
	names.Prototypes = prototypes.NewKernel(prototypes.KernelDir)
	names.Places, names.DebugDirs = jit.NewPlaces(live, "/tmp"), opt.DebugDirs
	if fetch := r.Fetch; fetch != nil {
		opt.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.Executable) }
		names.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.DebugInfo) }
	}
	s.objects = stack.NewObjects(compiling, opt)
	s.names = symbolize.New(names)
	if r.format == nil {
		s.cache = s.names.NewCache(nil)
	} else {
		s.worker = r.format.Worker()
		s.cache = s.names.NewCache(s.worker.Render)
	}
	return s
}

// close ends the use of a source, and reports what was not as it should be. A file that is gone needs no word: the
// frames in it say so. Its objects stay valid: formats name them at the end.
func (r *run) close(s *source, name string) {
	s.stop()
	for _, err := range s.names.Close() {
		r.c.Note(name, err)
	}
	for _, o := range s.objects.All() {
		if err := o.Err(); err != nil && o.Needed() && !errors.Is(err, unwind.ErrNoFile) && o.IsFile() {
			r.c.Note(o.Name, err)
		}
	}
	r.seen = append(r.seen, s.objects.All()...)
}

// how returns how stacks are taken.
func (r *run) how(s *source) stack.Options {
	return stack.Options{Objects: s.objects, FramePointers: r.Pointers, MaxFrames: r.MaxFrames}
}

// add names the stacks of a target, into the groups of the text or into the format.
func (r *run) add(s *source, groups *Groups, t *stack.Target) {
	list := make([]symbolize.Stack, len(t.Threads))
	for i := range t.Threads {
		list[i] = symbolize.Stack{Maps: t.Maps, PCs: t.Threads[i].PCs}
	}
	s.names.ForeseePlaces(list)
	if r.format == nil {
		groups.Add(t)
		return
	}
	Samples(t, s.cache, r.event, func(sample *stackfmt.Sample) { r.out.Write(s.worker.Add(nil, sample)) })
}

// write writes the groups as text and a target's notes.
func (r *run) write(name string, groups *Groups, t *stack.Target) {
	if r.format == nil {
		r.out.Write(groups.Text(nil, t, r.Consistent)) // the output reports errors
	}
	for _, note := range t.Notes {
		r.c.Note(name, errors.New(note))
	}
}

// merged reports whether equal stacks of a target are written once: by the flag, else where a list would be long.
func (r *run) merged(t *stack.Target) bool {
	if r.Merge != nil {
		return *r.Merge
	}
	return r.Watch > 0 || len(t.Threads) > ManyThreads
}

// coreName is how messages name the core.
func (r *run) coreName() string {
	if r.Core == "-" {
		return "standard input"
	}
	return r.Core
}

// ofCore writes the stacks of the core.
func (r *run) ofCore(ctx context.Context) error {
	open := func() (*stack.CoreFile, error) { return stack.OpenCoreFile(r.Core) }
	if r.Core == "-" {
		open = func() (*stack.CoreFile, error) { return stack.OpenCorePipe(os.Stdin) }
	}
	core, err := open()
	if err != nil {
		return err
	}
	defer core.Close()
	s := r.open(ctx, false, core.VDSO)
	defer r.close(s, r.coreName())
	if r.Executable != "" {
		if err := core.Use(r.Executable, s.objects); err != nil {
			return fmt.Errorf("EXECUTABLE %s: %w", output.Name(r.Executable), err)
		}
	}
	t, err := core.Target(ctx, r.how(s))
	if err != nil {
		return err
	}
	groups := NewGroups(s.cache, r.merged(t))
	r.add(s, groups, t)
	r.write(r.coreName(), groups, t)
	return nil
}
