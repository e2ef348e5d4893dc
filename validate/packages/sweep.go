//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/find"
)

// forms are the forms in which each file is built: the default, the small one, and the one with neither callbacks nor a
// writable dynamic section.
var forms = []struct {
	name  string
	flags []string
}{
	{name: "tree"},
	{name: "packed", flags: []string{"--dispatch=packed"}},
	{name: "bare", flags: []string{"--no-deref", "--relro"}},
}

// Steps of a file besides the builds.
const (
	stepProve   = "prove"
	stepCompare = "compare"
)

// sweep measures the files of packages.
type sweep struct {
	ehasm, corpus, folder string
	out                   *bufio.Writer
	files                 int // so far; every tenth is compared
}

// record is one line of the output. Without a File it says that a package was unpacked.
type record struct {
	Package, File, Step string
	Object, Tables      int64         // bytes of the object, and of its unwind sections
	EhElf               int64         // bytes of the eh_elf
	CPU                 time.Duration // of the process
	Peak                int64         // resident bytes of the process
	Rows                int
	Failure             string // "" if the step succeeded
}

// write adds a record to the output.
func (s *sweep) write(r record) {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // the type has no such fields
	}
	s.out.Write(append(b, '\n'))
}

// packages measures the packages that in names, a line each. The next one is downloaded meanwhile.
func (s *sweep) packages(ctx context.Context, in io.Reader) error {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	ready := make(chan map[string]string)
	go func() {
		defer close(ready)
		names := bufio.NewScanner(in)
		for more := true; more && ctx.Err() == nil; {
			var some []string
			for len(some) < batch && more {
				if more = names.Scan(); more {
					some = append(some, names.Text())
				}
			}
			ready <- s.download(ctx, some)
		}
	}()
	for files := range ready {
		for name, file := range files {
			if ctx.Err() == nil {
				s.measure(ctx, name, file)
				s.out.Flush()
			}
		}
	}
	return ctx.Err()
}

// batch is how many packages are downloaded by one call of apt-get, which takes longer to start than for a package.
const batch = 25

// download returns the files of packages by name, "" for those that there are not.
func (s *sweep) download(ctx context.Context, names []string) map[string]string {
	dir := filepath.Join(s.folder, "download")
	files := make(map[string]string)
	if os.MkdirAll(dir, 0o755) != nil {
		return files
	}
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"download"}, names...)...)
	cmd.Dir = dir
	_ = cmd.Run() // what is missing is told below
	for _, name := range names {
		files[name] = ""
		if found, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb")); len(found) > 0 {
			files[name] = found[0]
		}
	}
	return files
}

// measure unpacks a package, measures its ELF files and removes it.
func (s *sweep) measure(ctx context.Context, name, deb string) {
	defer os.Remove(deb)
	root := filepath.Join(s.folder, "root")
	defer os.RemoveAll(root)
	if deb == "" || exec.CommandContext(ctx, "dpkg-deb", "-x", deb, root).Run() != nil {
		s.write(record{Package: name, Failure: "not downloaded or unpacked"})
		return
	}
	found := find.Find(ctx, []string{root}, find.Options{})
	s.write(record{Package: name})
	for _, in := range found.Inputs {
		if ctx.Err() == nil {
			s.file(ctx, name, root, in)
		}
	}
}

// file measures one object.
func (s *sweep) file(ctx context.Context, name, root string, in *find.Input) {
	path, err := filepath.Rel(root, in.Path)
	if err != nil {
		path = in.Path
	}
	out := filepath.Join(s.folder, "out")
	defer os.RemoveAll(out)
	base := record{Package: name, File: path, Object: in.Size}
	for i, form := range forms {
		r := base
		r.Step = form.name
		s.build(ctx, &r, in.Path, filepath.Join(out, form.name), form.flags)
		s.write(r)
		if r.Failure != "" && i == 0 {
			return // another kind of file, or a failure of all forms
		}
	}
	image := filepath.Join(out, forms[0].name, filepath.Base(in.Path)+".eh_elf.so")
	s.step(ctx, base, stepProve, s.ehasm, "prove", image, "--object", in.Path)
	if s.files++; s.files%10 == 1 && s.corpus != "" {
		s.step(ctx, base, stepCompare, s.corpus, "--vdso=false", in.Path)
	}
}

// build builds one form of an object.
func (s *sweep) build(ctx context.Context, r *record, object, out string, flags []string) {
	cmd := exec.CommandContext(ctx, s.ehasm, append([]string{"build", "-j1", "--json", "-o", out, object}, flags...)...)
	printed, err := cmd.Output()
	r.measured(cmd)
	var doc struct {
		Files []struct {
			Output, Error string
			Tables        int64    `json:"table_bytes"`
			Rows          int      `json:"rows"`
			LeftOut       []string `json:"left_out"`
		}
		Errors []string
	}
	switch unreadable := json.Unmarshal(printed, &doc); {
	case unreadable != nil || len(doc.Files) != 1:
		r.Failure = fmt.Sprintf("%v: %.200s %q", err, printed, doc.Errors)
	case err != nil:
		r.Failure = strings.ReplaceAll(doc.Files[0].Error, object, "FILE")
	default:
		f := doc.Files[0]
		r.Tables, r.Rows = f.Tables, f.Rows
		if st, err := os.Stat(f.Output); err == nil {
			r.EhElf = st.Size()
		}
		if len(f.LeftOut) > 0 {
			r.Failure = fmt.Sprintf("left out: %q", f.LeftOut)
		}
	}
}

// step runs another program over an object and writes its record.
func (s *sweep) step(ctx context.Context, r record, step, program string, args ...string) {
	cmd := exec.CommandContext(ctx, program, args...)
	printed, err := cmd.CombinedOutput()
	r.Step = step
	r.measured(cmd)
	if err != nil {
		r.Failure = fmt.Sprintf("%v: %.2000s", err, printed)
	}
	s.write(r)
}

// measured adds what a finished process took.
func (r *record) measured(cmd *exec.Cmd) {
	if cmd.ProcessState == nil { // it was not started
		return
	}
	r.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.Peak = usage.Maxrss << 10
	}
}
