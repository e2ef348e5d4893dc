package builder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/internal/files/output"
)

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

// do runs a write unless the gate is closed. Many writes may run at once; close waits for all.
func (p *publisher) do(write func() error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return context.Canceled
	}
	return write()
}

// write writes the eh_elf to the job's target.
func (p *publisher) write(j *Job, file []byte) error {
	perm := output.PermCode
	if st, err := os.Stat(j.Name); err == nil { // the vDSO has no file
		perm = output.Narrowed(perm, st)
	}
	return p.do(func() error {
		if err := j.makeFolder(); err != nil {
			return err
		}
		if err := output.WriteFile(j.Target, file, perm); err != nil {
			return err
		}
		if inSystemCache(j.Target) {
			if err := os.Chmod(j.Target, perm); err != nil { // all who can read the object read it, whatever root's umask
				return err
			}
		}
		p.written.Add(1)
		return nil
	})
}

// link makes the job's other names.
func (p *publisher) link(j *Job) error {
	for _, name := range j.Links {
		if err := p.do(func() error { return linkTo(j.Target, name) }); err != nil {
			return err
		}
	}
	return nil
}

// linkTo makes name a symbolic link to target, replacing a file or link.
func linkTo(target, name string) error {
	dir := filepath.Dir(name)
	if err := MakeFolder(dir); err != nil {
		return err
	}
	// The link is relative, so that the folder can be moved.
	to, err := filepath.Rel(filepath.Dir(realPlace(name)), realPlace(target))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if now, err := os.Readlink(name); err == nil && now == to {
		return nil
	}
	return output.Symlink(to, name)
}

// makeFolder makes the folder of the target.
func (j *Job) makeFolder() error {
	dir := filepath.Dir(j.Target)
	if j.inCache != "" {
		return MakeCache(dir)
	}
	return MakeFolder(dir)
}

// MakeFolder makes a folder for eh_elfs. Its group cannot write there, since it could
// replace them.
func MakeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: cannot make the folder: %w", dir, output.BareError(err))
	}
	return nil
}
