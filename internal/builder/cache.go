package builder

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/preload"
)

// The cache holds an eh_elf per build-id, whatever the name of the object. Objects without a
// build-id, or with a build-id that another object has, too, have one per abi.TableKey. It is one of the places where
// libehunwind looks.

// ErrNoKey says why an object cannot go into the cache.
var ErrNoKey = errors.New("neither a build-id nor an .eh_frame_hdr to find it by in the cache; 'ehasm build' puts its eh_elf beside it")

// CacheFolder returns the user's cache of eh_elfs, by XDG_CACHE_HOME or HOME.
func CacheFolder(getenv func(string) string) (string, error) {
	base := getenv("XDG_CACHE_HOME")
	if base == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("--cache: neither XDG_CACHE_HOME nor HOME is set")
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		// a relative folder would depend on where the command runs
		return "", fmt.Errorf("--cache: %s: not an absolute path", output.Name(base))
	}
	return filepath.Join(base, "ehasm", ".build-id"), nil
}

// KernelCopy returns the path of the cache's copy of the kernel's symbols, or "" if there is no cache.
func KernelCopy(getenv func(string) string) string {
	folder, err := CacheFolder(getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(folder), "kallsyms")
}

// SystemCache is the cache of eh_elfs that root fills for all users. Programs look there after the user's cache.
const SystemCache = "/usr/lib/ehasm/.build-id"

// MakeCache makes a cache's folder, or a subfolder: the system's for all to read, else for the user alone.
func MakeCache(folder string) error {
	if inSystemCache(folder) {
		return input.MkdirAllShared(folder)
	}
	return input.MkdirAll(folder)
}

// inSystemCache reports whether a path is the system's cache, or lies in it.
func inSystemCache(path string) bool { return strings.HasPrefix(path+"/", SystemCache+"/") }

// ForSystem returns the inputs that may go into the system's cache: files that only root can have written. The cache
// goes by the build-id, which the writer of a file chooses; it may be another file's.
// The others are refused; of them, given were named by the caller.
func ForSystem(inputs []*find.Input) (list []*find.Input, given, refused []find.Problem) {
	for _, in := range inputs {
		if in.Data != nil { // the vDSO
			list = append(list, in)
			continue
		}
		err := input.CheckTrusted(in.Path)
		if err == nil {
			list = append(list, in)
			continue
		}
		problem := find.Problem{Path: in.Names[0].Path, Err: fmt.Errorf("not for the cache of all users: %w", err)}
		if in.Given {
			given = append(given, problem)
		} else {
			refused = append(refused, problem)
		}
	}
	return list, given, refused
}

// CacheNames returns the names in a cache of the eh_elfs of files, of all files below folders, and of the running
// kernel's vDSO, if /proc shows it. The error says which path could not be read.
func CacheNames(ctx context.Context, paths []string) (map[string]bool, error) {
	found := find.Find(ctx, paths, find.Options{})
	for _, p := range found.Problems {
		return nil, fmt.Errorf("%s: %w", output.Name(p.Path), p.Err)
	}
	if len(found.Inputs) == 0 {
		return nil, errors.New("no executable or shared object there: nothing is removed")
	}
	names := make(map[string]bool)
	vdso := find.Find(ctx, nil, find.Options{VDSO: true}).Inputs
	for _, in := range slices.Concat(found.Inputs, vdso) {
		list, err := namesOf(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", output.Name(in.Names[0].Path), err)
		}
		for _, name := range list {
			names[name] = true
		}
	}
	return names, ctx.Err()
}

// namesOf is NamesOf for an input.
func namesOf(in *find.Input) ([]string, error) {
	r, size, done, err := in.Open()
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer done()
	object, err := dwarfcfa.NewFile(in.Names[0].Path, r, size)
	if err != nil { // it is not compiled either
		return nil, nil
	}
	return append(NamesOf(object), TablesName(object)), nil
}

// CacheName returns the path, relative to the cache folder, of the eh_elf for a
// build-id.
func CacheName(buildID []byte) (string, error) {
	if len(buildID) < 2 { // the first byte names a folder
		return "", ErrNoKey
	}
	return cacheName(buildID, ""), nil
}

