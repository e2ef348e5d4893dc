// Package preload finds libraries that are preloaded into programs, and makes the environment that does so: ld.so(8).
package preload

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// Library returns the absolute path of the library to preload: named, as a flag gives it; else as the environment
// variable gives it; else the file called name beside this program, in ../lib, or in a build folder. A file that is
// named and unusable is an error: another one would surprise.
func Library(named, variable, name string) (string, error) {
	if named == "" {
		named = os.Getenv(variable)
	}
	if named != "" {
		return Usable(named)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// as of a link in ~/bin: the library is beside the program, not beside the link
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	for _, place := range []string{".", "../lib", "../lib64", "../lib/x86_64-linux-gnu", "build/runtime"} {
		path := filepath.Join(dir, place, name)
		if _, err := os.Stat(path); err == nil {
			return Usable(path)
		}
	}
	return "", fmt.Errorf("not found beside %s, in ../lib or build/runtime from there: the package libehunwind and 'make install' have it, 'make runtime' makes it for ./ehasm, %s names it",
		output.Name(self), variable)
}

// Usable returns the absolute path of a library, or the error that the dynamic loader would
// otherwise report in each program that is started.
func Usable(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(path, ": ") {
		return "", fmt.Errorf("%s: LD_PRELOAD cannot name a path with a blank or colon", output.Name(path))
	}
	if err := find.SharedObject(path); err != nil {
		return "", fmt.Errorf("%s: %w", output.Name(path), err)
	}
	return path, nil
}

// Environ puts the library at the front of LD_PRELOAD, after the runtime of
// AddressSanitizer, which refuses to start a program if another object precedes it. The
// runtime is already in LD_PRELOAD, or the program is linked with it under the name
// sanitizer.
func Environ(environ []string, library, sanitizer string) []string {
	const name = "LD_PRELOAD="
	rest := ""
	environ = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		value, ok := strings.CutPrefix(entry, name)
		if ok && rest == "" {
			rest = value // the first counts
		}
		return ok
	})
	// The runtime of AddressSanitizer first, then the library, then what LD_PRELOAD had.
	before, behind := []string{}, Split(rest)
	for _, entry := range behind {
		if find.IsAddressSanitizer(entry) {
			before = append(before, entry)
		}
	}
	behind = slices.DeleteFunc(behind, find.IsAddressSanitizer)
	if len(before) == 0 && sanitizer != "" {
		before = append(before, sanitizer)
	}
	return append(environ, name+strings.Join(slices.Concat(before, []string{library}, behind), ":"))
}

// Split splits a value of LD_PRELOAD: ld.so(8).
func Split(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' })
}

// NewerThan returns an error that names a version which an object needs of the library at path, and that the library
// lacks: the dynamic loader does not start a program with such an object. The objects are the programs at paths and
// those that the loader maps with them. An object that cannot be read needs nothing.
func NewerThan(ctx context.Context, path string, programs []string, loader find.Loader) error {
	has := map[string]bool{}
	file, err := input.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := elffile.Open(file)
	if err != nil {
		return err
	}
	versions, err := f.DynamicVersions()
	if err != nil {
		return err
	}
	for _, v := range versions {
		has[v.Name] = true
	}
	for _, in := range find.Find(ctx, programs, find.Options{Deps: true, Loader: loader}).Inputs {
		for _, version := range versionsNeeded(in, filepath.Base(path)) {
			if !has[version] {
				return fmt.Errorf("exceptions are left to the system's libgcc: %s needs %s, which this one lacks",
					output.Name(in.Path), version)
			}
		}
	}
	return nil
}

// versionsNeeded returns the symbol versions of a library that an object needs, without weak ones, which the loader
// can do without: those that its .gnu.version_r lists (LSB 5.0 Core, symbol versioning). An object that cannot be
// read needs none.
func versionsNeeded(in *find.Input, library string) []string {
	r, _, closer, err := in.Open()
	if err != nil {
		return nil
	}
	defer closer()
	f, err := elffile.Open(r)
	if err != nil {
		return nil
	}
	needs, err := f.DynamicVersionNeeds()
	if err != nil {
		return nil
	}
	var versions []string
	for _, n := range needs {
		for _, v := range n.Needs {
			if n.Name == library && v.Flags&elf.VER_FLG_WEAK == 0 {
				versions = append(versions, v.Dep)
			}
		}
	}
	return versions
}
