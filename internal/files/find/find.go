// Package find turns the arguments of a build into the list of objects to
// compile: files, folders, what the dynamic loader would add, what a process
// has mapped, and the kernel's vDSO. It reads file systems and /proc, runs
// nothing, and opens only regular files.
package find

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/input"
)

// Options says what to add to the paths.
type Options struct {
	Deps   bool   // every object that the dynamic loader would load for them
	VDSO   bool   // the running kernel's vDSO
	PIDs   []int  // everything that these processes have mapped executable
	Loader Loader // for Deps
	// Archives says that static libraries in folders are inputs, too.
	Archives bool
}

// Input is one object to compile. It has a name for each way it was found;
// links of both kinds lead to one Input.
type Input struct {
	Path  string // to open; used if Data is nil
	Data  []byte // the image, if it was read from memory
	Size  int64
	Names []Name // the first is the one to write, the others get links to it
	Given bool   // named as a file by the caller, so that it is a failure if it cannot be compiled
	// Mapped says that a process maps the object, or would: it was found by
	// Options.PIDs or Options.Deps; with Deps the given files count, too.
	Mapped bool

	// Weight estimates the bytes of unwind tables, so that the work can be planned.
	Weight int64
}

// Name is a name of an Input.
type Name struct {
	Path string // as it was found, for messages
	Rel  string // under an output folder, without suffix
	Next string // without an output folder, without suffix: as a rule Path
	// Also marks names that were not requested: links from the name asked for
	// lead to it, so that /proc/PID/maps has it, or it is the DT_SONAME.
	Also bool
	link bool // a symbolic link
}

// Target returns the path of the eh_elf for this name. dir is the output
// folder; "": none.
func (n Name) Target(dir string) string {
	if dir == "" {
		return n.Next + abi.Suffix
	}
	return filepath.Join(dir, n.Rel) + abi.Suffix
}

// Skip is a file of a folder that is not an input.
type Skip struct {
	Path   string
	Reason string
}

// Reasons of a Skip.
const (
	ReasonNotELF     = "not an ELF file"
	ReasonEhElf      = "an eh_elf"
	ReasonNotRegular = "not a regular file"
	ReasonDangling   = "dangling symbolic link"
	ReasonFolderLink = "symbolic link to a folder"
)

// Problem is an input that was asked for and cannot be found or read; Err does
// not name Path.
type Problem struct {
	Path string
	Err  error
}

// Result is the result of Find.
type Result struct {
	Inputs   []*Input // in order of first mention
	Skipped  []Skip
	Problems []Problem
	Notes    []Problem // worth a line, but no failure
}

// Open opens the object for reading. The file is checked to be a regular one.
func (in *Input) Open() (r io.ReaderAt, size int64, closer func() error, err error) {
	if in.Data != nil {
		return bytes.NewReader(in.Data), int64(len(in.Data)), func() error { return nil }, nil
	}
	return OpenFile(in.Path)
}

// OpenFile opens a file for reading if it is a regular one. It opens nothing
// else, since a FIFO would wait for its writer.
func OpenFile(path string) (r io.ReaderAt, size int64, closer func() error, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, 0, nil, err
	}
	if st.IsDir() {
		return nil, 0, nil, errors.New("is a folder")
	}
	if !st.Mode().IsRegular() {
		return nil, 0, nil, errors.New(kind(st.Mode()))
	}
	f, err := openRegular(path)
	if err != nil {
		return nil, 0, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, nil, err
	}
	return f, info.Size(), f.Close, nil
}

// Find collects the inputs. It stops early, with what it has, when ctx ends.
func Find(ctx context.Context, paths []string, opt Options) *Result {
	f := &finder{ctx: ctx, inputs: make(map[fileID]*Input), archives: opt.Archives}
	for _, path := range paths {
		f.argument(path)
	}
	if opt.Deps {
		f.dependencies(opt.Loader)
	}
	for _, pid := range opt.PIDs {
		f.process(pid)
	}
	if opt.VDSO {
		if in := f.vdso(VDSOName, "/proc/self"); in != nil { // which is the running kernel's
			in.Given = true
		}
	}
	for _, in := range f.res.Inputs {
		in.chooseName()
	}
	return &f.res
}

