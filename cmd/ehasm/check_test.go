package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// wrongObject makes a relocatable file in which a push has no row.
func wrongObject(t *testing.T) string {
	testtool.Need(t, "as")
	dir := t.TempDir()
	source, object := filepath.Join(dir, "wrong.s"), filepath.Join(dir, "wrong.o")
	text := ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\npush %rbx\nnop\ncall g\npop %rbx\nret\n.cfi_endproc\n.size f,.-f\n"
	require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
	out, err := exec.Command("as", "-o", object, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return object
}

func TestCheck(t *testing.T) {
	object := wrongObject(t)
	r := ehasm(t, "check", object)
	assert.Equal(t, exitFailed, r.code)
	assert.Empty(t, r.stderr)
	assert.Contains(t, r.stdout, "wrong.o: error: f+0x1 (0x")
	assert.Contains(t, r.stdout, "CFA is rsp+16, the table says rsp+8, at 3 instructions to 0x")
	assert.Contains(t, r.stdout, "1 FDEs, 5 instructions, 100.00 % judged")
	assert.Contains(t, r.stdout, "1 errors, 0 warnings, 0 notes")

	r = ehasm(t, "check", "-v", object)
	assert.Contains(t, r.stdout, "push rbx")
	assert.Regexp(t, `! +[0-9a-f]+  nop +CFA rsp\+16 +\| CFA rsp\+8`, r.stdout)

	r = ehasm(t, "check", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
	assert.Equal(t, exitDone, r.code, r.stdout)
}

// TestCheckOtherRegisters lists rows whose CFA, or whose saved register, is in a register that is no general one.
func TestCheckOtherRegisters(t *testing.T) {
	testtool.Need(t, "as")
	dir := t.TempDir()
	for name, c := range map[string]struct{ row, want string }{
		"cfa":      {".cfi_def_cfa 24, 2062", "CFA r24+2062"},
		"cfa 16":   {".cfi_def_cfa 16, 8", "CFA rip+8"},
		"register": {".cfi_register 3, 24", "CFA rsp+8 rbx=r24"},
		"return":   {".cfi_register 16, 17", "CFA rsp+8 ra=r17"},
	} {
		source, object := filepath.Join(dir, "f.s"), filepath.Join(dir, "f.o")
		text := ".text\n.type f,@function\nf: .cfi_startproc\npush %rbx\nnop\nret\n.cfi_endproc\n" + // with a finding: only those have a listing
			".type g,@function\ng: .cfi_startproc\npush %rbx\n" + c.row + "\npop %rbx\npush %rbx\n.cfi_def_cfa 7, 8\npop %rbx\nret\n.cfi_endproc\n"
		require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
		out, err := exec.Command("as", "-o", object, source).CombinedOutput()
		require.NoError(t, err, "%s", out)
		r := ehasm(t, "check", "-v", object)
		assert.Equal(t, exitFailed, r.code, name)
		assert.Contains(t, r.stdout, c.want, name)
	}
}

func TestCheckJSON(t *testing.T) {
	object := wrongObject(t)
	r := ehasm(t, "check", "--json", object)
	assert.Equal(t, exitFailed, r.code)
	var files []struct {
		File     string
		Judged   int
		Findings []struct {
			Kind, Severity, Function string
			Actual                   string `json:"is"`
			Claimed                  string `json:"says"`
			Instructions             int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &files))
	require.Len(t, files, 1)
	assert.Equal(t, object, files[0].File)
	assert.Equal(t, 5, files[0].Judged)
	require.Len(t, files[0].Findings, 1)
	f := files[0].Findings[0]
	assert.Equal(t, []any{"cfa", "error", "f", "rsp+16", "rsp+8", 3}, []any{f.Kind, f.Severity, f.Function, f.Actual, f.Claimed, f.Instructions})

	r = ehasm(t, "check", "--sarif", object)
	var log struct {
		Version string
		Runs    []struct {
			Tool    struct{ Driver struct{ Name string } }
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &log))
	assert.Equal(t, "2.1.0", log.Version)
	require.Len(t, log.Runs, 1)
	require.Len(t, log.Runs[0].Results, 1)
	assert.Equal(t, "cfa", log.Runs[0].Results[0].RuleID)
	assert.Equal(t, "error", log.Runs[0].Results[0].Level)
}

func TestCheckBaseline(t *testing.T) {
	object := wrongObject(t)
	list := filepath.Join(t.TempDir(), "known")
	r := ehasm(t, "check", "--write-baseline", list, object)
	assert.Equal(t, exitDone, r.code, "what is written is accepted")
	r = ehasm(t, "check", "--baseline", list, object)
	assert.Equal(t, exitDone, r.code, r.stdout)
	assert.Contains(t, r.stdout, "1 accepted by the baseline")
	assert.NotContains(t, r.stdout, "error: ")
	r = ehasm(t, "check", "--baseline", list+".missing", object)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "known.missing")

	// written again with new findings, it keeps the accepted ones
	before, err := os.ReadFile(list)
	require.NoError(t, err)
	r = ehasm(t, "check", "--baseline", list, "--write-baseline", list, object)
	assert.Equal(t, exitDone, r.code, r.stdout)
	after, err := os.ReadFile(list)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))

	for _, text := range []string{"\x7fELF\x02\x01\x01\n", strings.Repeat("a", 2<<20), "f+0x1\n", "# accepted\n\ta\tb\n"} {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
		r = ehasm(t, "check", "--baseline", list, object)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "no finding that --write-baseline wrote")
		assert.Empty(t, r.stdout)
	}
}

// TestFindingID: a baseline accepts no finding of another function that has no name either, and is one line.
func TestFindingID(t *testing.T) {
	one := check.Finding{Kind: check.KindCFA, Start: 0x1000, PC: 0x1001, Actual: "rsp+16", Claimed: "rsp+8"}
	other := one
	other.Start, other.PC = 0x2000, 0x2001
	assert.NotEqual(t, findingID("a.so", &one), findingID("a.so", &other))
	one.Function, other.Function = "f", "f"
	assert.Equal(t, findingID("a.so", &one), findingID("lib/a.so", &other))
	one.Function = "f\t\n\x1b[31m"
	assert.Equal(t, baselineFields-1, strings.Count(findingID("a\n.so", &one), "\t"))
	assert.NotContains(t, findingID("a\n.so", &one), "\n")
}

func TestCheckMisuse(t *testing.T) {
	for _, args := range [][]string{{}, {"--json", "--sarif", "x"}, {"--fail-on", "panic", "x"}, {"-j", "-1", "x"}, {"--what", "x"}} {
		r := ehasm(t, append([]string{"check"}, args...)...)
		assert.Equal(t, exitUsage, r.code, "%v", args)
		assert.Contains(t, r.stderr, "ehasm check --help", "%v", args)
	}
}

func TestCheckBadInput(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no ELF file\n"), 0o600))
	cut := filepath.Join(dir, "cut")
	whole, err := os.ReadFile("/bin/ls")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cut, whole[:len(whole)/3], 0o600))
	for _, path := range []string{text, cut, filepath.Join(dir, "missing"), dir} {
		r := ehasm(t, "check", path)
		assert.Equal(t, exitFailed, r.code, path)
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), "%s: %q", path, r.stderr)
	}
}

// TestCheckGuide holds the example of docs/check.md to what the command prints.
func TestCheckGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "check.md"))
	require.NoError(t, err)
	r := ehasm(t, "check", "-v", wrongObject(t))
	for line := range strings.Lines(r.stdout) {
		assert.Contains(t, string(guide), strings.TrimRight(line, "\n"))
	}
}
