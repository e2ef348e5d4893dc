//go:build linux

// Package scripts holds the tests of what scripts make.
package scripts

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDebianPackages makes the packages, installs them into a folder, uses them
// there as root of the file system, and removes them.
func TestDebianPackages(t *testing.T) {
	testtool.NeedRoot(t, "to install packages and for chroot")
	out, root := t.TempDir(), t.TempDir()
	call(t, []string{"OUT=" + out}, "./deb.sh")
	packages, err := filepath.Glob(filepath.Join(out, "*.deb"))
	require.NoError(t, err)
	require.Len(t, packages, 4)

	// What dpkg knows of this machine satisfies the dependencies on libc6 and libgcc.
	admin := filepath.Join(root, "var/lib/dpkg")
	for _, dir := range []string{"info", "updates", "triggers"} {
		require.NoError(t, os.MkdirAll(filepath.Join(admin, dir), 0o755))
	}
	var status strings.Builder
	for _, name := range []string{"libc6", "libgcc-s1"} {
		paragraph, err := exec.Command("dpkg-query", "-s", name).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(paragraph)) {
			if !strings.HasPrefix(line, "Depends:") { // nothing that they depend on is in the folder
				status.WriteString(line)
			}
		}
		status.WriteString("\n")
		require.NoError(t, os.WriteFile(filepath.Join(admin, "info", name+":amd64.list"), nil, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(admin, "status"), []byte(status.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(admin, "info/format"), []byte("1\n"), 0o644))
	for _, file := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6",
		"/lib/x86_64-linux-gnu/libgcc_s.so.1", "/bin/sh", "/bin/rm", "/bin/rmdir"} {
		copyTo(t, root, file)
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666))
	dpkg := func(args ...string) {
		call(t, nil, "dpkg", append([]string{"--root=" + root, "--log=/dev/null"}, args...)...)
	}
	dpkg(append([]string{"-i"}, packages...)...)

	version := strings.TrimSpace(call(t, nil, "./version.sh"))
	assert.Contains(t, call(t, nil, "chroot", root, "/usr/bin/ehasm", "version"), "ehasm "+version)
	for _, page := range []string{"ehasm.1.gz", "ehasm-build.1.gz", "ehasm-script.1.gz", "ehasm-perf.1.gz"} {
		assert.FileExists(t, filepath.Join(root, "usr/share/man/man1", page))
	}
	linked(t, filepath.Join(root, "usr/share/doc/ehasm"))
	for _, file := range packages {
		if strings.HasPrefix(filepath.Base(file), "ehasm_") {
			assert.Equal(t, "libehunwind\n", call(t, nil, "dpkg-deb", "-f", file, "Recommends"), "preload and heap need it")
		}
	}

	followsPackages(t, root, func(version, library string) string { return debianPackage(t, version, library) },
		func(file string) { dpkg("-i", file) }, func() { dpkg("--purge", "x") })

	// A program built with the development package, run with the libraries of the other.
	env := []string{"PKG_CONFIG_SYSROOT_DIR=" + root, "PKG_CONFIG_LIBDIR=" + filepath.Join(root,
		"usr/lib/x86_64-linux-gnu/pkgconfig")}
	assert.Equal(t, version, strings.TrimSpace(call(t, env, "pkg-config", "--modversion", "ehunwind")))
	source := filepath.Join(t.TempDir(), "use.c")
	require.NoError(t, os.WriteFile(source, []byte(`#include <ehunwind.h>
int main(void) { void *pcs[8]; ehu_init(); return ehu_backtrace(pcs, 8) >= 3 ? 0 : 1; } /* main, libc, _start */
`), 0o644))
	flags := strings.Fields(call(t, env, "pkg-config", "--cflags", "--libs", "ehunwind"))
	call(t, nil, "gcc", append([]string{"-o", filepath.Join(root, "use"), source}, flags...)...)
	cache := []string{"XDG_CACHE_HOME=/cache"}
	call(t, cache, "chroot", root, "/usr/bin/ehasm", "build", "--cache", "--deps", "--quiet", "/use")
	call(t, cache, "chroot", root, "/use")
	// What preload puts into programs; it asks /proc, which is not there.
	stats := exec.Command("chroot", root, "/use")
	lib := "/usr/lib/x86_64-linux-gnu/"
	stats.Env = append(os.Environ(), append(cache, "EHASM_STATS=1",
		"LD_PRELOAD="+lib+"libehunwind-preload.so:"+lib+"libgcc/libgcc_s.so.1")...)
	figures, err := stats.CombinedOutput()
	require.NoError(t, err, "%s", figures)
	assert.Contains(t, string(figures), "ehasm: exceptions: on")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "cache")))
	asService(t, root)
	fromOutside(t, root)

	dpkg("--purge", "ehasm-system", "ehasm", "libehunwind-dev", "libehunwind")
	nothingLeft(t, root)
}

