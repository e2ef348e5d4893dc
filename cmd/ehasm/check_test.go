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
	assert.Contains(t, r.stdout, "wrong.o: 5 instructions, 100.00 % checked: 1 error, 0 warnings\n")

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
		// with a finding: only those have a listing
		text := ".text\n.type f,@function\nf: .cfi_startproc\npush %rbx\nnop\nret\n.cfi_endproc\n" +
			".type g,@function\ng: .cfi_startproc\npush %rbx\n" + c.row +
			"\npop %rbx\npush %rbx\n.cfi_def_cfa 7, 8\npop %rbx\nret\n.cfi_endproc\n"
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
	assert.Equal(t, []any{"cfa", "error", "f", "rsp+16", "rsp+8", 3},
		[]any{f.Kind, f.Severity, f.Function, f.Actual, f.Claimed, f.Instructions})

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

// TestCheckBaselinePlaces: a finding that is mended in one file hides none of another file of its name, however the
// files are given; and the files may be moved together.
func TestCheckBaselinePlaces(t *testing.T) {
	testtool.Need(t, "ar")
	wrong, err := os.ReadFile(wrongObject(t))
	require.NoError(t, err)
	right := filepath.Join(t.TempDir(), "right.o")
	as := exec.Command("as", "-o", right, "-")
	as.Stdin = strings.NewReader("f: .cfi_startproc\npush %rbx\n.cfi_def_cfa_offset 16\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n")
	require.NoError(t, as.Run())
	mended, err := os.ReadFile(right)
	require.NoError(t, err)
	const a, b, lib = "build/a/x.o", "build/b/x.o", "build/lib.a"
	for name, paths := range map[string][]string{
		"files": {a, b}, "one above": {"build/x.o", b}, "folders": {"build/a", "build/b"}, "folder": {"build"},
		"both": {"build/a", b}, "library": {lib},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			in := func(paths []string) (out []string) {
				for _, path := range paths {
					out = append(out, filepath.Join(top, path))
				}
				return out
			}
			fill := func(first, second []byte) {
				for _, path := range in([]string{a, b}) {
					require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				}
				writeFile(t, filepath.Join(top, a), first)
				writeFile(t, filepath.Join(top, "build/x.o"), first)
				writeFile(t, filepath.Join(top, b), second)
				require.NoError(t, os.RemoveAll(filepath.Join(top, lib)))
				if name == "library" {
					out, err := exec.Command("ar", append([]string{"qc"}, in([]string{lib, a, b})...)...).CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
			}
			list := filepath.Join(t.TempDir(), "known")
			fill(wrong, mended)
			require.Equal(t, exitDone, ehasm(t, append([]string{"check", "--write-baseline", list}, in(paths)...)...).code)
			r := ehasm(t, append([]string{"check", "--baseline", list}, in(paths)...)...)
			assert.Equal(t, exitDone, r.code, r.stdout)
			moved := filepath.Join(t.TempDir(), "elsewhere")
			require.NoError(t, os.Rename(top, moved))
			top = moved
			r = ehasm(t, append([]string{"check", "--baseline", list}, in(paths)...)...)
			assert.Equal(t, exitDone, r.code, r.stdout)
			fill(mended, wrong)
			r = ehasm(t, append([]string{"check", "--baseline", list}, in(paths)...)...)
			assert.Equal(t, exitFailed, r.code, r.stdout)
		})
	}
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

	for _, text := range []string{"\x7fELF\x02\x01\x01\n", strings.Repeat("a", 2<<20), "f+0x1\n",
		"# accepted\n\ta\tb\n"} {
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
		r = ehasm(t, "check", "--baseline", list, object)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "no finding that this release's --write-baseline wrote")
		assert.Empty(t, r.stdout)
	}
}

