//go:build linux

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// TestReadmeExamples: the programs in the README are those of examples, which tests run.
func TestReadmeExamples(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	found := 0
	for _, b := range blocks(string(text)) {
		if len(b.info) != 2 {
			continue
		}
		found++
		name := b.info[1]
		example, err := os.ReadFile(filepath.Join("..", "examples", strings.TrimSuffix(name, filepath.Ext(name)), name))
		require.NoError(t, err)
		assert.Equal(t, string(example), b.text, name)
	}
	assert.NotZero(t, found)
}

// TestExampleCompile runs examples/compile: it writes a file that ehasm prove accepts, and says what is wrong otherwise.
func TestExampleCompile(t *testing.T) {
	dir := t.TempDir()
	program, object := filepath.Join(dir, "compile"), filepath.Join(dir, "true")
	output := func(name string, args ...string) (string, int) {
		cmd := exec.Command(name, args...)
		out, err := cmd.CombinedOutput()
		require.NotNil(t, cmd.ProcessState, "%v", err)
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := output("go", "build", "-o", program, "../examples/compile")
	require.Zero(t, code, out)
	image, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(object, image, 0o755))

	out, code = output(program, object)
	assert.Zero(t, code, out)
	assert.Regexp(t, `^\d+ rows, proven: true\n$`, out)
	out, code = output("go", "run", "../cmd/ehasm", "prove", object+abi.Suffix)
	assert.Zero(t, code, out)

	out, code = output(program)
	assert.Equal(t, 2, code)
	assert.Equal(t, "usage: compile OBJECT\n", out)
	out, code = output(program, "compile.go")
	assert.Equal(t, 1, code)
	assert.Equal(t, 1, strings.Count(out, "\n"), out)
}
