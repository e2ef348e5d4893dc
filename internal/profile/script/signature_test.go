package script

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSignatures has the parameters of functions in each format, from each of what
// compilers write.
func TestSignatures(t *testing.T) {
	r, call := inlinedRecording(t)
	opt := r.options("perf")
	plain, _ := r.run(t, opt)
	opt.Names.Signatures = true
	got, s := r.run(t, opt)
	assert.Empty(t, s.Warnings)
	assert.Equal(t, strings.ReplaceAll(plain, " outer+", " outer(int x)+"), got)
	opt.Names.Inline = true
	got, _ = r.run(t, opt)
	for _, name := range []string{" inner(int x)+", " middle(int x)+", " outer(int x)+"} {
		assert.Contains(t, got, name)
	}
	for format, want := range map[string]string{"folded": ";outer(int x);middle(int x)_[i];inner(int x)_[i];work 1\n",
		"svg": "<title>middle(int x)\ninlined.so (1 samples"} {
		opt.format = format
		got, _ = r.run(t, opt)
		assert.Contains(t, got, want)
	}
	opt.format = "json"
	got, _ = r.run(t, opt)
	var line struct {
		Frames []struct{ Sym, Signature string }
	}
	require.NoError(t, json.Unmarshal([]byte(got), &line))
	assert.Equal(t, "outer", line.Frames[3].Sym)
	assert.Equal(t, "outer(int x)", line.Frames[3].Signature)
	assert.Empty(t, line.Frames[0].Signature)
	opt.format = "pprof"
	got, _ = r.run(t, opt)
	p, err := profile.Parse(strings.NewReader(got))
	require.NoError(t, err)
	l := p.Sample[0].Location[1].Line
	require.Len(t, l, 3)
	assert.Equal(t, "middle(int x)", l[1].Function.Name)
	assert.Equal(t, "middle", l[1].Function.SystemName)
	assert.Equal(t, "outer(int x)", l[2].Function.Name)
	assert.Equal(t, "outer", l[2].Function.SystemName)

	// The code is the same, with other debug information.
	for flag, want := range map[string]string{"-gbtf": "outer(int x)", "-g0": "outer"} {
		object := filepath.Join(r.dir, "bin/inlined.so")
		out, err := exec.Command("gcc", flag, "-O2", "-shared", "-fPIC", filepath.Join(r.dir, "inlined.c"), "-o",
			object).CombinedOutput()
		require.NoError(t, err, "%s", out)
		opt := r.options("perf")
		opt.Names.Signatures = true
		got, s := r.run(t, opt)
		assert.Contains(t, got, fmt.Sprintf("\t%16x %s+", call, want), flag)
		assert.Empty(t, s.Warnings)
	}
}

// TestSignatureOfNames has a C++ function whose name says its parameters, and functions of
// which nothing is known.
func TestSignatureOfNames(t *testing.T) {
	r := newRecording(t)
	r.all()
	opt := r.options("perf")
	plain, _ := r.run(t, opt)
	opt.Names.Signatures = true
	got, _ := r.run(t, opt)
	assert.Equal(t, strings.ReplaceAll(plain, " ns::handler+", " ns::handler(int)+"), got)
	opt.Names.Mangled = true
	got, _ = r.run(t, opt)
	assert.Contains(t, got, " _ZN2ns7handlerEi+")
}

// TestKernelSignatures has functions of the running kernel, which has BTF; another kernel's are
// not taken for them.
func TestKernelSignatures(t *testing.T) {
	r := newRecording(t)
	r.all()
	opt := r.options("folded")
	opt.Names.Signatures, opt.Names.HostKernel = true, true
	got, _ := r.run(t, opt)
	want := ";vfs_read(struct file *file, char *buf, size_t count, loff_t *pos)_[k] "
	if prototypes.NewKernel(prototypes.KernelDir).Parameters("", "vfs_read") == "" {
		want = ";vfs_read_[k] "
	}
	assert.Contains(t, got, want)
	assert.Contains(t, got, ";ext_read_[k];")
	opt.Names.HostKernel = false
	got, _ = r.run(t, opt)
	assert.Contains(t, got, ";vfs_read_[k] ")
}