// parts is two FDEs of one function: n of them push without a row.
func parts(t *testing.T, dir, name string, n int) string {
	testtool.Need(t, "as")
	source, object := filepath.Join(dir, name+".s"), filepath.Join(dir, name+".o")
	text := ".text\n.globl f\n.type f,@function\nf:\n"
	for i := range 2 {
		row, back := "", ""
		if i >= n {
			row, back = ".cfi_adjust_cfa_offset 8\n", ".cfi_adjust_cfa_offset -8\n"
		}
		text += ".cfi_startproc\npush %rax\n" + row + "nop\npop %rax\n" + back + "ret\n.cfi_endproc\n"
	}
	require.NoError(t, os.WriteFile(source, []byte(text+".size f,.-f\n"), 0o600))
	out, err := exec.Command("as", "-g", "-o", object, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return object
}

// TestCheckNewFinding: a finding in a second FDE of a function is another than the same one in the first.
func TestCheckNewFinding(t *testing.T) {
	dir := t.TempDir()
	object, list := parts(t, dir, "m", 1), filepath.Join(dir, "known")
	require.Equal(t, exitDone, ehasm(t, "check", "--write-baseline", list, object).code)
	require.Equal(t, exitDone, ehasm(t, "check", "--baseline", list, object).code)
	old := filepath.Join(dir, "old.o")
	require.NoError(t, os.Rename(object, old))
	parts(t, dir, "m", 2)
	for _, args := range [][]string{{"--baseline", list, object}, {"--diff", old, object}} {
		r := ehasm(t, append([]string{"check"}, args...)...)
		assert.Equal(t, exitFailed, r.code, args)
		assert.Contains(t, r.stdout, "m.o: error: f+0x5 (", args)
		assert.NotContains(t, r.stdout, "f+0x1 (", args)
		assert.Contains(t, r.stdout, "1 error,", args)
	}
	r := ehasm(t, "check", "--diff", object, old)
	assert.Equal(t, exitDone, r.code, "a finding less is no failure")

	var log struct {
		Runs []struct {
			Results []struct {
				Fingerprints map[string]string `json:"partialFingerprints"`
				Locations    []struct {
					Physical struct {
						Artifact struct{ URI string } `json:"artifactLocation"`
						Region   struct{ StartLine int }
					} `json:"physicalLocation"`
				}
			}
		}
	}
	t.Chdir(dir)
	r = ehasm(t, "check", "--sarif", "m.o")
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &log))
	results := log.Runs[0].Results
	require.Len(t, results, 2)
	assert.NotEqual(t, results[0].Fingerprints, results[1].Fingerprints)
	for i, line := range []int{7, 13} {
		place := results[i].Locations[0].Physical
		assert.Equal(t, "m.s", place.Artifact.URI)
		assert.Equal(t, line, place.Region.StartLine)
	}
}

// TestCheckMoved: code that a linker moves keeps its findings' identities.
func TestCheckMoved(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	object, list := parts(t, dir, "m", 1), filepath.Join(dir, "known")
	for i, address := range []string{"0x10000", "0x20000"} {
		lib := filepath.Join(dir, "m.so")
		out, err := exec.Command("gcc", "-shared", "-nostdlib", "-Wl,-Ttext="+address, "-o", lib,
			object).CombinedOutput()
		require.NoError(t, err, "%s", out)
		args := []string{"check", "--baseline", list, lib}
		if i == 0 {
			args[1] = "--write-baseline"
		}
		assert.Equal(t, exitDone, ehasm(t, args...).code, address)
	}
}

// TestCheckMany checks a folder with a static library, and compares lines with addr2line.
func TestCheckMany(t *testing.T) {
	testtool.Need(t, "ar")
	testtool.Need(t, "addr2line")
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.Mkdir(sub, 0o700))
	first, second := parts(t, dir, "one", 1), parts(t, dir, "a_name_of_more_than_16_bytes", 2)
	data := filepath.Join(dir, "data.o")
	out, err := exec.Command("as", "-o", data, "/dev/null").CombinedOutput()
	require.NoError(t, err, "%s", out)
	library := filepath.Join(sub, "lib.a")
	out, err = exec.Command("ar", "rc", library, first, second, data).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(filepath.Join(sub, "text.a"), []byte("no archive"), 0o600))
	require.NoError(t, os.Remove(second))

	r := ehasm(t, "check", library)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, "lib.a(a_name_of_more_than_16_bytes.o): error: f+0x5 (")
	assert.Contains(t, r.stdout, "2 files checked, 1 without unwind tables skipped: 3 errors, 0 warnings")
	assert.Empty(t, r.stderr)

	r = ehasm(t, "check", dir)
	assert.Contains(t, r.stdout, "3 files checked, 3 without unwind tables skipped: 4 errors, 0 warnings")
	line, err := exec.Command("addr2line", "-j", ".text", "-e", first, "1").Output()
	require.NoError(t, err)
	assert.Contains(t, r.stdout, strings.TrimSpace(string(line))+"): CFA is rsp+16")

	// the same findings in another place
	list := filepath.Join(t.TempDir(), "known")
	require.Equal(t, exitDone, ehasm(t, "check", "--write-baseline", list, dir).code)
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(dir, moved))
	r = ehasm(t, "check", "--baseline", list, moved)
	assert.Equal(t, exitDone, r.code, r.stdout)
	assert.Contains(t, r.stdout, "4 accepted by the baseline")
	assert.Equal(t, exitDone, ehasm(t, "check", "--diff", moved, moved).code)

	require.NoError(t, os.Truncate(filepath.Join(moved, "sub", "lib.a"), 300))
	r = ehasm(t, "check", moved)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "lib.a: malformed archive")
}

func TestCheckMisuse(t *testing.T) {
	for _, args := range [][]string{{}, {"--json", "--sarif", "x"}, {"--fail-on", "panic", "x"}, {"-j", "-1", "x"},
		{"--what", "x"}, {"--diff", "x"}, {"--diff", "--baseline", "k", "x", "y"}} {
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
