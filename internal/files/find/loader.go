package find

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"
)

// This file searches as ld.so does, in its order, since the first file found wins. A library that is found elsewhere
// than by the program would get tables that the program does not use.

// Loader describes where the dynamic loader searches for the objects that an
// object needs: ld.so(8), "Searching for a library".
type Loader struct {
	LibraryPath string   // LD_LIBRARY_PATH
	Preload     []string // LD_PRELOAD, for programs; ld.so ignores those it cannot find
	Cache       string   // file name of ld.so.cache
	Folders     []string // searched last: the default folders
	Hwcaps      []string // glibc-hwcaps subfolders that this CPU can use, best first
	Lib         string   // value of $LIB
	Platform    string   // value of $PLATFORM
}

// HostLoader returns the Loader of this machine. It runs nothing: $LIB and the
// default folders, which are built into each ld.so, are those of Debian if its
// multiarch folder exists and the usual ones otherwise.
func HostLoader(getenv func(string) string) Loader {
	const multiarch = "lib/x86_64-linux-gnu"
	l := Loader{
		LibraryPath: getenv("LD_LIBRARY_PATH"),
		Cache:       "/etc/ld.so.cache",
		Folders: []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
			"/lib64", "/usr/lib64", "/lib", "/usr/lib"},
		Lib:      "lib64",
		Platform: "x86_64",
	}
	if _, err := os.Stat("/" + multiarch); err == nil {
		l.Lib = multiarch
	}
	// The levels of the x86-64 psABI, section 3.1.1, as far as package cpu knows their features.
	x := &cpu.X86
	v2 := x.HasCX16 && x.HasPOPCNT && x.HasSSE3 && x.HasSSSE3 && x.HasSSE41 && x.HasSSE42
	v3 := v2 && x.HasAVX && x.HasAVX2 && x.HasBMI1 && x.HasBMI2 && x.HasFMA && x.HasOSXSAVE
	v4 := v3 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL
	if v4 {
		l.Hwcaps = append(l.Hwcaps, "x86-64-v4")
	}
	if v3 {
		l.Hwcaps = append(l.Hwcaps, "x86-64-v3")
	}
	if v2 {
		l.Hwcaps = append(l.Hwcaps, "x86-64-v2")
	}
	return l
}

// errNotFound is the cause if no folder has a needed object, errNotInFolders if there could be one more folder.
var (
	errNotFound     = errors.New("not found")
	errNotInFolders = errors.New("not found: if the program finds it, set LD_LIBRARY_PATH as for the program")
)

// resolver finds the objects that would be loaded with a file. It caches what it has read: programs share most
// libraries.
type resolver struct {
	Loader
	cache map[string][]cacheEntry // nil: not read yet
	files map[string]*objectFile  // by path, those that cannot be mapped included
}

// objectFile is a file as the loader sees it; err says why it cannot be mapped.
type objectFile struct {
	info fs.FileInfo
	dyn  *dynamic
	err  error
}

// library is an object in the order of loading.
type library struct {
	path   string // as it was found, links not resolved
	origin string // value of $ORIGIN
	file   *objectFile
	by     *library // what needed it; nil for the root and its interpreter
	names  []string // a DT_NEEDED that equals one of them means this library
}

// newResolver returns a resolver that has read nothing yet.
func newResolver(l Loader) *resolver {
	return &resolver{Loader: l, files: make(map[string]*objectFile)}
}

