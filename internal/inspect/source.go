package inspect

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
	"github.com/ehasm/ehasm/internal/debuginfo/srcline"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/input"
)

// This file brings check's findings together with sources: names and lines from debug information, and text for --fix.
// Names of sources come from the object, so opening one is guarded.

// File is an ELF file with its debug information, which tells names and lines.
type File struct {
	Path string // of the file, or of the archive that holds it
	R    io.ReaderAt
	Size int64
}

// debugDirs returns the folders in which distributions' packages install separate debug files.
func debugDirs() []string { return []string{"/usr/lib/debug"} }

// Name names, from the debug file, the findings that the file's own symbols do not name.
func (o File) Name(fs []check.Finding) {
	if relocatable.IsRelocatable(o.R) { // its symbols have no addresses
		return
	}
	var table *symbols.Table
	for i := range fs {
		if fs[i].Function != "" {
			continue
		}
		if table == nil {
			var err error
			if table, err = symbols.FromELF(o.R, filepath.Dir(o.Path), nil, debugDirs()); err != nil {
				return // without symbols findings have addresses
			}
		}
		if s := table.Find(fs[i].PC); s != nil {
			fs[i].Function, fs[i].Symbol = s.Name, s.Start
		}
	}
}

// lines opens the object's debug information.
func (o File) lines() (*srcline.Info, error) {
	file := o.R
	if relocatable.IsRelocatable(file) {
		image, err := relocatable.LinkWithLines(file, o.Size)
		if err != nil {
			return nil, err
		}
		file = bytes.NewReader(image)
	}
	return srcline.Open(file, srcline.Options{Path: o.Path, DebugDirs: debugDirs()})
}

// sourceLine returns the file and the line of an instruction; 0 if they are not known. A file below the working
// directory is relative to it. md5 is the file's as the compiler read it, "" if it does not say. The innermost inlined
// function counts, since the instruction is its line's.
func sourceLine(o *srcline.Info, pc uint64) (file string, line int, md5 string) {
	frames := o.Lookup(pc, srcline.Want{Lines: true})
	if len(frames) == 0 || frames[0].Line <= 0 {
		return "", 0, ""
	}
	f := frames[0]
	wd, _ := os.Getwd()
	if rel, err := filepath.Rel(wd, f.File); err == nil && filepath.IsLocal(rel) {
		f.File = rel
	}
	return f.File, f.Line, f.MD5
}

// Locate adds the lines of the source that debug information tells.
func (o File) Locate(fs []check.Finding) {
	if len(fs) == 0 {
		return
	}
	lines, err := o.lines()
	if err != nil {
		return // without debug information findings have addresses
	}
	defer lines.Close()
	for i := range fs {
		if file, line, _ := sourceLine(lines, fs[i].PC); line > 0 {
			fs[i].Source, fs[i].Line = file, line
		}
	}
}

// Fix writes a unified diff of the sources of assembly in which directives are wrong. s is the object as check opened
// it. It returns an error for each function that it cannot mend with certainty.
func (o File) Fix(w io.Writer, s *check.Subject) (problems []error) {
	lines, err := o.lines()
	if err != nil {
		return []error{fmt.Errorf("lines of the source are needed (as -g): %w", err)}
	}
	defer lines.Close()
	built, err := os.Stat(o.Path)
	if err != nil {
		return []error{err}
	}
	texts, sums := map[string][]string{}, map[string]string{}
	fix := &check.Fix{
		Line: func(pc uint64) (string, int) {
			file, line, sum := sourceLine(lines, pc)
			sums[file] = sum
			return file, line
		},
		Read: func(file string) (text []string, err error) {
			if texts[file] == nil {
				texts[file], err = readAssembly(file, built, sums[file])
			}
			return texts[file], err
		},
	}
	s.Run(check.Options{Fix: fix})
	for file, text := range sortedTexts(texts) {
		var of []check.Patch
		for _, p := range fix.Patches {
			if p.Err == nil && p.File == file {
				of = append(of, p)
			}
		}
		if _, err := io.WriteString(w, check.Unified(file, text, of)); err != nil {
			return append(problems, err)
		}
	}
	for _, p := range fix.Patches {
		if p.Err != nil {
			problems = append(problems, fmt.Errorf("%s (%#x) is not mended: %w", p.Name, p.Start, p.Err))
		}
	}
	return problems
}

// sortedTexts goes through the sources by name.
func sortedTexts(texts map[string][]string) func(yield func(string, []string) bool) {
	return func(yield func(string, []string) bool) {
		names := make([]string, 0, len(texts))
		for name := range texts {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(name, texts[name]) {
				return
			}
		}
	}
}

// maxAssembly bounds the bytes of a source. Its name comes from the object, and may be any file's.
const maxAssembly = 64 << 20

var errNoAssembly = errors.New("its source is no assembly")

// readAssembly returns the lines of a source of assembly, if it is the text that the object built was made from: it has
// the MD5 sum or, where the debug information has none, is not newer. A file of another user is not read: its name
// comes from the object, and its lines would be shown.
func readAssembly(name string, built fs.FileInfo, sum string) ([]string, error) {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return nil, fmt.Errorf("its source is named %q", name) // it would end a line of the patch
	}
	if name == "" {
		return nil, errors.New("its source is not known")
	}
	if ext := strings.ToLower(filepath.Ext(name)); ext != ".s" && ext != ".sx" && ext != ".asm" {
		return nil, fmt.Errorf("%w: %s", errNoAssembly, name)
	}
	f, err := input.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case st.Size() > maxAssembly:
		return nil, fmt.Errorf("%s is too large: %d bytes", name, st.Size())
	case !input.OwnedAlike(st, built):
		return nil, fmt.Errorf("%s belongs to another user than the object", name)
	case sum == "" && st.ModTime().After(built.ModTime()):
		return nil, fmt.Errorf("%s is newer than the object: build it again", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAssembly))
	if err != nil {
		return nil, err
	}
	if now := md5.Sum(text); sum != "" && string(now[:]) != sum {
		return nil, fmt.Errorf("%s is not the text that the object was made from: its MD5 sum differs", name)
	}
	if n := len(text); n == 0 || text[n-1] != '\n' {
		return nil, fmt.Errorf("%s does not end with a line", name) // patch would need to be told
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}
