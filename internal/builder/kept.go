package builder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// The cache of all users has two writers: who follows the packages, and root, who names other files. What root has
// named is in a list beside the cache, a path on each line, so that the first does not take its eh_elfs for left-overs.
// Lines are only appended; who wants them gone edits the file.

func keptFile(cache string) string { return filepath.Join(filepath.Dir(cache), "kept") }

// Kept returns the files and folders in the list that exist.
func Kept(cache string) (paths []string, err error) {
	f, err := input.OpenTrusted(keptFile(cache))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	for path := range strings.SplitSeq(string(b), "\n") {
		if path == "" {
			continue
		}
		switch st, e := os.Stat(path); {
		case e != nil && !errors.Is(e, fs.ErrNotExist):
			err = e
		case e == nil && (st.IsDir() || st.Mode().IsRegular()):
			paths = append(paths, path)
		}
	}
	return paths, err
}

// Keep adds the folders that were named, and the files that were found elsewhere, to the list of the cache of all
// users. With other targets it does nothing.
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

// keep appends the paths that the list lacks. It appends instead of replacing the file, so that two builds at a time
// lose nothing; a path below one that is listed adds nothing.
func keep(cache string, paths []string) error {
	listed, err := Kept(cache)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, path := range paths {
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		if strings.Contains(path, "\n") {
			return fmt.Errorf("%s: no line of %s can hold this name", output.Name(path), keptFile(cache))
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