// linked: the links of the documents in a folder lead to files there.
func linked(t *testing.T, dir string) {
	t.Helper()
	pages := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		if filepath.Ext(path) != ".md" {
			return nil
		}
		pages++
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\]\(([^)\s#]+)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "://") {
				assert.FileExists(t, filepath.Join(filepath.Dir(path), m[1]), path)
			}
		}
		return nil
	}))
	assert.Greater(t, pages, 20)
}

// followsPackages: the eh_elfs of ehasm-system come and go with the packages that are installed, also when a run was
// interrupted. pack makes a package x of a version, with a library at usr/lib/x/libx.so.
func followsPackages(t *testing.T, root string, pack func(version, library string) string, install func(file string),
	remove func()) {
	t.Helper()
	dir := t.TempDir()
	made := func() (list []string) {
		found, err := filepath.Glob(filepath.Join(root, "usr/lib/ehasm/.build-id/ab/0?"+abi.Suffix))
		require.NoError(t, err)
		for _, path := range found {
			info, err := os.Stat(path)
			require.NoError(t, err)
			list = append(list, info.Mode().String()+" "+filepath.Base(path))
		}
		return list
	}
	library := func(version string) string { // its build-id is ab and the version
		path, source := filepath.Join(dir, version+".so"), filepath.Join(dir, "x.c")
		require.NoError(t, os.WriteFile(source, []byte("int x(int n) { return n; }\n"), 0o644))
		call(t, nil, "gcc", "-shared", "-fPIC", "-Wl,--build-id=0xab"+version, "-o", path, source)
		return path
	}
	one, two := pack("01", library("01")), pack("02", library("02"))
	install(one)
	assert.Equal(t, []string{"-rw-r--r-- 01.eh_elf.so"}, made())
	install(two)
	assert.Equal(t, []string{"-rw-r--r-- 02.eh_elf.so"}, made())
	// as if it was interrupted
	require.NoError(t, os.Remove(filepath.Join(root, "usr/lib/ehasm/.build-id/ab/02.eh_elf.so")))
	call(t, nil, "chroot", root, "/usr/lib/ehasm/update")
	assert.Equal(t, []string{"-rw-r--r-- 02.eh_elf.so"}, made())
	remove()
	assert.Empty(t, made())
}

// debianPackage makes the package of followsPackages.
func debianPackage(t *testing.T, version, library string) string {
	stage := t.TempDir()
	require.NoError(t, os.Chmod(stage, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(stage, "DEBIAN"), 0o755))
	call(t, nil, "install", "-D", "-m", "644", library, filepath.Join(stage, "usr/lib/x/libx.so"))
	require.NoError(t, os.WriteFile(filepath.Join(stage, "DEBIAN/control"), []byte("Package: x\nVersion: "+version+
		"\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"), 0o644))
	file := filepath.Join(t.TempDir(), "x.deb")
	call(t, nil, "dpkg-deb", "--root-owner-group", "--build", stage, file)
	return file
}

// nothingLeft: no file has a name of ours.
func nothingLeft(t *testing.T, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		assert.False(t, strings.Contains(filepath.Base(path), "ehasm") ||
			strings.Contains(filepath.Base(path), "ehunwind") ||
			strings.Contains(filepath.Base(path), "eh_elf"), "left behind: %s", path)
		return err
	}))
}