// closure returns the paths of the objects that the dynamic loader would map for
// the file at path, breadth first, without the file itself, the interpreter
// first. For each object that could not be found it calls missing with the path
// of the object that needs it.
func (r *resolver) closure(path string, missing func(by, name string, err error)) ([]string, error) {
	// The order is that in which ld.so maps objects: the program, then those that it needs in the
	// order of DT_NEEDED, then those that these need. loaded is the queue.
	root := &library{path: path, file: r.open(path), names: []string{path}}
	if root.file.err != nil {
		return nil, root.file.err
	}
	root.origin = originOf(path, root.file.dyn.interp != "")
	loaded := []*library{root}
	search := r.Loader
	if interp := root.file.dyn.interp; interp != "" {
		search = r.loaderOf(interp)
		if f := r.open(interp); f.err != nil {
			missing(path, "PT_INTERP "+interp, cause(f.err))
		} else {
			loaded = append(loaded, &library{path: interp, origin: filepath.Dir(interp), file: f,
				names: []string{interp, f.dyn.soname}})
		}
	}
	env := search.list(search.LibraryPath, root.origin)
	for i := 0; i < len(loaded); i++ {
		lib := loaded[i]
		needed := lib.file.dyn.needed
		preload := 0
		// LD_PRELOAD comes before the program's own DT_NEEDED. A library is not started, so it has none.
		if lib == root && root.file.dyn.interp != "" {
			preload = len(search.Preload)
			needed = slices.Concat(search.Preload, needed)
		}
		for n, name := range needed {
			// A name that has led to an object once is not searched again, even from folders of
			// another DT_RUNPATH.
			if named(loaded, name) {
				continue
			}
			found, file := r.search(&search, lib, env, name)
			if file == nil && n < preload {
				continue
			}
			if file == nil {
				err := errNotInFolders
				if strings.Contains(name, "/") {
					err = errNotFound
				}
				missing(lib.path, "DT_NEEDED "+name, err)
				root.names = append(root.names, name) // reported once
				continue
			}
			// The same file under another name is one object.
			if same := sameFile(loaded, file); same != nil {
				same.names = append(same.names, name)
				continue
			}
			loaded = append(loaded, &library{path: found, origin: originOf(found, false), file: file, by: lib,
				names: []string{name, found, file.dyn.soname}})
		}
	}
	paths := make([]string, 0, len(loaded)-1)
	for _, lib := range loaded[1:] {
		paths = append(paths, lib.path)
	}
	return paths, nil
}

// loaderOf returns where the interpreter searches: musl's has other folders and
// no cache (musl, ldso/dynlink.c).
func (r *resolver) loaderOf(interp string) Loader {
	base := filepath.Base(interp)
	if !strings.HasPrefix(base, "ld-musl-") {
		return r.Loader
	}
	l := r.Loader
	l.Cache, l.Hwcaps = "", nil
	l.Folders = []string{"/lib", "/usr/local/lib", "/usr/lib"}
	arch := strings.TrimSuffix(strings.TrimPrefix(base, "ld-musl-"), ".so.1")
	if b, err := readSmall(filepath.Join("/etc", "ld-musl-"+arch+".path")); err == nil {
		l.Folders = strings.FieldsFunc(string(b), func(c rune) bool { return c == ':' || c == '\n' })
	}
	return l
}

// search finds the object that lib needs under name, or returns nil.
func (r *resolver) search(l *Loader, lib *library, env []string, name string) (string, *objectFile) {
	if strings.Contains(name, "/") {
		path := l.expand(name, lib.origin)
		if f := r.open(path); f.err == nil {
			return path, f
		}
		return "", nil
	}
	// The order of ld.so(8): DT_RPATH of the object and of those that led to it, unless the object
	// has a DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH; the cache; the default folders.
	var folders []string
	if !lib.file.dyn.hasRun {
		for by := lib; by != nil; by = by.by {
			folders = append(folders, l.list(by.file.dyn.rpath, by.origin)...)
		}
	}
	folders = append(folders, env...)
	folders = append(folders, l.list(lib.file.dyn.runpath, lib.origin)...)
	if path, f := r.inFolders(l, folders, name); f != nil {
		return path, f
	}
	if lib.file.dyn.noDefLb {
		return "", nil
	}
	if path, f := r.inCache(l, name); f != nil {
		return path, f
	}
	return r.inFolders(l, l.Folders, name)
}

