//go:build linux && amd64

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// compiled compiles a program of testdata.
func compiled(t *testing.T, args ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "program")
	for i, a := range args {
		if strings.HasSuffix(a, ".c") || strings.HasSuffix(a, ".s") {
			args[i] = filepath.Join("testdata", a)
		}
	}
	out, err := exec.Command("gcc", append(args, "-o", exe)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return exe
}

// traced runs the command.
func traced(t *testing.T, args ...string) report {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(append([]string{"--json"}, args...), &out, &errs)
	require.Zero(t, code, "%s", errs.String())
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	return r
}

// TestStale has functions that make their frames where those before them had theirs: made rows name no slot of the
// frame before.
func TestStale(t *testing.T) {
	r := traced(t, "--made", "--in", "program", "--", compiled(t, "stale.s"))
	require.Equal(t, "exit status 0", r.Ended)
	o := r.object("program")
	require.Len(t, o.Tables, 2)
	assert.Empty(t, o.Tables[1].Wrong)
	assert.Equal(t, o.Steps, o.Tables[1].Steps["right"])
	assert.Greater(t, o.Steps, 150)
	assert.Zero(t, o.Tables[1].Lost)
}

// TestForce starts functions that nothing calls: just the rows that are wrong are found, whichever paths lead to them.
func TestForce(t *testing.T) {
	exe := compiled(t, "-shared", "-nostdlib", "force.s")
	r := traced(t, "--force", "--times", "200", exe)
	o := r.object("program")
	require.Len(t, o.Tables, 2)
	found := map[string]string{}
	for _, w := range o.Tables[0].Wrong {
		found[w.Place[strings.Index(w.Place, "(")+1:len(w.Place)-1]] = w.Verdict
	}
	assert.Equal(t, map[string]string{
		"wrong_slot+0x1": "wrong register", "wrong_slot+0x3": "wrong register", "wrong_slot+0x6": "wrong register",
		"wrong_cfa+0xd": "wrong CFA", "wrong_cfa+0xf": "wrong CFA", "wrong_path+0x7": "wrong register",
	}, found)
	for _, f := range o.Findings {
		assert.Greater(t, f.Wrong, f.Right, f.Place)
	}
	assert.Len(t, o.Findings, 3)
	assert.Equal(t, "error table", o.Tables[0].Wrong[0].Finding)
	assert.Empty(t, o.Tables[1].Wrong, "made rows")
	assert.Equal(t, 7, r.Forced.Functions, "the PLT's entry, too")
	assert.Greater(t, r.Forced.Returned, 800)
	assert.Positive(t, r.Forced.Open, "an array's end")
}

// TestDrawn decides findings: the rows are wrong only behind comparisons, in a case of a switch, in a part that lies
// apart, on a path past the prologue. What is said of right rows is contradicted.
func TestDrawn(t *testing.T) {
	exe := compiled(t, "-shared", "-nostdlib", "drawn.s")
	r := traced(t, "--force", "--draw", "9", exe)
	found := map[string]string{}
	for _, d := range r.Drawn {
		found[d.Place[strings.Index(d.Place, "(")+1:len(d.Place)-1]] = string(d.Severity) + " " + d.Verdict
	}
	assert.Equal(t, map[string]string{
		"early+0x13": "warning confirmed", "switch+0x1b": "error confirmed", "cold+0x0": "error confirmed",
		"unbalanced+0xc": "error confirmed", "drops+0xc": "error confirmed",
	}, found)

	f, _, err := newForced(exe, 1)
	require.NoError(t, err)
	defer f.c.end()
	for _, x := range f.found {
		for _, shift := range []uint64{6, 0} { // before the push of switch the row is right
			if !strings.Contains(x.Position(), "switch+") {
				continue
			}
			x.PC, x.End = x.PC-shift, x.PC-shift+1
			d, err := f.decide(&x)
			require.NoError(t, err)
			assert.Equal(t, map[uint64]string{6: contradicted, 0: confirmed}[shift], d.Verdict)
			x.PC += shift
		}
	}
}

// TestSum adds a report to itself.
func TestSum(t *testing.T) {
	exe := compiled(t, "-O1", "wrong.c", "wrong.s")
	var out, errs, sums bytes.Buffer
	require.Zero(t, run([]string{"--json", "--in", "program", "--", exe}, &out, &errs), errs.String())
	path := filepath.Join(t.TempDir(), "a.json")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o666))
	require.Zero(t, run([]string{"--sum", path, path}, &sums, &errs), errs.String())
	assert.Contains(t, sums.String(), "2 programs")
	assert.Regexp(t, `wrong_cfa\+0x1\): wrong CFA, 6 steps: CFA -8 bytes`, sums.String())
	require.Equal(t, 1, run([]string{"--sum", exe}, &sums, &errs))
	require.Equal(t, 2, run(nil, &sums, &errs))
}

func (r *report) object(part string) objectReport {
	for _, o := range r.Objects {
		if strings.Contains(filepath.Base(o.Path), part) {
			return o
		}
	}
	return objectReport{}
}

// TestFrames follows threads, signal handlers on both stacks, longjmp and callbacks
// out of libc; the tables of both objects are right, and so must the truth be.
func TestFrames(t *testing.T) {
	exe := compiled(t, "-O2", "frames.c")
	r := traced(t, "--in", "libc.so,program", "--steps", "1000000", "--", exe)
	assert.Equal(t, "exit status 0", r.Ended, "the program sees that its signals came")
	for _, o := range []objectReport{r.object("libc.so"), r.object("program")} {
		s := o.Tables[0]
		assert.Empty(t, s.Wrong, o.Path)
		assert.Greater(t, s.Steps["right"], 3000, o.Path)
		assert.Equal(t, o.Steps, s.Steps["right"]+s.Steps["no row"], o.Path) // .plt.sec has rows, .init has none
		assert.Less(t, s.Steps["no row"], 50, o.Path)
	}
	assert.Greater(t, r.object("libc.so").Steps, 20_000) // of the six threads, too
}

// TestWrong has rows that are known to be wrong: just these are found.
func TestWrong(t *testing.T) {
	exe := compiled(t, "-O1", "wrong.c", "wrong.s")
	r := traced(t, "--in", "program", "--", exe)
	require.Equal(t, "exit status 0", r.Ended)
	found := map[string]string{}
	for _, w := range r.object("program").Tables[0].Wrong {
		name := w.Place[strings.Index(w.Place, "(")+1 : len(w.Place)-1]
		found[name] = w.Verdict
		assert.Positive(t, w.Steps, name)
		if w.Verdict == "wrong CFA" {
			assert.Equal(t, 3, w.Steps, name)
			assert.Equal(t, "CFA -8 bytes from the true one", w.Text, name)
		}
	}
	assert.Equal(t, map[string]string{
		"wrong_cfa+0x1": "wrong CFA", "wrong_cfa+0x3": "wrong CFA", "wrong_cfa+0x6": "wrong CFA",
		"wrong_register+0x1": "wrong register", "wrong_register+0x6": "wrong register",
		"wrong_register+0xa": "wrong register",
	}, found)
	assert.GreaterOrEqual(t, r.object("program").Tables[0].Steps["no row"], 6,
		"no_row is called three times; .init and .fini have no rows either")
}
