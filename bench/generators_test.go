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

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"

	"github.com/stretchr/testify/require"
)

// needs skips a test by name where a program or file is missing.
func needs(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if filepath.IsAbs(n) {
			if _, err := os.Stat(n); err != nil {
				t.Skipf("no %s", n)
			}
		} else if _, err := exec.LookPath(n); err != nil {
			t.Skipf("no %s", n)
		}
	}
}

// smallObject builds a shared object of the bench's own plugin and returns its table.
func smallObject(t *testing.T) (*dwarfcfa.Table, *dwarfcfa.Section, string) {
	t.Helper()
	needs(t, "gcc")
	path := filepath.Join(t.TempDir(), "plugin.so")
	out, err := exec.Command("gcc", "-O2", "-fPIC", "-shared", "-o", path, "driver/plugin.c", "driver/modules.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	table, _, o, err := readTable(path)
	require.NoError(t, err)
	sec, err := o.Section(dwarfcfa.SourceAuto)
	require.NoError(t, err)
	return table, sec, path
}

// words is the memory of testdata/steps.c.
type words struct{}

const testBase = 1 << 20

func (words) ReadWord(addr uint64) (uint64, bool) {
	off := addr - testBase
	if off > 8*(1<<13)-8 {
		return 0, false
	}
	if off%8 != 0 {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], 1000+off/8)
		binary.LittleEndian.PutUint64(b[8:], 1000+off/8+1)
		return binary.LittleEndian.Uint64(b[off%8:]), true
	}
	return 1000 + off/8, true
}

// frames are inputs at the first and last pc of every range, and just outside.
func testFrames(table *dwarfcfa.Table) (list [][8]uint64) {
	add := func(pc dwarfcfa.Addr) {
		list = append(list, [8]uint64{uint64(pc), 8192, 8192 + 1024, 11, 12, 13, 14, 15})
	}
	add(table.Low() - 1)
	for _, r := range table.Ranges {
		add(r.Start)
		add(r.End - 1)
		add(r.End)
	}
	return list
}

// runSteps compiles testdata/steps.c with generated code and feeds it frames.
func runGenerated(t *testing.T, s source, table *dwarfcfa.Table, frames [][8]uint64, define ...string) []string {
	t.Helper()
	dir := t.TempDir()
	text := filepath.Join(dir, "code"+s.ext)
	var b bytes.Buffer
	require.NoError(t, s.write(&b, table))
	require.NoError(t, os.WriteFile(text, b.Bytes(), 0o666))
	program := filepath.Join(dir, "steps")
	out, err := exec.Command("gcc", append(define, "-O1", "-o", program, "testdata/steps.c", text)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var in strings.Builder
	for _, f := range frames {
		fmt.Fprintln(&in, strings.Trim(fmt.Sprint(f), "[]"))
	}
	cmd := exec.Command(program)
	cmd.Stdin = strings.NewReader(in.String())
	got, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(got)), "\n")
}

// stepReference answers a frame by the evaluator of package dwarfcfa.
func stepReference(table *dwarfcfa.Table, f [8]uint64, valid uint32) (abi.Regs, abi.Status) {
	regs := abi.Regs{Valid: valid, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP], regs.Reg[abi.RBX] = f[0], testBase+f[1], testBase+f[2], f[3]
	copy(regs.Reg[abi.R12:], f[4:])
	status := table.Step(&regs, words{}, 0)
	return regs, status
}

// unbase makes a value comparable with what the program prints.
func unbase(v, rbp uint64) uint64 {
	if v == testBase+rbp {
		return rbp
	}
	return v
}

func TestOriginalAgreesWithReference(t *testing.T) {
	table, _, _ := smallObject(t)
	frames := testFrames(table)
	got := runGenerated(t, originalSource(), table, frames, "-DSTEP")
	require.Len(t, got, len(frames))
	const four = 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP | 1<<abi.RBX
	steps := 0
	for i, f := range frames {
		regs, status := stepReference(table, f, four)
		var want string
		switch status {
		case abi.StatusOK:
			steps++
			want = fmt.Sprintf("15 %d %d %d %d", regs.Reg[abi.RIP], regs.Reg[abi.RSP]-testBase,
				unbase(regs.Reg[abi.RBP], f[2]), regs.Reg[abi.RBX])
		case abi.StatusOutermost:
			want = fmt.Sprintf("0 0 %s", strings.SplitN(got[i], " ", 3)[2])
		default:
			want = fmt.Sprintf("128 0 %s", strings.SplitN(got[i], " ", 3)[2])
		}
		require.Equal(t, want, got[i], "pc %#x", f[0])
	}
	require.NotZero(t, steps)
}

func TestOnetreeAgreesWithReference(t *testing.T) {
	table, _, _ := smallObject(t)
	frames := testFrames(table)
	got := runGenerated(t, onetreeSource(), table, frames)
	require.Len(t, got, len(frames))
	steps := 0
	for i, f := range frames {
		regs, status := stepReference(table, f, abi.CalleeSaved|1<<abi.RSP|1<<abi.RIP)
		r, found := table.Lookup(dwarfcfa.Addr(f[0]))
		if found && !usable(&table.Rows[r.Row]) {
			require.Contains(t, got[i], "0 -4 ", "pc %#x", f[0])
			continue
		}
		n := 0
		if status == abi.StatusOK {
			n = 1
			steps++
		}
		want := fmt.Sprintf("%d %d %d %d %d %d", n, status, regs.Reg[abi.RIP], regs.Reg[abi.RSP]-testBase,
			unbase(regs.Reg[abi.RBP], f[2]), regs.Reg[abi.RBX])
		for _, v := range regs.Reg[abi.R12 : abi.R15+1] {
			want += fmt.Sprintf(" %d", v)
		}
		require.Equal(t, want, got[i], "pc %#x", f[0])
	}
	require.NotZero(t, steps)
}
