package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/schollz/progressbar/v3"
)

// This file goes from the paths of check to ELF files: folders, static libraries and their members, each with a name
// for people and one for identities.

// checker checks files one after the other, and adds up what it finds. The functions of a file are analysed in
// parallel, files are not: the memory of a check is mostly its file's.
type checker struct {
	opt   checkOptions
	c     *console
	quiet bool // print nothing

	names   check.Names
	ids     []string          // of all findings
	files   []inspect.Checked // for JSON and SARIF
	failed  bool              // a finding is of the severity that fails
	many    bool              // files of folders and static libraries were checked: the summary is of all
	all     inspect.CheckCounts
	skipped int
}

// checkInput is an ELF file to check.
type checkInput struct {
	path  string // of the file that holds it
	name  string // for messages: path, or archive(member)
	id    string // for identities
	title string // for the progress bar
	given bool   // a path of the command line, so that it must be an ELF file with tables
	r     io.ReaderAt
	size  int64
}

// path checks a file, the members of a static library, or the files of a folder. id is what identities call it; files
// of a folder are called by their path in it, below the folder's id.
func (k *checker) path(ctx context.Context, path, id string) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		k.file(ctx, checkInput{path: path, name: path, id: id, title: filepath.Base(path), given: true})
		return
	}
	found := find.Find(ctx, []string{path}, find.Options{Archives: true})
	for _, p := range found.Problems {
		k.c.fail(p.Path, p.Err)
	}
	k.many = true
	for i, in := range found.Inputs {
		if ctx.Err() != nil {
			return
		}
		title := fmt.Sprintf("%s (%d/%d)", filepath.Base(in.Path), i+1, len(found.Inputs))
		k.file(ctx, checkInput{path: in.Path, name: in.Path, id: filepath.Join(id, in.Names[0].Rel), title: title})
	}
}

// file opens the input's path and checks it, or its members if it is a static library. An archive that breaks off
// gives the members before and a failure.
func (k *checker) file(ctx context.Context, in checkInput) {
	r, size, done, err := find.OpenFile(in.path)
	if err != nil {
		k.c.fail(in.path, err)
		return
	}
	defer done()
	if !relocatable.IsArchive(r) {
		in.r, in.size = r, size
		k.input(in)
		return
	}
	k.many = true
	named := map[string]int{} // members may have one name
	for m, err := range relocatable.Members(r, size) {
		if err != nil {
			k.c.fail(in.path, err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		member, id := "("+m.Name+")", in.id+"("+m.Name+")"
		// the second of a name is NAME(m)2: ar(1) keeps several, as of files from different folders
		if named[m.Name]++; named[m.Name] > 1 {
			id += strconv.Itoa(named[m.Name])
		}
		k.input(checkInput{path: in.path, name: in.path + member, id: id, title: filepath.Base(in.path) + member, r: m,
			size: m.Size()})
	}
}

// input checks an ELF file. Of a folder or a static library, files that have no tables are skipped.
func (k *checker) input(in checkInput) {
	r, err := k.check(in)
	if err != nil {
		if !in.given && withoutTables(err) {
			k.skipped++
		} else {
			k.c.fail(in.name, err)
		}
		return
	}
	for i := range r.Findings {
		k.failed = k.failed || rank(r.Findings[i].Severity) >= rank(k.opt.failOn)
	}
	k.all.Add(&r)
	switch {
	case k.quiet, k.opt.fix:
	case k.opt.json || k.opt.sarif:
		k.files = append(k.files, r)
	case in.given || k.opt.verbose || r.Shows(k.opt.shown()):
		r.Print(k.c.out, k.opt.shown())
	}
}

// withoutTables reports whether a file has nothing to check: it is of another kind or machine, or has no unwind table.
func withoutTables(err error) bool {
	for _, kind := range []error{dwarfcfa.ErrNotELF, dwarfcfa.ErrNotX86_64, dwarfcfa.ErrNotLoadable,
		dwarfcfa.ErrNoUnwindInfo, relocatable.ErrNotRelocatable} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// check judges one file, and leaves out what is known. With --fix it prints the patch instead, and finds nothing.
func (k *checker) check(in checkInput) (inspect.Checked, error) {
	// The memory of a check, mostly the file's code and tables, hardly grows after the start. For a large file, the
	// default of 100 % would allow as much garbage again for little gain: files of more than 15 MB get less in
	// proportion, down to 8 % from 188 MB on. Small ones keep 100 %, which saves a tenth of their time.
	defer debug.SetGCPercent(debug.SetGCPercent(int(min(100, max(8, (1500<<20)/(in.size+1))))))
	s, err := check.OpenSource(in.name, in.r, in.size, k.opt.source)
	if err != nil {
		return inspect.Checked{}, err
	}
	object := inspect.File{Path: in.path, R: in.r, Size: in.size}
	if k.opt.fix {
		for _, err := range object.Fix(k.c.out, s) {
			k.c.fail(in.name, err)
		}
		return inspect.Checked{Report: &check.Report{}}, nil
	}
	res := inspect.Checked{File: in.name, Lines: map[uint64][]check.Line{}}
	run := check.Options{Workers: k.opt.workers, ABI: k.opt.abi, Progress: k.c.advanceBy}
	if k.opt.verbose {
		run.Listing = func(_ int, lines []check.Line) {
			if len(lines) > 0 {
				res.Lines[lines[0].PC] = lines
			}
		}
	}
	// each function is seen twice: decoded, for what it calls and whether it returns, and then interpreted
	k.c.newBar(int64(2*len(s.Functions)), "checking "+in.title, progressbar.OptionSetItsString("functions"))
	res.Report = s.Run(run)
	k.c.stopBar()
	object.Name(res.Findings)
	k.onlyNew(&res, in.id)
	object.Locate(res.Findings)
	return res, nil
}

// onlyNew removes the findings that are known.
func (k *checker) onlyNew(res *inspect.Checked, id string) {
	ids := k.names.Of(id, res.Findings)
	k.ids = append(k.ids, ids...)
	fresh := []check.Finding{}
	for i := range res.Findings {
		if k.opt.known.of[ids[i]] {
			res.Accepted++
			continue
		}
		fresh, res.IDs = append(fresh, res.Findings[i]), append(res.IDs, ids[i])
	}
	res.Findings = fresh
}

// finish prints what concerns all files, and returns the exit status. JSON and SARIF are one document, so they are
// written here even if no file could be read: an empty list is valid, no output is not.
func (k *checker) finish() int {
	switch {
	case k.opt.json:
		if k.files == nil {
			k.files = []inspect.Checked{}
		}
		output.JSON(k.c.out, k.files)
	case k.opt.sarif:
		files := make([]check.File, len(k.files))
		for i := range k.files {
			files[i] = check.File{Name: k.files[i].File, Findings: k.files[i].Findings, IDs: k.files[i].IDs}
		}
		wd, _ := os.Getwd()
		output.JSON(k.c.out, check.SARIF(compile.Release, wd, files))
	case k.many && !k.opt.fix:
		k.all.Print(k.c.out, k.skipped, k.opt.known.what)
	}
	if k.failed {
		return exitFailed
	}
	return exitDone
}

// rank orders severities: a greater one is worse. A note has 0, as has a severity that is not known.
func rank(s check.Severity) int {
	switch s {
	case check.SeverityError:
		return 2
	case check.SeverityWarning:
		return 1
	}
	return 0
}

// shown returns what is shown as text.
func (opt *checkOptions) shown() inspect.CheckOptions {
	return inspect.CheckOptions{Notes: opt.notes, Listing: opt.verbose, Known: opt.known.what}
}
