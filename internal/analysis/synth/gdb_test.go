package synth

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// TestGDB lets gdb take a stack through assembly without tables: it ends there, and
// with a debug file, which gdb finds by its build-id, it does not.
func TestGDB(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	write("leaf.s", `
	.text
	.globl	leaf
	.type	leaf, @function
leaf:	push	%rbx
	sub	$40, %rsp
	mov	%rdi, %rbx
	call	*%rsi
	add	$40, %rsp
	pop	%rbx
	ret
	.size	leaf, .-leaf
	.section .note.GNU-stack,"",@progbits
`)
	write("main.c", `
long leaf(long, long (*)(long));
__attribute__((noinline)) long back(long x) { return x + 1; }
__attribute__((noinline)) long middle(long x) { return leaf(x, back) * 2 + 1; }
int main(void) { return middle(3) != 9; }
`)
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	run("gcc", "-shared", "-Wl,--build-id", "-o", "libleaf.so", "leaf.s")
	run("gcc", "-O1", "-o", "main", "main.c", "./libleaf.so", "-Wl,-rpath,"+dir)
	backtrace := func() []string {
		out := run("gdb", "-nx", "-q", "-batch", "-ex", "set debuginfod enabled off", "-ex",
			"set debug-file-directory "+dir,
			"-ex", "break back", "-ex", "run", "-ex", "bt", "./main")
		var names []string
		for _, m := range regexp.MustCompile(`(?m)^#\d+ .* in (\S+) \(`).FindAllStringSubmatch(out, -1) {
			names = append(names, m[1])
		}
		return names
	}
	whole := []string{"back", "leaf", "middle", "main"}
	require.NotEqual(t, whole, backtrace(), "gdb needs no help")

	lib := filepath.Join(dir, "libleaf.so")
	o, err := dwarfcfa.Open(lib)
	require.NoError(t, err)
	defer o.Close()
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	image, err := DebugFile(o.File(), Section(r.Functions))
	require.NoError(t, err)
	id := hex.EncodeToString(o.BuildID())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".build-id", id[:2]), 0o777))
	write(filepath.Join(".build-id", id[:2], id[2:]+".debug"), string(image))
	assert.Equal(t, whole, backtrace())
}
