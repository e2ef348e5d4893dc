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
		"_D1p1S3getMxFZi": "p.S.get",
		"_D1p1S6__initZ":  "_D1p1S6__initZ", "_D9p": "_D9p", "_Done": "_Done", "__x_MOD_": "__x_MOD_",
		"__X_MOD_y": "__X_MOD_y", "x_MOD_y": "x_MOD_y",
	} {
		assert.Equal(t, want, Demangle(name), name)
	}
}

// TestD: names as c++filt of binutils 2.40 writes them with --format=dlang, but for parameters of functions, and others
// that are none of functions. Whatever is cut off or doubled, a name is read in bounds.
func TestD(t *testing.T) {
	for name, want := range map[string]string{
		"_D1p1fFZ1gMFNaNbZv":                "p.f.g",
		"_D1p__T4HeapTiZQi5churnMFiZv":      "p.Heap!(int).Heap.churn",
		"_D1p11__T4HeapTiZ4Heap5churnMFiZv": "p.Heap!(int).Heap.churn",
		"_DThn16_3std6digest__T13WrapperDigestTSQBfQBe2md3MD5ZQBf3putMFNbNeMAxhXv":                                  "std.digest.WrapperDigest!(std.digest.md.MD5).WrapperDigest.put",
		"_D1p1S6__ctorMFiZv.constprop.0":                                                                            "p.S.this.constprop.0",
		"_D3std5array__T8AppenderTAyaZQo13ensureAddableMFNaNbNfmZv@plt":                                             "std.array.Appender!(immutable(char)[]).Appender.ensureAddable@plt",
		"_D3std4conv__T7toCharsVii10TaVEQBd5ascii10LetterCasei1TiZQBrFNaNbNiNfiZ6Result5frontMFNaNbNdNiNfZa":        "std.conv.toChars!(10, char, 1, int).toChars.Result.front",
		"_D3std10functional__T9binaryFunVAyaa6_61203d3d2062VQta1_61VQBba1_62Z__TQByTQBrTQBvZQCkFNaNbNiNfKQCmKQCqZb": `std.functional.binaryFun!("a == b", "a", "b").binaryFun!(immutable(char)[], immutable(char)[]).binaryFun`,
		"_D3std11concurrency__T8initOnceS_DQBg3net4curl7CurlAPI7_handlePvZQBrFNcLQkZQn":                             "std.concurrency.initOnce!(std.net.curl.CurlAPI._handle).initOnce",
		"_D2rt7tracegc__T15generateWrapperX10gc_reallocVEQBuQBu8ParamPosi1ZQByFNaNbNfZAya":                          "rt.tracegc.generateWrapper!(gc_realloc, 1).generateWrapper",
		"_D4core8lifetime__T7emplaceTCQBb9exception11SwitchErrorTAyaTmTnZQBtFNaNbNiNfQBwKQyKmKQxZQCi":               "core.lifetime.emplace!(core.exception.SwitchError, immutable(char)[], ulong, typeof(null)).emplace",
		"_D3std9algorithm9iteration__T12FilterResultS_DQBs4file10dirEntriesFAyaQdEQCtQBb8SpanModebZ1fMFNaNbNfSQDvQCd8DirEntryZbTSQEoQCw11DirIteratorZQEh6__ctorMFNcQBjZSQGbQGaQFt__TQFmS_DQGtQFbQEzFQEqQEtQErbZQEeMQEfTQDjZQGz": "std.algorithm.iteration.FilterResult!(std.file.dirEntries.f, std.file.DirIterator).FilterResult.this",
		"_D1p__T1fVbi1Vai97VlN2VG2ii7Z1fFZv":                                       "p.f!(true, 'a', -2L, 7).f",
		"_D1p__T1fVAiA2i1i2VS1p1SS2i1i2Z1fFZv":                                     "p.f!([1, 2], p.S(1, 2)).f",
		"_D1p__T1fVHiiA1i1i2VPvnZ1fFZv":                                            "p.f!([1:2], null).f",
		"_D1p__T1fVmi18446744073709551615Z1fFZv":                                   "p.f!(18446744073709551615uL).f",
		"_D1p__T1fTDFNaNbiZvTPFNbiYvZ1fFZv":                                        "p.f!(void(int) pure nothrow delegate, void(int, ...) nothrow function).f",
		"_D1p__T1fTDxFZvTB2ilTNgPiTNhG4fZ1fFZv":                                    "p.f!(void() delegate const, Tuple!(int, long), inout(int*), __vector(float[4])).f",
		"_D1p__T1fTHiAxaTG3iTPFNbiXvTOS1p1SZ1fFZv":                                 "p.f!(const(char)[][int], int[3], void(int...) nothrow function, shared(p.S)).f",
		"_D3std5regex8internal2ir__T18defaultFactoryImplTaZQxFZ15thompsonFactoryi": "", // a variable
		"_D1p__T1fSQf__T1fZ":                                                       "", "_D1pQbFZv": "", "_D1p__T1fVAyaa9_61Z1fFZv": "", "_D1p__T1fVB9223372036854775807iZ1fFZv": "",
	} {
		if want == "" {
			want = name
		}
		assert.Equal(t, want, Demangle(name), name)
		for i := range name {
			Demangle(name[:i])
			Demangle(name[:i] + name[i/2:])
		}
	}
	reference := func(n int) string { return "Q" + string(rune('A'+n/26)) + string(rune('a'+n%26)) }
	bomb, last := "_D1p__T1fTB2ii", len("_D1p__T1fT")
	for range 60 { // each type has the one before twice
		at := len(bomb) + len("T")
		bomb += "TB2" + reference(at+2-last) + reference(at+5-last)
		last = at
	}
	assert.Equal(t, bomb+"Z1fFZv", Demangle(bomb+"Z1fFZv"))
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
