//go:build adversary && linux && amd64

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxOutput bounds what a command prints of an input of some 10 KB.
const maxOutput = 16 << 20

// turns runs commands in turn on mutated inputs. Each has IN and OUT in place of the input's and
// the output's path; what a command leaves at OUT although it fails counts as failed.
func (a *adversary) turns(seeds []seed, commands ...string) {
	in, out := filepath.Join(a.dir, "in"), filepath.Join(a.dir, "out")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(a.t, os.WriteFile(in, b, 0o644))
		os.Remove(out)
		args := strings.Fields(commands[i%len(commands)])
		for k := range args {
			args[k] = strings.NewReplacer("IN", in, "OUT", out).Replace(args[k])
		}
		got := a.command(i, args...)
		if len(got.stdout) > maxOutput {
			a.keep(i, "%v: %d bytes of output", args, len(got.stdout))
		}
		if _, err := os.Stat(out); err == nil && got.code != exitDone {
			a.keep(i, "%v: fails, and leaves a file", args)
		}
		return got.code
	})
}

func TestAdversaryCheck(t *testing.T) {
	goBuild(t)
	newAdversary(t, "check").turns(objects(t), "check IN", "check -v IN", "check --json IN", "check --sarif IN",
		"check --notes -v IN", "check --source=debug_frame IN")
}

func TestAdversarySynth(t *testing.T) {
	goBuild(t)
	newAdversary(t, "synth").turns(objects(t), "synth IN", "synth --synth=all IN", "synth --cfi --synth=all IN",
		"synth --list --synth=wrong IN",
		"synth --json --synth=all IN", "synth --synth=all -o OUT IN")
}

func TestAdversaryConvert(t *testing.T) {
	goBuild(t)
	newAdversary(t, "convert").turns(objects(t), "convert --sframe-version=1 IN -o OUT", "convert IN -o OUT",
		"convert --sframe-version=3 --json IN -o OUT", "convert --attach IN -o OUT",
		"convert --source=debug_frame IN -o OUT")
}

// TestAdversarySFrame has objects with .sframe, of the assembler and of convert.
func TestAdversarySFrame(t *testing.T) {
	goBuild(t)
	dir := t.TempDir()
	var seeds []seed
	for i, s := range objects(t) {
		in, section, out := filepath.Join(dir, fmt.Sprint("in", i)), filepath.Join(dir, "section"), filepath.Join(dir,
			"out")
		require.NoError(t, os.WriteFile(in, s.bytes, 0o644))
		version := 1 + i%3
		if ehasm(t, "convert", fmt.Sprint("--sframe-version=", version), in, "-o", section).code != exitDone {
			continue
		}
		if exec.Command("objcopy", "--add-section", ".sframe="+section, in, out).Run() != nil {
			continue
		}
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		seeds = append(seeds, withSFrame(t, fmt.Sprintf("%s, version %d", s.name, version), b))
	}
	require.Greater(t, len(seeds), 6)
	newAdversary(t, "sframe").turns(seeds, "dump --source=sframe --stage=entries IN",
		"dump --source=sframe --stage=rows IN", "dump --source=sframe --stage=table IN",
		"check --source=sframe -v IN", "convert --source=sframe IN -o OUT",
		"dump --source=sframe --stage=rows --json IN")
}

// withSFrame is an elfSeed in which half of the edits hit .sframe.
func withSFrame(t *testing.T, name string, b []byte) seed {
	s := elfSeed(t, name, b)
	magic := bytes.Index(b, []byte{0xe2, 0xde}) // the magic number
	require.Positive(t, magic)
	for range len(s.regions) {
		s.regions = append(s.regions, [2]int{magic, min(magic+600, len(b))})
	}
	return s
}

// TestAdversaryProve has a damaged eh_elf of an object, or a damaged object. Whether what is
// accepted is right, the mutants of package prove tell.
func TestAdversaryProve(t *testing.T) {
	goBuild(t)
	a := newAdversary(t, "prove")
	object := filepath.Join(a.dir, "object")
	require.NoError(t, os.WriteFile(object, withBuildID(t, smallELF(t, 1), []byte("01234567890123456789")), 0o644))
	var seeds []seed
	for _, dispatch := range []string{"tree", "packed"} {
		require.Equal(t, exitDone, ehasm(t, "build", "-q", "--force", "--dispatch", dispatch, object).code)
		b, err := os.ReadFile(object + ".eh_elf.so")
		require.NoError(t, err)
		seeds = append(seeds, elfSeed(t, dispatch, b))
	}
	kept, err := os.ReadFile(object)
	require.NoError(t, err)
	seeds = append(seeds, elfSeed(t, "object", kept))
	a.turns(seeds, "prove --object "+object+" IN", "prove --json --object "+object+" IN",
		"prove --object "+object+" IN", "prove --object IN "+object+".eh_elf.so")
}

