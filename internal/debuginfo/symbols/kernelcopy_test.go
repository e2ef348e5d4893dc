package symbols

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKernelCopy: a copy is used in its boot, for the kernel's own symbols; those of modules come from the kernel each
// time. Only its owner may read it, and it is made again where others may have written it.
func TestKernelCopy(t *testing.T) {
	dir := t.TempDir()
	source, folder := filepath.Join(dir, "kallsyms"), filepath.Join(dir, "cache", "ehasm")
	write := func(text string) { require.NoError(t, os.WriteFile(source, []byte(text), 0o600)) }
	c := KernelCopy{Path: filepath.Join(folder, "kallsyms"), Boot: "1"}
	const core = "ffffffff81000000 T _text\nffffffff81000100 t own\nffffffff81000200 B _end\n"
	find := func(addrs ...uint64) string {
		k, err := c.Kallsyms(source)
		require.NoError(t, err)
		defer k.Close()
		return strings.Join(names(k, addrs...), " ")
	}
	const own, end, module = 0xffffffff81000110, 0xffffffff81000210, 0xffffffffc0000010
	write(core + "ffffffffc0000000 t f\t[m]\n")
	assert.Equal(t, "own _end f", find(own, end, module))
	b, err := os.ReadFile(c.Path)
	require.NoError(t, err)
	assert.Equal(t, "boot_id 1\n"+core, string(b))
	st, err := os.Stat(c.Path)
	require.NoError(t, err)
	assert.Equal(t, ownerOnly, st.Mode().Perm())

	write(strings.ReplaceAll(core, "own", "no") + "ffffffffc0000000 t g\t[n]\n")
	assert.Equal(t, "own _end g", find(own, end, module), "the kernel's own from the copy, another module")
	require.NoError(t, os.Remove(source))
	assert.Equal(t, "own -", find(own, module))

	write(strings.ReplaceAll(core, "own", "next"))
	c.Boot = "2"
	assert.Equal(t, "next", find(own), "another boot")
	require.NoError(t, os.WriteFile(source, []byte(core), 0o600))
	assert.Equal(t, "next", find(own), "from the copy")
	require.NoError(t, os.Chmod(c.Path, 0o666))
	assert.Equal(t, "own", find(own), "others may have written it")
	assert.Equal(t, "own", find(own))
	require.NoError(t, os.Chmod(folder, 0o777))
	write(strings.ReplaceAll(core, "own", "again"))
	assert.Equal(t, "again", find(own), "others may have put it there")

	c = KernelCopy{Path: filepath.Join(dir, "none", "kallsyms"), Boot: "1"}
	write("0000000000000000 T _text\n")
	_, err = c.Kallsyms(source)
	assert.ErrorIs(t, err, ErrHidden)
	assert.NoFileExists(t, c.Path)
	c = KernelCopy{}
	write(core)
	assert.Equal(t, "own", find(own), "without a copy")
}
