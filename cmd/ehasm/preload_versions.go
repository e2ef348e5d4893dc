package main

import (
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"

	"github.com/ehasm/ehasm/internal/files/find"
)

// newerThan returns an error that names a version which an object needs of the library at path, and that the library
// lacks: the dynamic loader does not start a program with such an object. The objects are the programs at paths and those
// that the loader maps with them. An object that cannot be read needs nothing.
func newerThan(ctx context.Context, path string, programs []string, loader find.Loader) error {
	has := map[string]bool{}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
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
				return fmt.Errorf("exceptions are left to the system's libgcc: %s needs %s, which this one lacks", quote(in.Path), version)
			}
		}
	}
	return nil
}

// versionsNeeded returns the versions of a library that must be there for an object.
func versionsNeeded(in *find.Input, library string) []string {
	r, _, closer, err := in.Open()
	if err != nil {
		return nil
	}
	defer closer()
	f, err := elf.NewFile(r)
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
