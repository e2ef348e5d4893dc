package find

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lddPaths returns the files that ldd names for path, links resolved.
func lddPaths(t *testing.T, path string) []string {
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil // "not a dynamic executable"
	}
	var paths []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "statically linked") {
			return nil
		}
		if _, after, ok := strings.Cut(line, " => "); ok {
			line = after
		}
		file, _, _ := strings.Cut(line, " (0x")
		if strings.HasPrefix(file, "/") {
			real, err := filepath.EvalSymlinks(file)
			require.NoError(t, err)
			paths = append(paths, real)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// closurePaths returns what we find, links resolved.
func closurePaths(t *testing.T, r *resolver, path string) []string {
	found, err := r.closure(path, func(by, name string, err error) {
		t.Errorf("%s: %s: %v", by, name, err)
	})
	require.NoError(t, err)
	var paths []string
	for _, p := range found {
		real, err := filepath.EvalSymlinks(p)
		require.NoError(t, err)
		paths = append(paths, real)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func TestClosureEqualsLdd(t *testing.T) {
	testtool.Need(t, "ldd")
	files, err := filepath.Glob("/usr/bin/*")
	require.NoError(t, err)
	libs, err := filepath.Glob("/usr/lib/x86_64-linux-gnu/*.so.*")
	require.NoError(t, err)
	files = append(files, libs...)
	r := newResolver(HostLoader(func(string) string { return "" }))
	compared := 0
	step := 1 + len(files)/150 // each takes ldd some milliseconds
	for i := 0; i < len(files); i += step {
		// ldd takes $ORIGIN from a link's own folder, the kernel from the file's.
		file, err := filepath.EvalSymlinks(files[i])
		if err != nil {
			continue
		}
		f := r.open(file)
		if f.err != nil || len(f.dyn.needed) == 0 {
			continue
		}
		want := lddPaths(t, file)
		if want == nil {
			continue
		}
		compared++
		assert.Equal(t, want, closurePaths(t, r, file), file)
	}
	if compared == 0 {
		t.Skip("needs a dynamically linked file")
	}
	t.Logf("%d files compared", compared)
}

// cc links with gcc.
func cc(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestClosureRpath builds a program whose libraries are found in every way there
// is, and compares with ldd, which asks the dynamic loader itself.
func TestClosureRpath(t *testing.T) {
	testtool.Need(t, "gcc", "ldd")
	dir := t.TempDir()
	below := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	for _, d := range []string{"bin", "run", "env", "deep", "hw/glibc-hwcaps/x86-64-v2", "elsewhere"} {
		require.NoError(t, os.MkdirAll(below(d), 0o755))
	}
	src := below("a.c")
	require.NoError(t, os.WriteFile(src, []byte("int NAME(void) { return 1; }\n"), 0o644))
	lib := func(path, soname string, args ...string) {
		name := strings.TrimSuffix(strings.TrimPrefix(soname, "lib"), ".so")
		cc(t, append([]string{"-shared", "-fPIC", "-DNAME=f_" + name, "-o", path, "-Wl,-soname," + soname, src,
			"-Wl,--no-as-needed"}, args...)...)
	}
	lib(below("env", "libenv.so"), "libenv.so")
	lib(below("deep", "libdeep.so"), "libdeep.so")
	lib(below("hw/glibc-hwcaps/x86-64-v2", "libhw.so"), "libhw.so")
	lib(below("hw", "libhw.so"), "libhw.so")
	lib(below("elsewhere", "libdirect.so"), "libdirect.so")
	// libnear needs libdeep and has no path: the program's DT_RPATH is inherited.
	lib(below("run", "libnear.so"), "libnear.so", below("deep", "libdeep.so"))
	// a wrong-class file of the right name stands in the way
	require.NoError(t, os.WriteFile(below("run", "libenv.so"), append([]byte("\x7fELF\x01\x01\x01"),
		make([]byte, 100)...), 0o644))

	main := below("main.c")
	require.NoError(t, os.WriteFile(main, []byte("int main(void) { return 0; }\n"), 0o644))
	libs := []string{below("run", "libnear.so"), below("env", "libenv.so"), below("hw", "libhw.so"),
		below("elsewhere", "libdirect.so")}
	for name, flags := range map[string][]string{
		"rpath":   {"-Wl,--disable-new-dtags,-rpath,$ORIGIN/../run:$ORIGIN/../deep:${ORIGIN}/../hw:" + below("elsewhere")},
		"runpath": {"-Wl,--enable-new-dtags,-rpath,$ORIGIN/../run:$ORIGIN/../deep:${ORIGIN}/../hw:" + below("elsewhere")},
	} {
		t.Run(name, func(t *testing.T) {
			prog := below("bin", name)
			args := append([]string{"-o", prog, main, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"}, libs...)
			cc(t, append(args, flags...)...)
			link := below(name + "-link") // $ORIGIN is the file's folder, not the link's
			require.NoError(t, os.Symlink(prog, link))

			libraryPath := below("env")
			if name == "runpath" {
				libraryPath += ":" + below("deep") // DT_RUNPATH is not inherited
			}
			t.Setenv("LD_LIBRARY_PATH", libraryPath)
			r := newResolver(HostLoader(os.Getenv))
			want := lddPaths(t, prog)
			require.NotEmpty(t, want)
			assert.Equal(t, want, closurePaths(t, r, prog))
			assert.Equal(t, want, closurePaths(t, r, link))

			t.Setenv("LD_LIBRARY_PATH", "")
			var missing []string
			_, err := newResolver(HostLoader(os.Getenv)).closure(prog, func(by, name string, err error) {
				missing = append(missing, filepath.Base(by)+": "+name+": "+err.Error())
			})
			require.NoError(t, err)
			wantMissing := []string{name + ": DT_NEEDED libenv.so: " + errNotInFolders.Error()}
			if name == "runpath" {
				wantMissing = append(wantMissing, "libnear.so: DT_NEEDED libdeep.so: "+errNotInFolders.Error())
			}
			assert.Equal(t, wantMissing, missing)
		})
	}
}

// TestFindDeps: what is missing is a problem, what is there is added.
func TestFindDeps(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src := filepath.Join(dir, "a.c")
	require.NoError(t, os.WriteFile(src, []byte("int main(void) { return 0; }\n"), 0o644))
	lib := filepath.Join(dir, "libgone.so")
	prog := filepath.Join(dir, "prog")
	cc(t, "-shared", "-fPIC", "-o", lib, "-Wl,-soname,libgone.so", src)
	cc(t, "-o", prog, src, "-Wl,--no-as-needed", lib)
	require.NoError(t, os.Remove(lib))
	res := Find(context.Background(), []string{prog}, Options{Deps: true, Loader: HostLoader(os.Getenv)})
	require.Len(t, res.Problems, 1)
	assert.Equal(t, prog, res.Problems[0].Path)
	assert.EqualError(t, res.Problems[0].Err,
		"DT_NEEDED libgone.so: not found: if the program finds it, set LD_LIBRARY_PATH as for the program")
	cc(t, "-shared", "-fPIC", "-o", lib, src) // without a soname the path counts
	cc(t, "-o", prog, src, "-Wl,--no-as-needed", lib)
	require.NoError(t, os.Remove(lib))
	res = Find(context.Background(), []string{prog}, Options{Deps: true, Loader: HostLoader(os.Getenv)})
	require.Len(t, res.Problems, 1)
	assert.EqualError(t, res.Problems[0].Err, "DT_NEEDED "+lib+": not found")
	var names []string
	for _, in := range res.Inputs {
		names = append(names, in.Names[0].Rel)
	}
	assert.Contains(t, names, "prog")
	assert.Contains(t, names, "libc.so.6")
	assert.Contains(t, names, "ld-linux-x86-64.so.2")
}

func TestExpand(t *testing.T) {
	l := Loader{Lib: "lib64", Platform: "x86_64"}
	assert.Equal(t, []string{"/o/../lib64", ".", "/x86_64", "/o/p", "."},
		l.list("$ORIGIN/../$LIB::/${PLATFORM}:${ORIGIN}/p;", "/o"))
	assert.Nil(t, l.list("", "/o"))
}

// cacheBytes makes an ld.so.cache with a plain and two glibc-hwcaps entries, an
// i386 one and one out of bounds.
func cacheBytes(old bool) []byte {
	le := binary.LittleEndian
	strs := "libx.so.1\x00/lib/libx.so.1\x00/lib/glibc-hwcaps/x86-64-v2/libx.so.1\x00x86-64-v2\x00x86-64-v9\x00"
	off := func(s string) uint32 { return uint32(strings.Index(strs, s)) }
	type entry struct {
		flags    uint32
		key, val uint32
		hwcap    uint64
	}
	entries := []entry{
		{0x0003, off("libx"), off("/lib/libx"), 0},
		{cacheFlagX8664, off("libx"), off("/lib/glibc"), cacheHwcapExtension},
		{cacheFlagX8664, off("libx"), off("/lib/glibc"), cacheHwcapExtension | 1},
		{cacheFlagX8664, off("libx"), off("/lib/glibc"), cacheHwcapExtension | 7},
		{cacheFlagX8664, off("libx"), off("/lib/glibc"), 1 << 3},
		{cacheFlagX8664, off("libx"), off("/lib/libx"), 0},
		{cacheFlagX8664, 1 << 20, off("/lib/libx"), 0},
	}
	base := uint32(cacheNewHeader + len(entries)*cacheNewEntry)
	ext := (base + uint32(len(strs)) + 3) &^ 3
	b := []byte(cacheMagicNew)
	b = le.AppendUint32(b, uint32(len(entries)))
	b = le.AppendUint32(b, uint32(len(strs)))
	b = append(b, 2, 0, 0, 0)
	b = le.AppendUint32(b, ext)
	b = append(b, make([]byte, 12)...)
	for _, e := range entries {
		b = le.AppendUint32(b, e.flags)
		b = le.AppendUint32(b, base+e.key)
		b = le.AppendUint32(b, base+e.val)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint64(b, e.hwcap)
	}
	b = append(b, strs...)
	for uint32(len(b)) < ext {
		b = append(b, 0)
	}
	b = le.AppendUint32(b, cacheExtensionMagic)
	b = le.AppendUint32(b, 1)
	for _, v := range []uint32{cacheExtensionHwcap, 0, ext + 24, 8, base + off("x86-64-v2\x00"),
		base + off("x86-64-v9")} {
		b = le.AppendUint32(b, v)
	}
	if old {
		head := append([]byte(cacheMagicOld), 0, 1, 0, 0, 0)
		head = append(head, make([]byte, cacheOldEntry)...)
		for len(head)%8 != 0 {
			head = append(head, 0)
		}
		b = append(head, b...)
	}
	return b
}

func TestParseCache(t *testing.T) {
	want := map[string][]cacheEntry{"libx.so.1": {
		{"/lib/glibc-hwcaps/x86-64-v2/libx.so.1", "x86-64-v2"},
		{"/lib/glibc-hwcaps/x86-64-v2/libx.so.1", "x86-64-v9"},
		{"/lib/libx.so.1", ""},
	}}
	for _, old := range []bool{false, true} {
		got, err := parseCache(cacheBytes(old))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func TestParseCacheCut(t *testing.T) {
	for _, old := range []bool{false, true} {
		whole := cacheBytes(old)
		for n := range whole {
			parseCache(whole[:n]) // must not panic
			damaged := slices.Clone(whole)
			damaged[n] ^= 0xff
			parseCache(damaged)
		}
	}
	_, err := parseCache([]byte("no cache"))
	assert.ErrorIs(t, err, errBadCache)
}

// TestReadSmall: a FIFO in the place of ld.so.cache is not waited for, and a large file not read.
func TestReadSmall(t *testing.T) {
	dir := t.TempDir()
	small, large, fifo := filepath.Join(dir, "small"), filepath.Join(dir, "large"), filepath.Join(dir, "fifo")
	require.NoError(t, os.WriteFile(small, []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 17<<20))
	b, err := readSmall(small)
	require.NoError(t, err)
	assert.Equal(t, "x", string(b))
	_, err = readSmall(large)
	assert.ErrorContains(t, err, "more than")
	if runtime.GOOS != "linux" {
		return
	}
	require.NoError(t, exec.Command("mkfifo", fifo).Run())
	_, err = readSmall(fifo)
	assert.Error(t, err)
}

func TestCachePrefersHwcaps(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable() // an x86-64 ELF file where this test can run
	require.NoError(t, err)
	if f := newResolver(Loader{}).open(exe); f.err != nil {
		t.Skip("needs x86-64 ELF files")
	}
	r := newResolver(Loader{Cache: "named", Hwcaps: []string{"x86-64-v3", "x86-64-v2"}})
	plain, v2 := filepath.Join(dir, "plain"), filepath.Join(dir, "v2")
	for _, p := range []string{plain, v2} {
		require.NoError(t, os.Symlink(exe, p))
	}
	r.cache = map[string][]cacheEntry{"libx.so": {{plain, ""}, {filepath.Join(dir, "gone"), "x86-64-v3"},
		{v2, "x86-64-v2"}}}
	path, _ := r.inCache(&r.Loader, "libx.so")
	assert.Equal(t, v2, path)
	r.Hwcaps = nil
	path, _ = r.inCache(&r.Loader, "libx.so")
	assert.Equal(t, plain, path)
}

// TestReadDynamicCut: no cut or damaged file makes the reader panic or hang.
func TestReadDynamicCut(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(src, []byte("int f(void) { return 0; }\n"), 0o644))
	cc(t, "-shared", "-nostdlib", "-Wl,-soname,a.so", "-o", lib, src)
	whole, err := os.ReadFile(lib)
	require.NoError(t, err)
	d, err := readDynamic(strings.NewReader(string(whole)))
	require.NoError(t, err)
	assert.Equal(t, "a.so", d.soname)
	for n := range whole {
		readDynamic(strings.NewReader(string(whole[:n])))
	}
	for n := range min(len(whole), 1024) {
		damaged := slices.Clone(whole)
		damaged[n] ^= 0xff
		readDynamic(strings.NewReader(string(damaged)))
	}
}
