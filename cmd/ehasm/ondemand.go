package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"ehasm/abi"
	"ehasm/asmgen/plan"
	"ehasm/dwarfcfa"
	"ehasm/elfout"
	"ehasm/internal/find"
)

// ehElf is the eh_elf of an object: that of the cache, or a new one. keep has new
// ones written to the cache; else they are made the quick way, with packed
// dispatch and without a proof against the table.
func ehElf(ctx context.Context, name string, file io.ReaderAt, size int64, keep bool) ([]byte, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, err
	}
	cached := cachePath(object.BuildID())
	if image, ok := readCached(cached, object.BuildID(), keep && canVerify()); ok {
		return image, nil
	}
	keep = keep && cached != ""
	opt := &buildOptions{noVerify: !keep, dispatch: plan.DispatchPacked}
	if keep {
		opt.dispatch = plan.DispatchTree
	}
	id := identity{name: filepath.Base(name), buildID: object.BuildID(), size: size, options: opt.describe(), flags: opt.flags()}
	p, err := compile(ctx, object, id, opt)
	if err != nil {
		return nil, err
	}
	if keep {
		if err := os.MkdirAll(filepath.Dir(cached), 0o777); err != nil {
			return nil, err
		}
		if err := p.image.WriteFile(cached); err != nil {
			return nil, err
		}
	}
	return p.image.Bytes(), nil
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
