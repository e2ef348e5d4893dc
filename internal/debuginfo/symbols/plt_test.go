package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPLT compares with the names that objdump gives.
func TestPLT(t *testing.T) {
	label := regexp.MustCompile(`(?m)^([0-9a-f]{16}) <([^>]*)@plt>:$`)
	for name, flags := range map[string][]string{
		"lazy": {"-Wl,-z,lazy"},
		"now":  {"-Wl,-z,now", "-fno-plt"},
		"ibt":  {"-fcf-protection", "-Wl,-z,ibtplt"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c, prog := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
			// free by its address too, so that its slot is one of .rela.dyn.
			require.NoError(t,
				os.WriteFile(c, []byte("#include <stdio.h>\n#include <stdlib.h>\nvoid (*volatile p)(void *);\n"+
					"int main(void) { p = free; free(malloc(puts(\"x\"))); return getchar(); }\n"), 0o666))
			out, err := exec.Command("gcc", append(flags, "-O1", "-o", prog, c)...).CombinedOutput()
			require.NoError(t, err, string(out))
			out, err = exec.Command("objdump", "-d", "-j", ".plt", "-j", ".plt.got", "-j", ".plt.sec", prog).Output()
			require.NoError(t, err)
			f, err := os.Open(prog)
			require.NoError(t, err)
			defer f.Close()
			table, err := FromELF(f, dir, nil, nil)
			require.NoError(t, err)
			found := label.FindAllSubmatch(out, -1)
			require.NotEmpty(t, found)
			for _, m := range found {
				addr, err := strconv.ParseUint(string(m[1]), 16, 64)
				require.NoError(t, err)
				assert.Equal(t, []string{string(m[2]) + "@plt"}, names(table, addr), "%x", addr)
			}
		})
	}
}
