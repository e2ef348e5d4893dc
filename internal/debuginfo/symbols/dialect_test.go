package symbols

import (
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDialects: names as gdb 13 writes those of Ada, Fortran and D, and zDecodeString of GHC 9.0 those of Haskell.
func TestDialects(t *testing.T) {
	for name, want := range map[string]string{
		"work__inner__churn": "work.inner.churn", "work__spin__2": "work.spin", "work__spin__nested.0": "work.spin.nested",
		"work__Oadd": `work."+"`, "_ada_main": "main", "work___elabb": "work'Elab_Body", "work__runnerTB": "work.runner",
		"ada__text_io__put_line@plt": "ada.text_io.put_line@plt",
		"work__boxIP":                "", "__gnat_malloc": "", "_Z1fv": "", "a____b": "",
	} {
		assert.Equal(t, want, ada.Decode(name), name)
	}
	for name, want := range map[string]string{
		"base_GHCziBase_map_info": "GHC.Base.map", "WorkziDeep_zdwzlzpzg_info": "Work.Deep.$w<+>",
		"Main_grindzq_info": "Main.grind'", "base_GHCziMaybe_Just_con_info": "GHC.Maybe.Just",
		"ghczmprim_GHCziTuple_Z2T_con_info": "GHC.Tuple.(,)",
		"stg_NO_FINALIZER_info":             "", "XML_size_t": "", "sat_s1_info": "", "_info": "",
	} {
		assert.Equal(t, want, haskell.Decode(name), name)
	}
	for name, want := range map[string]string{
		"__grid_MOD_relax": "grid::relax", "__grid_MOD_relax.constprop.0": "grid::relax.constprop.0",
		"_D3std5stdio4File5closeMFNeZv": "std.stdio.File.close", "_D1p1S6__ctorMFiZv": "p.S.this",
		"_D1p1S3getMxFZi":    "p.S.get",
		"_D1p1fFZ1gMFNaNbZv": "_D1p1fFZ1gMFNaNbZv", "_D1p__T4HeapTiZQi5churnMFiZv": "_D1p__T4HeapTiZQi5churnMFiZv",
		"_D1p1S6__initZ": "_D1p1S6__initZ", "_D9p": "_D9p", "_Done": "_Done", "__x_MOD_": "__x_MOD_",
		"__X_MOD_y": "__X_MOD_y", "x_MOD_y": "x_MOD_y",
	} {
		assert.Equal(t, want, Demangle(name), name)
	}
}

// TestDialectOfFiles: C and C++ have no dialect, and no name of C is changed. A name is decoded where the file is of
// the language.
func TestDialectOfFiles(t *testing.T) {
	for _, name := range []string{"libc.so.6", "libstdc++.so.6", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			out, err := exec.Command("g++", "-print-file-name="+name).Output()
			require.NoError(t, err)
			path = strings.TrimSpace(string(out))
		}
		f, err := elf.Open(path)
		require.NoError(t, err)
		list, err := f.DynamicSymbols()
		require.NoError(t, err)
		require.NotEmpty(t, list)
		for _, s := range list {
			if !strings.HasPrefix(s.Name, "_Z") {
				assert.Equal(t, s.Name, Demangle(s.Name), name)
			}
		}
		file, err := os.Open(path)
		require.NoError(t, err)
		table, err := FromELF(file, "", nil, nil)
		require.NoError(t, err)
		assert.Zero(t, table.dialect, name)
		f.Close()
		file.Close()
	}
	src := t.TempDir() + "/as.c" // what GNAT makes, as C
	require.NoError(t, os.WriteFile(src, []byte("void __gnat_eh(void) {} int pkg__sub(void) { return 1; } int main(void) { return pkg__sub(); }"), 0o666))
	for flags, want := range map[string]string{"-O0": "pkg.sub", "-D__gnat_eh=other": ""} {
		out, err := exec.Command("gcc", flags, "-o", src+".bin", src).CombinedOutput()
		require.NoError(t, err, "%s", out)
		file, err := os.Open(src + ".bin")
		require.NoError(t, err)
		f, err := elf.NewFile(file)
		require.NoError(t, err)
		symbol, err := Lookup(f, "pkg__sub")
		require.NoError(t, err)
		table, err := FromELF(file, "", nil, nil)
		require.NoError(t, err)
		s := table.Find(symbol[0].Value)
		require.NotNil(t, s)
		assert.Equal(t, "pkg__sub", s.Name)
		assert.Equal(t, want, table.Decode(s.Name))
		assert.Equal(t, want, table.Only([]uint64{symbol[0].Value}).Decode(s.Name))
		file.Close()
	}
}
