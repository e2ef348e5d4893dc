package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"ehasm/abi"
	"ehasm/asmgen/plan"
	"ehasm/dwarfcfa"
	"ehasm/elfout"
	"ehasm/internal/find"
	"ehasm/unwind"
)

// onDemand makes the eh_elfs that a recording needs.
type onDemand struct {
	keep bool // fill the cache

	mu    sync.Mutex
	paths []string // objects that the cache lacks
	vdso  bool     // so is the vDSO
}

// ehElf is the eh_elf of an object: that of the cache, or a new one, made the quick
// way, with packed dispatch and without a proof against the table.
func (d *onDemand) ehElf(ctx context.Context, name string, file io.ReaderAt, size int64) ([]byte, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, err
	}
	cached := cachePath(object.BuildID())
	if image, ok := readCached(cached, object.BuildID(), d.keep && canVerify()); ok {
		return image, nil
	}
	opt := &buildOptions{noVerify: true, dispatch: plan.DispatchPacked}
	id := identity{name: filepath.Base(name), buildID: object.BuildID(), size: size, options: opt.describe(), flags: opt.flags()}
	p, err := compile(ctx, object, id, opt)
	if err != nil {
		return nil, err
	}
	if d.keep && cached != "" {
		d.note(name, file)
	}
	return p.image.Bytes(), nil
}

// note remembers what was made.
func (d *onDemand) note(name string, file io.ReaderAt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := file.(*os.File); ok {
		d.paths = append(d.paths, f.Name())
	} else if name == unwind.VDSOName {
		d.vdso = true
	}
}

// fillCache writes what was made to the cache, as build --cache does: with the tree
// and proven. It is done when the output is written, which need not wait for it. What
// cannot be kept is told and made again the next time.
func (d *onDemand) fillCache(ctx context.Context, workers int, quiet bool, c *console) {
	opt := &buildOptions{Options: find.Options{VDSO: d.vdso}, jobs: workers, quiet: quiet}
	if len(d.paths) == 0 && !d.vdso {
		return
	}
	tell := opt.teller(c)
	err := opt.useCache(os.Getenv)
	if err == nil {
		err = writableFolder(opt.cache)
	}
	if err != nil {
		tell("no eh_elf is kept", err) // once, not for each object
		return
	}
	opt.fillCache(ctx, d.paths, c, tell)
}

// writableFolder makes a folder and tells whether files can be made in it.
func writableFolder(path string) error {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(path, ".try")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// cachePath is where the cache has the eh_elf for a build-id, "" where it cannot
// have one.
func cachePath(buildID []byte) string {
	folder, err := cacheFolder(os.Getenv)
	if err != nil {
		return ""
	}
	name, err := cacheName(buildID)
	if err != nil {
		return ""
	}
	return filepath.Join(folder, name)
}

// readCached reads an eh_elf of the cache, if it is what its name says, and where
// verified is set, if it has been proven against its table.
func readCached(path string, buildID []byte, verified bool) ([]byte, bool) {
	if path == "" {
		return nil, false
	}
	f, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, false
	}
	defer done()
	info, err := elfout.ReadInfo(f)
	if err != nil || info.Note.Version != abi.Version || !bytes.Equal(info.Note.BuildID, buildID) {
		return nil, false
	}
	if verified && !statsOf(info).Verified {
		return nil, false
	}
	image := make([]byte, size)
	if _, err := f.ReadAt(image, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, false
	}
	return image, true
}

// hostVDSO is the vDSO of the running kernel.
func hostVDSO(ctx context.Context) ([]byte, error) {
	found := find.Find(ctx, nil, find.Options{VDSO: true})
	for _, in := range found.Inputs {
		if in.Data != nil {
			return bytes.Clone(in.Data), nil
		}
	}
	for _, p := range found.Problems {
		return nil, p.Err
	}
	return nil, errors.New("no vDSO")
}
