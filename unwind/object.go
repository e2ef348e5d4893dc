package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/input"
)

// Errors about files of objects.
var (
	// ErrNoFile is wrapped if an object has no file: it is anonymous memory,
	// such as the output of a JIT compiler.
	ErrNoFile = errors.New("not of a file")
	// ErrReplaced is wrapped if the only file found has another build-id.
	ErrReplaced = errors.New("the file has another build-id now")

	// ErrChanged is wrapped if the file that was found is another one now, or has been written to.
	ErrChanged = errors.New("the file has changed since it was found")

	errWritten = errors.New("the file was written to after it was recorded, and the recording has no build-id of it")
	errNoMaker = errors.New("nothing makes its eh_elf: Options has neither Prepare nor Compile")
	errLeft    = errors.New("the file is not open any more")
)

// Image is an opened ELF file.
type Image interface {
	io.ReaderAt
	io.Closer
}

// Options says where objects and their eh_elfs come from.
type Options struct {
	// Symfs is a folder in which recorded paths are looked up, instead of /.
	Symfs string
	// DebugDirs are folders with .build-id folders of perf or of gdb.
	DebugDirs []string
	// Before is when the recording ended. Without a build-id, a file is taken only if it was written before. Zero: that
	// does not matter.
	Before time.Time
	// Fetch returns the path of an executable that is in none of these places, by
	// its build-id. May be nil.
	Fetch func(buildID []byte) (path string, err error)
	// VDSO returns the image of the vDSO. May be nil.
	VDSO func() ([]byte, error)
	// Compile makes an eh_elf from an object's file. If it is nil, a Stepper that Prepare
	// returned takes all steps in its object.
	Compile func(name string, file io.ReaderAt, size int64) ([]byte, error)
	// Prepare returns an object's eh_elf if there is one, otherwise a Stepper that
	// takes steps in the object until compiling it pays. It may keep reading the
	// file, whose method Name, if it has one, returns its path. If Prepare is nil,
	// objects are compiled when they are first needed.
	Prepare func(name string, file io.ReaderAt, size int64) ([]byte, Stepper, error)
}

// DefaultDebugDirs returns the folders in which perf and distributions keep
// files by build-id.
func DefaultDebugDirs() []string {
	dirs := []string{"/usr/lib/debug"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append([]string{filepath.Join(home, ".debug")}, dirs...)
	}
	return dirs
}

// Objects is the set of objects that processes have mapped. Its methods are
// safe for concurrent use.
type Objects struct {
	opt    Options         // where files and eh_elfs come from
	mu     sync.Mutex      // protects what follows
	all    map[key]*Object // by name and build-id
	list   []*Object       // in the order in which they were met
	closed bool

	compiling sync.Mutex // in the background, one at a time
}

// key identifies an object: its recorded name and build-id.
type key struct{ name, buildID string }

// NewObjects returns an empty set.
func NewObjects(opt Options) *Objects {
	return &Objects{opt: opt, all: make(map[key]*Object)}
}

// Object returns the object of this recorded name; buildID is nil if the
// recording has none.
func (s *Objects) Object(name string, buildID []byte) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{name, string(buildID)}
	o := s.all[k]
	if o == nil {
		o = &Object{set: s, Name: name, recorded: bytes.Clone(buildID)}
		s.all[k] = o
		s.list = append(s.list, o)
	}
	return o
}

// At is like Object for the file that is at path now and nowhere else, such as in another mount namespace. The recorded
// name may be one of memory that has no file elsewhere: see IsFile.
func (s *Objects) At(name string, buildID []byte, path string) *Object {
	version := ""
	if st, err := os.Stat(path); err == nil { // a file that is written to is another object
		version = fmt.Sprint(st.Size(), st.ModTime().UnixNano())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{name, string(buildID) + "\x00" + path + "\x00" + version}
	o := s.all[k]
	if o == nil {
		o = &Object{set: s, Name: name, recorded: bytes.Clone(buildID), only: path}
		s.all[k] = o
		s.list = append(s.list, o)
	}
	return o
}

// Without returns a new object whose file cannot be had; Err returns why.
func (s *Objects) Without(name string, buildID []byte, why error) *Object {
	o := &Object{set: s, Name: name, recorded: bytes.Clone(buildID)}
	o.found.Do(func() { o.file.err = fmt.Errorf("%s: %w", name, why) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, o)
	return o
}

// InMemory returns a new object whose file has these bytes, as far as memory has them. Err returns what is wrong with
// them.
func (s *Objects) InMemory(name string, file []byte) *Object {
	o := &Object{set: s, Name: name, only: name}
	o.found.Do(func() { o.file.err = o.takeBytes(file) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, o)
	return o
}

// All returns the objects in the order in which they were met.
func (s *Objects) All() []*Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Object(nil), s.list...)
}

// Forget drops the objects that no walk has needed and for which keep returns false, and returns the others. References
// to a dropped object stay valid.
func (s *Objects) Forget(keep func(*Object) bool) map[*Object]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make(map[*Object]bool)
	s.list = slices.DeleteFunc(s.list, func(o *Object) bool {
		kept[o] = o.needed.Load() || keep(o)
		return !kept[o]
	})
	maps.DeleteFunc(s.all, func(_ key, o *Object) bool { return !kept[o] })
	maps.DeleteFunc(kept, func(_ *Object, is bool) bool { return !is })
	return kept
}

