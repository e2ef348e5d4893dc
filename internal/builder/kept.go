package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/files/trust"
)

// The cache of all users has two writers: who follows the packages, and root, who names other files. What root has named is in
// a list beside the cache, a path on each line, so that the first does not take its eh_elfs for left-overs. Lines are only
// appended; who wants them gone edits the file.

func keptFile(cache string) string { return filepath.Join(filepath.Dir(cache), "kept") }

// Kept returns the files and folders in the list that exist.
func Kept(cache string) ([]string, error) {
	paths, err := readKept(cache)
	if err != nil {
		return nil, err
	}
	var failed error
	paths = slices.DeleteFunc(paths, func(path string) bool {
		st, err := os.Stat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
		return err != nil || !st.IsDir() && !st.Mode().IsRegular()
	})
	return paths, failed
}

func readKept(cache string) ([]string, error) {
	f, err := trust.Open(keptFile(cache))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return slices.DeleteFunc(strings.Split(string(b), "\n"), func(line string) bool { return line == "" }), err
}

// Keep adds the folders that were named, and the files that were found elsewhere, to the list of the cache of all users. With other
// targets it does nothing.
func (p *Plan) Keep(named []string, cache string) error {
	if cache != SystemCache {
		return nil
	}
	var paths []string
	for _, path := range named {
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			paths = append(paths, path)
		}
	}
	for _, j := range p.Jobs {
		if j.Data == nil {
			paths = append(paths, j.Name)
		}
	}
	return keep(cache, paths)
}

func keep(cache string, paths []string) error {
	listed, err := readKept(cache)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, path := range paths {
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		if strings.Contains(path, "\n") {
			return fmt.Errorf("%s: no line of %s can hold this name", shown.Name(path), keptFile(cache))
		}
		if !below(path, listed) {
			listed = append(listed, path)
			text.WriteString("\n" + path + "\n") // an earlier writer may have been killed within a line
		}
	}
	if text.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(keptFile(cache), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = f.Chmod(0o644) // all users read it, whatever root's umask
	if err == nil {
		_, err = f.Write(text.Bytes())
	}
	return errors.Join(err, f.Close())
}

// below reports whether a path is one of the others or below it.
func below(path string, others []string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return path == other || strings.HasPrefix(path, strings.TrimSuffix(other, "/")+"/")
	})
}

// SystemNames returns the names in the cache of all users of the objects at paths and below, of those that root has named, and
// of the vDSO. No eh_elf may be removed if it fails, as CacheNames.
func SystemNames(ctx context.Context, cache string, paths []string) (map[string]bool, error) {
	kept, err := Kept(cache)
	if err != nil {
		return nil, err
	}
	names, err := CacheNames(ctx, paths)
	if err != nil {
		return nil, err
	}
	for i := range paths {
		if paths[i], err = filepath.Abs(paths[i]); err != nil {
			return nil, err
		}
	}
	kept = slices.DeleteFunc(kept, func(path string) bool { return below(path, paths) })
	found := find.Find(ctx, kept, find.Options{})
	for _, p := range found.Problems {
		return nil, fmt.Errorf("%s: %w", shown.Name(p.Path), p.Err)
	}
	return names, errors.Join(addNames(names, found.Inputs), ctx.Err())
}
