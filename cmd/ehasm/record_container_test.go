//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordContainers records two programs of one path, in root folders of their own,
// whose libraries of one path differ; in one they have no build-id; one of the programs and
// its library are deleted while they run. Each frame has the name from its own file.
func TestRecordContainers(t *testing.T) {
	testtool.NeedRoot(t, "for chroot")
	for _, c := range []struct {
		name  string
		flags []string
	}{{"build-id", nil}, {"none", []string{"-Wl,--build-id=none"}}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var run []string
			for _, box := range []string{"first", "second"} {
				root := filepath.Join(dir, box)
				require.NoError(t, os.MkdirAll(filepath.Join(root, "lib64"), 0o755))
				require.NoError(t, os.MkdirAll(filepath.Join(root, "lib/x86_64-linux-gnu"), 0o755))
				for _, path := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"} {
					b, err := os.ReadFile(path)
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(root+path, b, 0o755))
				}
				lib := filepath.Join(dir, "lib.c")
				require.NoError(t, os.WriteFile(lib,
					[]byte("volatile unsigned long n; "+padding(box)+"int "+box+
						"_work(void) { for (n = 0; n < 60000000; n++); return 1; }\n"+
						"int work(void) { return "+box+"_work() + n; }\n"), 0o666))
				program := filepath.Join(dir, "program.c")
				require.NoError(t, os.WriteFile(program,
					[]byte("int work(void); void "+box+
						"_call(void) { work(); work(); } int usleep(unsigned); int creat(const char *, int); int main(void) { "+
						"creat(\"/started\", 384); "+box+"_call(); usleep(300000); return 0; }\n"), 0o666))
				gcc := func(args ...string) {
					out, err := exec.Command("gcc", append(append([]string{"-O0"}, c.flags...),
						args...)...).CombinedOutput()
					require.NoError(t, err, "%s", out)
				}
				so := filepath.Join(root, "lib/libwork.so")
				gcc("-shared", "-fPIC", "-Wl,-soname,libwork.so", "-o", so, lib)
				gcc("-o", filepath.Join(root, "program"), program, so, "-Wl,-rpath,/lib")
				run = append(run,
					"chroot "+root+" /program & for i in $(seq 1000); do [ -e "+root+"/started ] && break; sleep 0.02; done; [ "+box+" = first ] || rm "+
						filepath.Join(root, "program")+"; ")
			}
			r := recordIn(t, dir, "-o", "p.folded", "sh", "-c", strings.Join(run, "")+"wait")
			require.Zero(t, r.code, r.stderr)
			b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
			require.NoError(t, err)
			for _, box := range []string{"first", "second"} {
				assert.True(t, strings.Contains(string(b), "main;"+box+"_call;work;"+box+"_work "), "%s\n%s", box, b)
			}
		})
	}
}

// padding is code that moves what comes after it.
func padding(box string) string {
	if box == "first" {
		return ""
	}
	return "int unused(int a) { return a * 3 + 1; } "
}