// inFolders returns the first file in the folders that can be mapped, in each folder first those
// for better CPUs.
func (r *resolver) inFolders(l *Loader, folders []string, name string) (string, *objectFile) {
	for _, dir := range folders {
		for _, h := range l.Hwcaps {
			path := filepath.Join(dir, "glibc-hwcaps", h, name)
			if f := r.open(path); f.err == nil {
				return path, f
			}
		}
		path := filepath.Join(dir, name)
		if f := r.open(path); f.err == nil {
			return path, f
		}
	}
	return "", nil
}

// inCache looks name up in ld.so.cache: the best glibc-hwcaps variant that this
// CPU can use, else the plain one.
func (r *resolver) inCache(l *Loader, name string) (string, *objectFile) {
	if l.Cache == "" {
		return "", nil
	}
	if r.cache == nil {
		r.cache = make(map[string][]cacheEntry)
		if b, err := readSmall(l.Cache); err == nil { // without a cache, ld.so goes on to the folders
			if entries, err := parseCache(b); err == nil {
				r.cache = entries
			}
		}
	}
	variants := append(append([]string(nil), l.Hwcaps...), "")
	for _, v := range variants {
		for _, e := range r.cache[name] {
			if e.hwcap != v {
				continue
			}
			if f := r.open(e.path); f.err == nil {
				return e.path, f
			}
		}
	}
	return "", nil
}

// readSmall reads a file of the loader's. With 'build --root', whoever made the image chose it: it may be a FIFO or a
// device.
func readSmall(path string) ([]byte, error) {
	const most = 16 << 20 // ten times the cache of a system with 10,000 libraries
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s: more than %d bytes", path, most)
	}
	return b, err
}

// open reads what the loader needs from the file at path, once. It opens only regular files. The result has an error
// where the loader would go on to the next folder.
func (r *resolver) open(path string) *objectFile {
	if f := r.files[path]; f != nil {
		return f
	}
	f := &objectFile{}
	r.files[path] = f
	if f.info, f.err = os.Stat(path); f.err != nil {
		return f
	}
	if !f.info.Mode().IsRegular() {
		f.err = errNotCandidate
		return f
	}
	h, err := openRegular(path)
	if err != nil {
		f.err = err
		return f
	}
	defer h.Close()
	f.dyn, f.err = readDynamic(h)
	return f
}

// list splits a search path and expands its elements; an empty element is the
// current folder.
func (l *Loader) list(path, origin string) []string {
	if path == "" {
		return nil
	}
	var folders []string
	for _, dir := range strings.Split(strings.ReplaceAll(path, ";", ":"), ":") {
		if dir == "" {
			dir = "."
		}
		folders = append(folders, l.expand(dir, origin))
	}
	return folders
}

// expand replaces the dynamic string tokens of ld.so(8).
func (l *Loader) expand(s, origin string) string {
	return strings.NewReplacer(
		"${ORIGIN}", origin, "$ORIGIN", origin,
		"${LIB}", l.Lib, "$LIB", l.Lib,
		"${PLATFORM}", l.Platform, "$PLATFORM", l.Platform,
	).Replace(s)
}

// originOf returns the value of $ORIGIN: the kernel resolves the links of a
// program's name, the loader does not resolve those of a library.
func originOf(path string, program bool) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if program {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
	}
	return filepath.Dir(path)
}

// named reports whether a DT_NEEDED is already satisfied: by a name that was asked for, a path, or a DT_SONAME.
func named(loaded []*library, name string) bool {
	for _, lib := range loaded {
		for _, n := range lib.names {
			if n == name {
				return true
			}
		}
	}
	return false
}

// sameFile returns the object that is the same file as f, or nil.
func sameFile(loaded []*library, f *objectFile) *library {
	for _, lib := range loaded {
		if os.SameFile(lib.file.info, f.info) {
			return lib
		}
	}
	return nil
}

// cause removes operation and path from an error of package os.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		if errors.Is(pe.Err, fs.ErrNotExist) {
			return errNotFound
		}
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}
