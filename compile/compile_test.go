package compile_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestAsBuild: Object's bytes are those that ehasm build writes, for objects of all kinds.
func TestAsBuild(t *testing.T) {
	testtool.Long(t) // it builds the whole command
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, out)
	}
	ehasm := filepath.Join(dir, "ehasm")
	run("go", "build", "-buildvcs=false", "-o", ehasm, "../cmd/ehasm") // the version of a checkout is its commit's
	source := filepath.Join(dir, "throws.cc")
	require.NoError(t, os.WriteFile(source,
		[]byte("struct s { ~s(); };\nvoid f(int);\nvoid g(int x) { s a; try { f(x); } catch (int) { f(0); } }\n"),
		0o644))
	for _, c := range []struct {
		name  string
		flags []string
		opt   compile.Options
		build []string
	}{
		{"plain", []string{"-fno-exceptions", "-xc"}, compile.Options{}, nil},
		{"exceptions", nil, compile.Options{}, nil},
		{"left out", nil, compile.Options{NoExceptions: true}, []string{"--no-exceptions"}},
		{"no build-id", []string{"-Wl,--build-id=none"}, compile.Options{}, nil},
		{"packed", nil, compile.Options{Dispatch: compile.Packed}, []string{"--dispatch=packed"}},
		{"relro, synth", nil, compile.Options{Relro: true, Synth: compile.SynthMissing},
			[]string{"--relro", "--synth=missing"}},
		{"no deref", nil, compile.Options{NoDeref: true}, []string{"--no-deref"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lib := filepath.Join(t.TempDir(), "lib.so")
			src := source
			if c.name == "plain" {
				src = filepath.Join(dir, "plain.c")
				require.NoError(t, os.WriteFile(src, []byte("int f(int x) { return x + 1; }\n"), 0o644))
			}
			run("g++", append(append([]string{"-O2", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-Wl,-z,lazy"},
				c.flags...), "-o", lib, src)...)
			run(ehasm, append(append([]string{"build", "-q"}, c.build...), lib)...)
			want, err := os.ReadFile(lib + abi.Suffix)
			require.NoError(t, err)

			object, err := dwarfcfa.Open(lib)
			require.NoError(t, err)
			defer object.Close()
			made, err := compile.Object(context.Background(), object, c.opt, compile.Target{})
			require.NoError(t, err)
			assert.True(t, bytes.Equal(want, made.Image.Bytes()), "Object makes other bytes than ehasm build")

			info, err := elfout.ReadInfo(bytes.NewReader(want))
			require.NoError(t, err)
			assert.True(t, compile.Identify(object, c.opt, compile.Target{}).Current(info))
			assert.False(t, compile.Identify(object, compile.Options{Source: dwarfcfa.SourceDebugFrame},
				compile.Target{}).Current(info))

			proof, err := compile.Prove(context.Background(), want, object)
			require.NoError(t, err)
			assert.NotZero(t, proof.Borders)
			if f, err := ehelf.OpenFor(lib+abi.Suffix, object.File()); assert.NoError(t, err) {
				f.Close()
			}
		})
	}
	testtool.DependsOn(t, "../cmd/ehasm", "../asmgen", "../elfout")
}