// cacheName is the path for a key, as .build-id folders have it: the first byte is a folder.
func cacheName(key []byte, kind string) string {
	id := hex.EncodeToString(key)
	return filepath.Join(id[:2], id[2:]+kind+abi.Suffix)
}

// NamesOf returns the paths, relative to the cache folder, at which the eh_elf of an object may be; none: it cannot be
// there.
func NamesOf(o *dwarfcfa.File) (names []string) {
	if name, err := CacheName(o.BuildID()); err == nil {
		names = append(names, name)
	}
	if key, err := abi.TableKey(o.File()); err == nil {
		names = append(names, cacheName(binary.BigEndian.AppendUint64(nil, key), ".table"))
	}
	return names
}

// TablesName returns the path, relative to the cache folder, of the tables by which the kernel unwinds an object; "":
// it cannot be there. Of several objects with the build-id of one, each has its own.
func TablesName(o *dwarfcfa.File) string {
	names := NamesOf(o)
	if len(names) == 0 {
		return ""
	}
	return strings.TrimSuffix(names[len(names)-1], abi.Suffix) + abi.TablesSuffix
}

// NewCacheJobs makes a job for every input; the build-id, read later, gives the
// target. Objects with the same build-id share an eh_elf, so targets cannot
// clash. Objects without one that have the same key take each other's place.
func NewCacheJobs(inputs []*find.Input) []*Job {
	jobs := make([]*Job, len(inputs))
	for i, in := range inputs {
		jobs[i] = &Job{Input: in, Name: in.Names[0].Path}
	}
	return jobs
}

// intoCache gives the job its target.
func (j *Job) intoCache(cache string, o *dwarfcfa.File) error {
	names := NamesOf(o)
	if len(names) == 0 {
		return ErrNoKey
	}
	name := names[0]
	if len(names) > 1 && ofOther(filepath.Join(cache, name), o) {
		name = names[1]
	}
	j.Target, j.inCache = filepath.Join(cache, name), name
	return nil
}

// ofOther reports whether a file is the eh_elf of another object with the build-id of o, which may be in use, too.
func ofOther(path string, o *dwarfcfa.File) bool {
	f, err := input.OpenTrusted(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := elfout.ReadInfo(f)
	return err == nil && len(info.Note.Content) > 0 && info.Note.Check(o.File()) != nil
}

// Fill builds the eh_elfs that the cache of opt lacks, for the paths and for what from adds to them. Files that cannot
// be compiled go to p. It returns false if ctx ended before all were done.
func Fill(ctx context.Context, paths []string, from find.Options, opt Options, p Progress) bool {
	plan := NewPlan(ctx, paths, from, "", opt.Cache)
	for _, problem := range slices.Concat(plan.Failed, plan.Notes) {
		p.Note(problem.Path, problem.Err)
	}
	if err := plan.Keep(paths, opt.Cache); err != nil {
		p.Note("the next 'ehasm cache --system --prune --only' removes what is built now", err)
	}
	return Build(ctx, plan.Jobs, opt, p) != nil
}

// FillForPrograms fills a cache for programs, and the libraries that they load when others are preloaded: opt.Cache, or
// the user's. Without a place for a cache it tells so and builds nothing. It returns false if ctx ended before all was
// done.
func FillForPrograms(ctx context.Context, paths, libraries []string, vdso bool, opt Options, p Progress) bool {
	var err error
	if opt.Cache == "" {
		opt.Cache, err = CacheFolder(os.Getenv)
	}
	if err == nil {
		err = MakeCache(opt.Cache)
	}
	if err != nil {
		p.Note("no eh_elf is built", err)
		return true
	}
	from := find.Options{Deps: true, VDSO: vdso, Loader: find.HostLoader(os.Getenv)}
	from.Loader.Preload = append(libraries, preload.Split(os.Getenv("LD_PRELOAD"))...)
	return Fill(ctx, paths, from, opt, p)
}
