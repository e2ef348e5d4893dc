package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attachProgram finds PT_GNU_SFRAME as a C library does, and uses what a moved table of program headers could break.
const attachProgram = `#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
static __thread int own = 41;
static char zero[1 << 20];
static int find(struct dl_phdr_info *i, size_t size, void *found) {
	for (int k = 0; k < i->dlpi_phnum; k++)
		if (i->dlpi_phdr[k].p_type == 0x6474e554) {
			unsigned char *p = (unsigned char *)(i->dlpi_addr + i->dlpi_phdr[k].p_vaddr);
			if (p[0] == 0xe2 && p[1] == 0xde) ++*(int *)found;
		}
	return 0;
}
int main(void) {
	int found = 0;
	dl_iterate_phdr(find, &found);
	for (size_t i = 0; i < sizeof zero; i++) found += zero[i];
	char *m = calloc(1000, 1000);
	printf("%d %d\n", found, ++own + m[999999]);
}`

// TestAttach: programs of all kinds, and a C library, run with a section attached, find it in memory, and readelf has
// no complaint. As a source, it gives the steps that the other tables give.
func TestAttach(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	require.NoError(t, os.WriteFile(source, []byte(attachProgram), 0o600))
	attach := func(in, out string) string {
		out = filepath.Join(dir, out)
		r := ehasm(t, "convert", "--attach", in, "-o", out)
		require.Zero(t, r.code, r.stderr)
		said, err := exec.Command("readelf", "-aW", out).CombinedOutput()
		require.NoError(t, err)
		assert.NotContains(t, string(said), "readelf: ")
		assert.Contains(t, string(said), "GNU_SFRAME")
		return out
	}
	want := "1 42\n"
	for _, kind := range []string{"-pie", "-no-pie", "-static", "-static-pie"} {
		program := filepath.Join(dir, "program"+kind)
		said, err := exec.Command("gcc", "-O1", kind, "-o", program, source).CombinedOutput()
		require.NoError(t, err, "%s", said)
		with := attach(program, "with"+kind)
		out, err := exec.Command(with).Output()
		require.NoError(t, err, kind)
		assert.Equal(t, want, string(out), kind)
		sameSteps(t, with)
	}
	attach("/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6")
	cmd := exec.Command(filepath.Join(dir, "with-pie"))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "2 42\n", string(out))

	again := ehasm(t, "convert", "--attach", filepath.Join(dir, "with-pie"), "-o", filepath.Join(dir, "twice"))
	assert.Equal(t, exitFailed, again.code)
	assert.Contains(t, again.stderr, "has .sframe in memory already")
	assert.Equal(t, exitUsage,
		ehasm(t, "convert", "--attach", "--address=0x1000", source, "-o", filepath.Join(dir, "x")).code)
}

// sameSteps compares the caller's rip, rsp and rbp by .sframe and by the other tables at every address.
func sameSteps(t *testing.T, path string) {
	o, err := dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	tables := map[dwarfcfa.Source]*dwarfcfa.Table{}
	for _, s := range []dwarfcfa.Source{dwarfcfa.SourceAuto, dwarfcfa.SourceSFrame} {
		tables[s], _, err = dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{Source: s})
		require.NoError(t, err)
	}
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	text := f.Section(".text")
	compared := 0
	for pc := text.Addr; pc < text.Addr+text.Size; pc++ {
		got, want := stepAt(tables[dwarfcfa.SourceSFrame], pc), stepAt(tables[dwarfcfa.SourceAuto], pc)
		if got == nil || want == nil {
			continue // what the version has no words for, or padding, to which tables extend a function's last row
		}
		compared++
		require.Equal(t, want, got, "%s: %#x", path, pc)
	}
	assert.Greater(t, compared, 100)
}

// wordsOf is memory in which each word holds a number that its address decides.
type wordsOf struct{}

func (wordsOf) ReadWord(addr uint64) (uint64, bool) { return addr * 0x9e3779b97f4a7c15, true }

// stepAt returns the caller's rip, rsp and rbp at pc by a table, for registers with known values; nil without a row.
func stepAt(table *dwarfcfa.Table, pc uint64) *[3]uint64 {
	var regs abi.Regs
	for i := range regs.Reg {
		regs.Reg[i] = uint64(i+1) << 40
	}
	regs.Reg[abi.RIP], regs.Valid, regs.Exact = pc, abi.AllRegs, 1
	if table.Step(&regs, wordsOf{}, 0) != abi.StatusOK {
		return nil
	}
	return &[3]uint64{regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP]}
}
