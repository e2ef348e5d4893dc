package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/trust"
)

// job is an input with the paths of its eh_elf.
type job struct {
	*find.Input
	name   string   // of the object, for messages
	target string   // the file to write
	links  []string // other names: symbolic links to target
	cached bool     // target is in the cache
}

// newJobs gives every input its target. Two inputs that would get the same target are
// failures, each reported with the other's name, and neither becomes a job. Names that
// were not requested are given only if they are free.
func newJobs(inputs []*find.Input, dir string, c *console) []*job {
	jobs := make([]*job, 0, len(inputs))
	owner := make(map[string]*job)
	clash := make(map[*job]bool)
	for _, in := range inputs {
		j := &job{Input: in, name: in.Names[0].Path}
		for _, n := range in.Names {
			if n.Also {
				continue
			}
			target := n.Target(dir)
			if other := j.take(target, owner); other != j {
				clash[j], clash[other] = true, true
				c.fail(target, fmt.Errorf("two different files would get this name: %s and %s", quote(other.name), quote(j.name)))
			}
		}
		jobs = append(jobs, j)
	}
	kept := jobs[:0]
	for _, j := range jobs {
		if clash[j] {
			continue
		}
		for _, n := range j.Names {
			if n.Also {
				j.take(n.Target(dir), owner)
			}
		}
		kept = append(kept, j)
	}
	return kept
}

// take gives the job one more target, unless another job has it, which it then
// returns.
func (j *job) take(target string, owner map[string]*job) *job {
	place := realPlace(target)
	switch other := owner[place]; {
	case other == j: // another way to the same name
	case other != nil:
		return other
	case j.target == "":
		owner[place], j.target = j, target
	default:
		owner[place] = j
		j.links = append(j.links, target)
	}
	return j
}

// realPlace names the folder entry that path refers to: two paths get the same
// name if they lead through links to the same entry.
func realPlace(path string) string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	rest := "" // folders that do not exist yet
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest, base)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return filepath.Join(dir, rest, base)
		}
		dir, rest = up, filepath.Join(filepath.Base(dir), rest)
	}
}

// publisher is the gate for all writes, so that an interrupted build can end
// with no write in progress.
type publisher struct {
	mu      sync.RWMutex
	closed  bool
	written atomic.Int64 // images
}

// close waits for writes in progress and lets no other begin.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}

func (p *publisher) do(write func() error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return context.Canceled
	}
	return write()
}

// write writes the image to the job's target.
func (p *publisher) write(j *job, image *elfout.Image) error {
	return p.do(func() error {
		if err := j.makeFolder(); err != nil {
			return err
		}
		if err := image.WriteFile(j.target); err != nil {
			return err
		}
		p.written.Add(1)
		return nil
	})
}

// link makes the job's other names.
func (p *publisher) link(j *job) error {
	for _, name := range j.links {
		if err := p.do(func() error { return linkTo(j.target, name) }); err != nil {
			return err
		}
	}
	return nil
}

// linkTo makes name a symbolic link to target, replacing a file or link.
func linkTo(target, name string) error {
	dir := filepath.Dir(name)
	if err := makeFolder(dir); err != nil {
		return err
	}
	to, err := filepath.Rel(filepath.Dir(realPlace(name)), realPlace(target))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if now, err := os.Readlink(name); err == nil && now == to {
		return nil
	}
	return atomicfile.Symlink(to, name)
}

// makeFolder makes the folder of the target.
func (j *job) makeFolder() error {
	dir := filepath.Dir(j.target)
	if j.cached {
		return trust.MkdirAll(dir)
	}
	return makeFolder(dir)
}

// makeFolder makes a folder for eh_elfs. Its group cannot write there, since it could
// replace them.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: cannot make the folder: %w", dir, bare(err))
	}
	return nil
}

// bare removes operation and paths from an error of package os.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}