// madeAtRunTime is a recording of a process with code at 0x30000 that no file holds, and the path of its jitdump file.
func madeAtRunTime(t *testing.T, dir string) (root, rec, jit string) {
	t.Helper()
	r := newRecorder(t)
	write(t, programOf("main"), r.root, "bin/prog")
	r.exec(1, "prog", "/bin/prog", nil)
	jit = filepath.Join(dir, "jit-1.dump")
	r.Mmap2(r.id(1), 0x30000, 0x2000, 0, "//anon")
	r.Mmap2(r.id(1), 0x50000, 0x1000, 0, jit)
	for i := range uint64(100) {
		r.sample(1, 0x30000+16*i, true)
	}
	rec = filepath.Join(dir, "rec")
	require.NoError(t, os.WriteFile(rec, r.File(), 0o644))
	return r.root, rec, jit
}

func TestAdversaryJITDump(t *testing.T) {
	goBuild(t)
	a := newAdversary(t, "jitdump")
	root, rec, jit := madeAtRunTime(t, a.dir)
	le := binary.LittleEndian
	var b []byte
	// magic, version, size, EM_X86_64, padding, pid: perf's jitdump-specification.txt
	for _, v := range []uint32{0x4a695444, 1, 40, 62, 0, 1} {
		b = le.AppendUint32(b, v)
	}
	b = append(b, make([]byte, 16)...)
	s := seed{name: "jitdump"}
	record := func(id uint32, name string, words ...uint64) {
		size := len(b)
		b = le.AppendUint32(le.AppendUint32(b, id), 0)
		b = append(b, make([]byte, 8)...)
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
		if name != "" {
			b = append(append(b, name...), make([]byte, 17)...)
		}
		le.PutUint32(b[size+4:], uint32(len(b)-size))
		s.regions = append(s.regions, [2]int{size, min(size+64, len(b))})
	}
	for i := range uint64(100) {
		record(0, fmt.Sprint("compiled ", i), 1<<32|1, 0x30000+16*i, 0x30000+16*i, 16, i)
		if i%10 == 9 {
			record(1, "", 1<<32|1, 0x30000+16*i, 0x30000+16*i, 0x31000+16*i, 16, i)
		}
	}
	s.bytes = b
	require.NoError(t, os.WriteFile(jit, b, 0o644))
	require.Contains(t, ehasm(t, "script", "--cache=false", "--kallsyms=", "--symfs", root, "-i", rec, "-o",
		"-").stdout, "compiled 7")
	a.each([]seed{s}, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(jit, b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format",
			adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "/dev/null").code
	})
}

// TestAdversaryNames has damaged names, mangled and not, of C++, Rust and D.
func TestAdversaryNames(t *testing.T) {
	goBuild(t)
	a := newAdversary(t, "names")
	root, rec, _ := madeAtRunTime(t, a.dir)
	in := filepath.Join(root, "tmp", "perf-1.map")
	require.NoError(t, os.MkdirAll(filepath.Dir(in), 0o755))
	names := []string{"_ZNSt6vectorIiSaIiEE9push_backERKi", "_ZNKSt8functionIFvSt3mapISsSt6vectorIS1_IiEEEEEclES4_",
		"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
		"_RNvXs5_NtCs1234_7mycrate3fooINtB5_3BarhENtB5_3Baz3new",
		"_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE", "_D3std5stdio4File6__ctorMFNfAyaAxaZv",
		"_ZN1fI" + strings.Repeat("S_", 40) + "E", "_Z" + strings.Repeat("P", 200) + "v",
		"_RIC3std" + strings.Repeat("B0_", 40) + "E", "_" + strings.Repeat(")>>()", 50), "f(int)::{lambda()#1}",
		"_ZN1aIN1bIN1cIN1dIiEEEEEEvv", "_Z1fIJiiiEEvDpT_", "_ZZ1fvENKUlvE_clEv", "_GLOBAL__sub_I_x", "runtime.gopanic"}
	var m strings.Builder
	for i := range 100 {
		fmt.Fprintf(&m, "%x 10 %s\n", 0x30000+16*i, names[i%len(names)])
	}
	require.NoError(t, os.WriteFile(in, []byte(m.String()), 0o644))
	require.Contains(t, ehasm(t, "script", "--cache=false", "--kallsyms=", "--symfs", root, "-i", rec, "-o",
		"-").stdout, "core::fmt::Formatter::pad")
	a.each([]seed{textSeed("names", m.String())}, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "in"), b, 0o644))
		got := a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format",
			adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "-")
		if len(got.stdout) > maxOutput {
			a.keep(i, "%d bytes of output", len(got.stdout))
		}
		return got.code
	})
}