// finder collects a Result.
type finder struct {
	ctx      context.Context // ends the search
	res      Result
	inputs   map[fileID]*Input // to find other names of the same file
	archives bool              // Options.Archives
}

// problem adds a Problem.
func (f *finder) problem(path string, err error) {
	f.res.Problems = append(f.res.Problems, Problem{path, err})
}

// skip adds a Skip.
func (f *finder) skip(path, reason string) {
	f.res.Skipped = append(f.res.Skipped, Skip{path, reason})
}

// argument adds a file, or the files of a folder. A symbolic link given as an
// argument is followed.
func (f *finder) argument(path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		f.problem(path, withoutPath(err))
	case info.IsDir():
		f.folder(path, path)
	case strings.HasSuffix(path, abi.Suffix):
		f.skip(path, ReasonEhElf)
	case !info.Mode().IsRegular():
		f.problem(path, errors.New(kind(info.Mode())))
	default:
		f.add(path, filepath.Base(path), info).Given = true
	}
}

// folder adds the files below dir, an argument being the folder it was reached
// from. Links to folders are not followed, so that the walk ends.
func (f *finder) folder(argument, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		f.problem(dir, withoutPath(err))
	}
	for _, e := range entries {
		if f.ctx.Err() != nil {
			return
		}
		path := filepath.Join(dir, e.Name())
		switch mode := e.Type(); {
		case mode.IsDir():
			f.folder(argument, path)
		case strings.HasSuffix(path, abi.Suffix):
			f.skip(path, ReasonEhElf)
		case mode.IsRegular() || mode&fs.ModeSymlink != 0:
			f.folderFile(argument, path)
		default:
			f.skip(path, ReasonNotRegular)
		}
	}
}

// folderFile adds a file found in a folder if it begins like an ELF file. What is something else is skipped and
// counted: only what the user has named must be an object.
func (f *finder) folderFile(argument, path string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || isLinkLoop(err):
		f.skip(path, ReasonDangling)
		return
	case err != nil:
		f.problem(path, withoutPath(err))
		return
	case info.IsDir():
		f.skip(path, ReasonFolderLink)
		return
	case !info.Mode().IsRegular():
		f.skip(path, ReasonNotRegular)
		return
	case info.Size() == 0: // also what /proc holds, where reading may block
		f.skip(path, ReasonNotELF)
		return
	}
	if f.inputs[idOf(path, info)] == nil { // else the file is known already, and only gets another name
		weight, err := weigh(path, info.Size())
		switch {
		case errors.Is(err, input.ErrSparse): // no program: a disk's image, a database
			f.skip(path, input.ErrSparse.Error())
			return
		case err != nil:
			f.problem(path, withoutPath(err))
			return
		case weight < 0 && !(f.archives && strings.HasSuffix(path, ".a")):
			f.skip(path, ReasonNotELF)
			return
		}
	}
	rel, err := filepath.Rel(argument, path)
	if err != nil {
		f.problem(path, err)
		return
	}
	f.add(path, rel, info)
}

// dependencies adds the objects that would be loaded with the inputs found so far. What is missing is a problem of the
// object that needs it.
func (f *finder) dependencies(l Loader) {
	r := newResolver(l)
	said := make(map[[2]string]bool)  // what was reported, by file and name: several inputs may lack the same
	for _, in := range f.res.Inputs { // Inputs grows, the range does not
		if f.ctx.Err() != nil {
			return
		}
		path := in.Names[0].Path
		paths, err := r.closure(path, func(by, name string, err error) {
			if !said[[2]string{by, name}] {
				said[[2]string{by, name}] = true
				f.problem(by, fmt.Errorf("%s: %w", name, err))
			}
		})
		// A script or a 32-bit program has no dependencies that count.
		if err != nil && in.Given && !errors.Is(err, errNotCandidate) {
			f.problem(path, err)
		}
		if err == nil {
			in.Mapped = true
			if in.Given {
				in.addChain(path)
			}
		}
		for _, path := range paths {
			dep := f.add(path, filepath.Base(path), r.files[path].info)
			dep.Mapped = true
			dep.addChain(path)
		}
	}
}

