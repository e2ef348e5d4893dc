package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/asmgen"
)

// sizeResult is one object compiled with every variant.
type sizeResult struct {
	object
	Ranges, Rows int           // of its table
	Variants     []variantSize // as variants()
	Error        string        `json:",omitempty"`
}

// variantSize is the code and data of one eh_elf.
type variantSize struct{ Text, Data int }

// total is what a walk needs of the file: the rest is ELF.
func (v variantSize) total() int { return v.Text + v.Data }

// ratio is code and data over .eh_frame and .eh_frame_hdr.
func (r sizeResult) ratio(v int) float64 {
	// Above 1: larger than the sections.
	return float64(r.Variants[v].total()) / float64(r.EHFrame+r.Hdr)
}

// measureSize compiles one object with each variant.
func measureSize(o object) (r sizeResult) {
	r.object = o
	t, report, file, err := readTable(o.Path)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Ranges, r.Rows = len(t.Ranges), len(t.Rows)
	for _, v := range variants() {
		var code *asmgen.Code
		if _, code, err = compileTable(t, report, file, v, filepath.Base(o.Path)); err != nil {
			r.Error = fmt.Sprintf("%s: %v", v.Name, err)
			return r
		}
		r.Variants = append(r.Variants, variantSize{len(code.Text), len(code.Data)})
	}
	return r
}

// sframeResult compares the formats on one object.
type sframeResult struct {
	Source  string
	SFrame  int64 // bytes of .sframe
	Size    sizeResult
	Skipped string `json:",omitempty"`
}

// measureSFrame builds instantiations of C++ templates with as --gsframe.
// Without an assembler that knows --gsframe the part is skipped.
func measureSFrame(dir, sources string) (r sframeResult) {
	path := filepath.Join(dir, "sframe.so")
	r.Source = "bench/driver/sframe.cc, g++ -O2 -fPIC -shared -Wa,--gsframe"
	_, err := runCosted(compileLimit, "g++", "-O2", "-fPIC", "-shared", "-Wa,--gsframe", "-o", path,
		filepath.Join(sources, "sframe.cc"))
	if err != nil {
		r.Skipped = err.Error()
		return r
	}
	f, err := elf.Open(path)
	if err != nil {
		r.Skipped = err.Error()
		return r
	}
	defer f.Close()
	s := f.Section(".sframe")
	if s == nil {
		r.Skipped = "the assembler wrote no .sframe"
		return r
	}
	r.SFrame = int64(s.Size)
	o, _ := readObject(path)
	r.Size = measureSize(o)
	return r
}

// firstLine returns the first line of a text.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// buildResult is one object compiled by the command.
type buildResult struct {
	object
	cost
	Error string `json:",omitempty"`
}

// measureBuild runs ehasm build on one object, alone, with the verification that
// it does by default.
func measureBuild(dir string, o object) (r buildResult) {
	r.object = o
	out := filepath.Join(dir, "built")
	defer os.RemoveAll(out)
	var err error
	// --force: the file may be there from an earlier run; -j1: one core.
	r.cost, err = runCosted(compileLimit, filepath.Join(dir, "ehasm"), "build", "-q", "--force", "-j1", "-o", out, o.Path)
	if err != nil {
		r.Error = firstLine(err.Error())
	}
	return r
}
