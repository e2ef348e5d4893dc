package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/unwind"
)

// NewObjects returns a set of objects. It sets Prepare of the options: objects are unwound by rows made on demand, and
// if the options say how one is compiled, by an eh_elf once that pays. What the rows need ends with ctx; the caller
// closes the objects.
func NewObjects(ctx context.Context, opt unwind.Options) *unwind.Objects {
	const atOnce = 4 << 20 // bytes, for which the analysis takes less than a second; musl's libc has 600 KB and no table
	maker := rows.New(rows.Options{Background: true, AtOnce: atOnce})
	context.AfterFunc(ctx, maker.End)
	opt.Prepare = maker.Prepare
	return unwind.NewObjects(opt)
}

// ReadProcess returns the stacks of all threads of a process, with named frames. It needs the rights of a debugger. The
// error says which right is missing, or wraps ErrNoProcess or ErrEnded. Threads that did not stop are Missing.
func ReadProcess(ctx context.Context, pid int, opt Options) (*Target, error) {
	if pid < 1 || pid > 1<<31-1 {
		return nil, fmt.Errorf("process %d: want a number from 1 to 2^31-1", pid)
	}
	vdso := func() ([]byte, error) { return procfs.VDSO("/proc/self") }
	return opt.read(ctx, true, vdso, func(opt Options) (*Target, func(), error) {
		t, end, err := readLive(ctx, int32(pid), opt)
		if err != nil {
			return nil, end, fmt.Errorf("process %d: %w", pid, err)
		}
		return t, end, nil
	})
}

// ReadCore returns the stacks of all threads of the core file at path, with named frames. executable is the program's
// file; if it is "", the core says where it was. The error wraps ErrNotCore if the file is no core. ReadCore does not
// use a file that was replaced since the core was written: stacks end at its frames.
func ReadCore(ctx context.Context, path, executable string, opt Options) (*Target, error) {
	file, err := OpenCoreFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return opt.read(ctx, false, file.VDSO, func(opt Options) (*Target, func(), error) {
		if executable != "" {
			if err := file.Use(executable, opt.Objects); err != nil {
				return nil, func() {}, fmt.Errorf("%s: %w", executable, err)
			}
		}
		t, err := file.Target(ctx, opt)
		return t, func() {}, err
	})
}

// CoreFile is a core in an open file.
type CoreFile struct {
	*Core
	io.Closer
}

// OpenCoreFile is OpenCore for the regular file at path. The caller closes it once the target is no longer read from.
func OpenCoreFile(path string) (*CoreFile, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("want a core file; it is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	core, err := OpenCore(f, st.Size())
	if err != nil {
		f.Close()
		return nil, err
	}
	return &CoreFile{core, f}, nil
}

// read names the frames of what take returns. live says that the target is a process, which exists. end, which take
// returns, also with an error, ends the use of the target's files.
func (opt Options) read(ctx context.Context, live bool, vdso func() ([]byte, error),
	take func(Options) (t *Target, end func(), err error)) (*Target, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if opt.Objects == nil {
		opt.Objects = NewObjects(ctx, unwind.Options{DebugDirs: unwind.DefaultDebugDirs(), VDSO: vdso})
		defer opt.Objects.Close()
	}
	t, end, err := take(opt)
	defer end()
	if err != nil {
		return nil, err
	}
	places := jit.NewPlaces(live, "/tmp")
	defer places.Close()
	names := symbolize.New(symbolize.Options{Inline: opt.Lines, Lines: opt.Lines, Places: places,
		DebugDirs: unwind.DefaultDebugDirs()})
	cache := names.NewCache(nil)
	for i := range t.Threads {
		t.Threads[i].name(cache, t)
	}
	for _, err := range names.Close() {
		t.Notes = append(t.Notes, err.Error())
	}
	return t, nil
}

// name sets the frames of a thread, one for each of its PCs.
func (th *Thread) name(cache *symbolize.Cache, t *Target) {
	th.Frames = make([]Frame, len(th.PCs))
	for i, f := range cache.Backtrace(t.Maps, t.PID, th.PCs) {
		th.Frames[i] = Frame{
			PC: th.PCs[i], Function: f.Name, NoSymbol: f.NoSymbol, Offset: f.OffsetOf(th.PCs[i]), Object: f.DSO, File: f.File,
			Line: f.Line,
		}
		for _, in := range f.Inlined {
			th.Frames[i].Inlined = append(th.Frames[i].Inlined, Inlined{in.Name, in.File, in.Line})
		}
	}
	for _, i := range th.Guessed {
		th.Frames[i].Guessed = true
	}
}