// Close unloads the eh_elfs. One that is being compiled in the background is
// unloaded when it is done.
func (s *Objects) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, o := range s.list {
		if code := o.code.Load(); code != nil {
			errs = append(errs, code.Close())
		}
	}
	return errors.Join(errs...)
}

// segment is a PT_LOAD program header: its file offset, its bytes in the file, its link-time address.
type segment struct {
	off, size, vaddr uint64
	code             bool
}

// Object is an executable, a shared object, or other memory with code. Its methods are
// safe for concurrent use until its Objects is closed.
type Object struct {
	Name     string // as recorded
	set      *Objects
	recorded []byte // build-id
	only     string // the only path to look at; "": see candidates

	found sync.Once
	left  atomic.Bool // see Leave
	file  objectFile  // set by found

	needed atomic.Bool                 // by a walk
	code   atomic.Pointer[ehelf.EhElf] // nil: none, or not yet

	mu      sync.RWMutex    // for what is below; walks read it while nothing can change it, see Release
	ready   bool            // prepared
	round   int             // how often it was released
	codeErr error           // why there will be neither code nor stepper
	stepper Stepper         // steps without code; nil: none
	signals map[uint64]bool // the signal frames met before it was released; nil: it never was
}

// objectFile is what is known of an object's file.
type objectFile struct {
	path      string      // of the file that was found; "" for the vDSO
	info      os.FileInfo // of that file
	data      []byte      // of the vDSO, or see InMemory
	buildID   []byte      // nil: it has none
	loads     []segment   // the executable ones first, see Bias
	entry     uint64      // link-time; 0: none
	table     bool        // it has an index of unwind information, maybe an empty one
	loader    bool        // it loads programs: it asks for no loader, and is not static
	interp    string      // the loader that it asks for, if it is a program
	err       error       // why there is no file; nil: there is one
	plt       plt
	codeParts codeParts
}

// IsFile reports whether the object is a file: it was found At a path, or the recorded name is a file's. The kernel
// names other memory //anon, [heap], anon_inode:..., /memfd:...
// (kernel/events/core.c, perf_event_mmap_event). Below /dev only /dev/shm has programs; what is
// deleted there is mostly memory that processes share.
func (o *Object) IsFile() bool {
	if o.only != "" {
		return true
	}
	device := strings.HasPrefix(o.Name, "/dev/") &&
		(!strings.HasPrefix(o.Name, "/dev/shm/") || strings.HasSuffix(o.Name, " (deleted)"))
	return strings.HasPrefix(o.Name, "/") && !strings.HasPrefix(o.Name, "//anon") &&
		!strings.HasPrefix(o.Name, "/memfd:") && !device &&
		!strings.HasPrefix(o.Name, "/SYSV") && !strings.HasPrefix(o.Name, "/anon_hugepage")
}

// VDSOName is the name that the kernel gives the vDSO's mapping.
const VDSOName = "[vdso]"

// IsAnonymous reports whether the object is memory that is neither a file's nor the vDSO's. Code there was made at run
// time.
func (o *Object) IsAnonymous() bool { return !o.IsFile() && o.Name != VDSOName }