// add adds the regular file at path, or another name of a known file.
func (f *finder) add(path, rel string, info fs.FileInfo) *Input {
	id := idOf(path, info)
	in := f.inputs[id]
	if in == nil {
		in = &Input{Path: path, Size: info.Size()}
		if w, err := weigh(path, in.Size); err == nil {
			in.Weight = max(w, 0)
		}
		f.inputs[id] = in
		f.res.Inputs = append(f.res.Inputs, in)
	}
	lst, err := os.Lstat(path)
	in.addName(Name{Path: path, Rel: rel, Next: path, link: err == nil && lst.Mode()&fs.ModeSymlink != 0})
	return in
}

// addName adds a name unless the input has it. A name that was asked for stays one if it is also
// found through a link.
func (in *Input) addName(name Name) {
	for i := range in.Names {
		if n := &in.Names[i]; n.Rel == name.Rel && n.Next == name.Next {
			n.Also = n.Also && name.Also
			return
		}
	}
	in.Names = append(in.Names, name)
}

// addChain adds the names to which path leads, link by link, and the one with all links resolved:
// /proc/PID/maps shows that one.
func (in *Input) addChain(path string) {
	also := func(path string) { in.addName(Name{Path: path, Rel: filepath.Base(path), Next: path, Also: true}) }
	dir := path
	for range maxLinks {
		to, err := os.Readlink(dir)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(dir), to)
		}
		dir = to
		also(dir)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil && filepath.Base(real) != filepath.Base(path) {
		also(real)
	}
}

// maxLinks is how many symbolic links Linux follows.
const maxLinks = 40

// addSoname adds the name by which the dynamic loader would have found the file at path, if it is there:
// /proc/PID/maps has the file's own name, other programs ask by the DT_SONAME.
func (in *Input) addSoname(path string, info fs.FileInfo) {
	h, err := openRegular(path)
	if err != nil {
		return
	}
	defer h.Close()
	dyn, err := readDynamic(h)
	if err != nil || dyn.soname == "" || strings.Contains(dyn.soname, "/") {
		return
	}
	other := filepath.Join(filepath.Dir(path), dyn.soname)
	if st, err := os.Stat(other); err == nil && os.SameFile(st, info) {
		in.addName(Name{Path: other, Rel: dyn.soname, Next: other, Also: true})
	}
}

// chooseName moves to the front the first name that was asked for and is no symbolic link; the eh_elf gets that name.
// If all are links, the first stays.
func (in *Input) chooseName() {
	for i, n := range in.Names {
		if !n.link && !n.Also {
			copy(in.Names[1:i+1], in.Names[:i])
			in.Names[0] = n
			return
		}
	}
}

// weigh estimates the bytes of unwind tables in the file, or returns -1 if it
// does not begin like an ELF file.
func weigh(path string, size int64) (int64, error) {
	f, err := openRegular(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var b [4]byte
	_, err = io.ReadFull(f, b[:])
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err == nil && string(b[:]) != "\x7fELF":
		return -1, nil
	case err != nil:
		return 0, err
	}
	return tableSize(f, size), nil
}

// withoutPath removes the path from an error of package os, since the message
// already names it.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

// kind says what a file is that is not a regular one.
func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "is a FIFO"
	case mode&fs.ModeSocket != 0:
		return "is a socket"
	case mode&fs.ModeDevice != 0:
		return "is a device"
	}
	return ReasonNotRegular
}