// fromOutside fills the cache of all users of a system that lies in a folder, as for an image.
func fromOutside(t *testing.T, root string) {
	t.Helper()
	cache := filepath.Join(root, "usr/lib/ehasm/.build-id")
	require.NoError(t, os.RemoveAll(cache))
	call(t, nil, filepath.Join(root, "usr/bin/ehasm"), "build", "--system", "--root", root, "--quiet", "/use")
	made, err := filepath.Glob(filepath.Join(cache, "*/*"+abi.Suffix))
	require.NoError(t, err)
	require.Len(t, made, 1)
	call(t, nil, filepath.Join(root, "usr/bin/ehasm"), "prove", made[0], "--object", filepath.Join(root, "use"))
}

// asService runs a program as a service with what preload --system prints: as another user, without a home.
func asService(t *testing.T, root string) {
	t.Helper()
	unit := call(t, nil, "chroot", root, "/usr/bin/ehasm", "preload", "--system", "--library",
		"/usr/lib/x86_64-linux-gnu/libehunwind-preload.so", "--", "/use")
	made := func() []string {
		files, err := filepath.Glob(filepath.Join(root, "usr/lib/ehasm/.build-id/*/*"+abi.Suffix))
		require.NoError(t, err)
		return files
	}
	before := made()
	call(t, nil, "chroot", root, "/usr/lib/ehasm/update")
	assert.Subset(t, made(), before, "a change of packages removes nothing that root has asked for")
	assert.Contains(t, call(t, nil, "chroot", root, "/usr/bin/ehasm", "cache", "--system"), "kept: /use\n")
	found := regexp.MustCompile(`(?m)^\[Service\]\nEnvironment="(LD_PRELOAD=\S+)"$`).FindStringSubmatch(unit)
	require.Len(t, found, 2, unit)
	cmd := exec.Command("chroot", "--userspec=65534:65534", root, "/use")
	cmd.Env = []string{found[1], "EHASM_STATS=1"}
	figures, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", figures)
	assert.Regexp(t, `(?m)^ehunwind: 1 walks; ([1-9]\d*) of `, string(figures))
	assert.Contains(t, string(figures), "ehasm: exceptions: on")
}

// copyTo copies a file of this machine below root, to the same path.
func copyTo(t *testing.T, root, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, path), content, 0o755))
}

// TestInstalledModes: only the owner may write the files that are installed, and all may read them, whatever the umask;
// uninstall removes them all.
func TestInstalledModes(t *testing.T) {
	build := t.TempDir()
	for _, umask := range []string{"000", "077"} {
		dir := t.TempDir()
		call(t, nil, "sh", "-c",
			`umask $1; ./stage.sh "$2" /usr && make -s -C ../runtime install CFLAGS=-O0 OUT="$3" DESTDIR="$2" PREFIX=/usr`,
			"sh", umask, dir, build)
		n := 0
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, "usr"),
			func(path string, d os.DirEntry, err error) error {
				require.NoError(t, err)
				info, err := d.Info()
				require.NoError(t, err)
				if info.Mode().Type()&os.ModeSymlink == 0 {
					n++
					assert.Contains(t, []os.FileMode{0o755, 0o644}, info.Mode().Perm(), "umask %s: %s", umask, path)
				}
				return nil
			}))
		assert.Greater(t, n, 30)
		for _, link := range []string{"bin/ehasm-perf", "lib/ehasm/perf/perf"} {
			command, err := filepath.EvalSymlinks(filepath.Join(dir, "usr", link))
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(dir, "usr/bin/ehasm"), command)
		}
		call(t, nil, "make", "-s", "-C", "..", "uninstall", "DESTDIR="+dir, "PREFIX=/usr")
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			assert.True(t, err != nil || d.IsDir(), "left behind: %s", path)
			return err
		}))
	}
}

// TestDistReproducible makes the tarballs in two folders and compares them.
func TestDistReproducible(t *testing.T) {
	sums := func() map[string][32]byte {
		out := t.TempDir()
		call(t, []string{"OUT=" + out, "SOURCE_DATE_EPOCH=1700000000"}, "./dist.sh")
		found, err := filepath.Glob(filepath.Join(out, "*.tar.gz"))
		require.NoError(t, err)
		require.Len(t, found, 2)
		m := map[string][32]byte{}
		for _, path := range found {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			m[filepath.Base(path)] = sha256.Sum256(content)
		}
		return m
	}
	assert.Equal(t, sums(), sums())
}

// call runs a command, which must succeed, and returns its standard output.
func call(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s%s", name, args, out, stderr.String())
	return string(out)
}