// Err returns why the object cannot be unwound through, or nil if it can or
// no walk has tried.
func (o *Object) Err() error {
	if o.file.err != nil {
		return o.file.err
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.codeErr
}

// Open opens the object's file and returns its size in bytes. The error wraps ErrChanged if that is not the file any
// more that was found, whatever its build-id: files of a project may all have one.
func (o *Object) Open() (Image, int64, error) {
	o.find()
	if o.file.err != nil {
		return nil, 0, o.file.err
	}
	if o.file.data != nil {
		return nopCloser{bytes.NewReader(o.file.data)}, int64(len(o.file.data)), nil
	}
	if o.left.Load() {
		return nil, 0, fmt.Errorf("%s: %w", o.Name, errLeft)
	}
	f, err := input.Open(o.file.path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if !input.Same(st, o.file.info) {
		f.Close()
		return nil, 0, fmt.Errorf("%s: %w", o.file.path, ErrChanged)
	}
	return f, st.Size(), nil
}

// nopCloser is an Image in memory.
type nopCloser struct{ io.ReaderAt }

func (nopCloser) Close() error { return nil }

// Leave makes Open fail from now on: the descriptor that the object was found At is about to be closed, and its number
// will be another file's.
func (o *Object) Leave() { o.left.Store(true) }

// Path returns where the file was found, or "" if it was not.
func (o *Object) Path() string { o.find(); return o.file.path }

// Info describes the file that was found; nil: there is none.
func (o *Object) Info() os.FileInfo { o.find(); return o.file.info }

// BuildID returns the build-id of the file if that is known, otherwise the
// recorded one. It may be nil.
func (o *Object) BuildID() []byte {
	o.find()
	if o.file.buildID != nil {
		return o.file.buildID
	}
	return o.recorded
}

// page is what the kernel maps, in bytes: a mapping begins at or before its segment.
const page = 4096

// Bias returns the load bias for a mapping of the object. It follows from the
// program header that the mapped bytes belong to: gABI chapter 5, "Base
// Address".
func (o *Object) Bias(m *Mapping) (uint64, bool) {
	o.find()
	for _, s := range o.file.loads {
		if off := s.off &^ (page - 1); m.Offset >= off && m.Offset < s.off+s.size {
			return m.Start - m.Offset + s.off - s.vaddr, true
		}
	}
	return 0, false
}

// CodeAt returns where in the file the code at a link-time address lies, and how many bytes of code there are from
// there on; 0: there is none.
func (o *Object) CodeAt(addr uint64) (offset, size uint64) {
	o.find()
	for _, s := range o.file.loads {
		before := s.vaddr % page
		if off := addr - (s.vaddr - before); s.code && off < before+s.size {
			return s.off - before + off, before + s.size - off
		}
	}
	return 0, 0
}

// isEntry reports whether a link-time address lies in the code at the
// object's entry point, which the kernel enters and which has no caller. The
// dynamic loader's entry code, which has no unwind information, has about two
// dozen instructions.
func (o *Object) isEntry(addr uint64) bool {
	const size = 64
	return o.file.entry != 0 && addr-o.file.entry < size
}

// find looks for the file, once: under its name, then by its build-id, and at last at Fetch. Without a build-id in the
// recording, the name alone decides.
func (o *Object) find() {
	o.found.Do(func() {
		opt := &o.set.opt
		if o.Name == VDSOName {
			o.file.err = o.findVDSO(opt)
			return
		}
		if !o.IsFile() {
			o.file.err = fmt.Errorf("%s: %w", o.Name, ErrNoFile)
			return
		}
		var first error
		paths := []string{o.only}
		if o.only == "" {
			paths = opt.candidates(o.Name, o.recorded)
		}
		for _, path := range paths {
			err := o.take(path)
			if err == nil {
				o.file.path = path
				return
			}
			// The error of the first place, unless that has no file and another has a wrong one.
			if first == nil || errors.Is(first, os.ErrNotExist) && !errors.Is(err, os.ErrNotExist) {
				first = err
			}
		}
		o.file.err = first
		if path, err := opt.fetch(o.recorded); err != nil {
			o.file.err = errors.Join(first, err)
		} else if path != "" {
			if o.file.err = o.take(path); o.file.err == nil {
				o.file.path = path
			}
		}
	})
}

// fetch asks Fetch, if there is something to ask for.
func (opt *Options) fetch(buildID []byte) (string, error) {
	if opt.Fetch == nil || len(buildID) == 0 {
		return "", nil
	}
	return opt.Fetch(trimID(buildID))
}

// candidates returns the paths at which an object may be found.
func (opt *Options) candidates(name string, buildID []byte) []string {
	paths := []string{filepath.Join(opt.Symfs, name)}
	if opt.Symfs == "" {
		paths[0] = name
	}
	if plain, ok := strings.CutSuffix(name, " (deleted)"); ok && len(buildID) > 0 {
		paths = append(paths, filepath.Join(opt.Symfs, plain))
	}
	if len(buildID) < 2 {
		return paths
	}
	for _, dir := range opt.DebugDirs {
		base := BuildIDPath(dir, buildID)
		// perf links .build-id/xx/yyyy to a folder, gdb's folders have yyyy.debug.
		paths = append(paths, filepath.Join(base, "elf"), base, base+".debug")
	}
	return paths
}

// BuildIDPath returns the path below dir at which perf and gdb keep the files
// of a build-id of at least 2 bytes.
func BuildIDPath(dir string, buildID []byte) string {
	id := hex.EncodeToString(trimID(buildID))
	if len(id) < 4 {
		id = hex.EncodeToString(buildID)
	}
	return filepath.Join(dir, ".build-id", id[:2], id[2:])
}

// take reads the headers of the file at path, if the file has the recorded
// build-id.
func (o *Object) take(path string) error {
	f, err := input.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := o.readHeaders(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if o.file.info, err = f.Stat(); err != nil {
		return err
	}
	if before := o.set.opt.Before; len(o.recorded) == 0 && !before.IsZero() && o.file.info.ModTime().After(before) {
		return fmt.Errorf("%s: %w", path, errWritten)
	}
	return nil
}

// findVDSO takes the image of the vDSO instead of a file.
func (o *Object) findVDSO(opt *Options) error {
	if opt.VDSO == nil {
		return fmt.Errorf("%s: %w", o.Name, os.ErrNotExist)
	}
	data, err := opt.VDSO()
	if err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	return o.takeBytes(data)
}

// takeBytes takes bytes instead of a file.
func (o *Object) takeBytes(data []byte) error {
	if err := o.readHeaders(bytes.NewReader(data)); err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	o.file.data = data
	return nil
}

// readHeaders takes from an ELF file what a walk needs to know before the eh_elf: load segments,
// entry point, build-id. The error wraps ErrReplaced if the file has another build-id than the
// recording.
func (o *Object) readHeaders(r io.ReaderAt) (err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			err = fmt.Errorf("debug/elf: %v", p)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return err
	}
	id, _ := abi.BuildID(r) // one that cannot be read counts as none
	if len(o.recorded) > 0 && !bytes.Equal(trimID(o.recorded), trimID(id)) {
		had := hex.EncodeToString(id)
		if len(id) == 0 {
			had = "none"
		}
		return fmt.Errorf("%w: %s, recorded was %x", ErrReplaced, had, o.recorded)
	}
	o.file.buildID, o.file.entry = id, f.Entry
	o.file.table = f.Section(".eh_frame_hdr") != nil
	o.file.loads = nil
	tags, _ := elffile.Dynamic(f) // none: static, or damaged
	o.file.loader = len(tags) > 0 && elf.DynFlag1(tags[elf.DT_FLAGS_1])&elf.DF_1_PIE == 0
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			o.file.loader = false
			if tags[elf.DT_SONAME] == 0 { // libc.so.6 has both
				b, _ := io.ReadAll(io.LimitReader(p.Open(), page))
				o.file.interp = string(bytes.TrimRight(b, "\x00"))
			}
		}
		if p.Type == elf.PT_LOAD {
			o.file.loads = append(o.file.loads, segment{p.Off, p.Filesz, p.Vaddr, p.Flags&elf.PF_X != 0})
		}
	}
	// A mapping that the program made itself may begin in a segment that is not executable.
	slices.SortStableFunc(o.file.loads, func(a, b segment) int {
		switch {
		case a.code && !b.code:
			return -1
		case b.code && !a.code:
			return 1
		}
		return 0
	})
	return nil
}

// trimID drops zeros at the end: recordings of older perfs pad to 20 bytes.
func trimID(id []byte) []byte { return bytes.TrimRight(id, "\x00") }

// DebugPaths returns the paths at which the object's separate debug file may
// be, by its build-id.
func (o *Object) DebugPaths() []string {
	id := o.BuildID()
	if len(id) < 2 {
		return nil
	}
	var paths []string
	for _, dir := range o.set.opt.DebugDirs {
		base := BuildIDPath(dir, id)
		paths = append(paths, filepath.Join(base, "debug"), base+".debug")
	}
	return paths
}
