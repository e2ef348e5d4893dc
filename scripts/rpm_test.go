//go:build linux

package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRPM makes the packages, installs them into a folder, lets ehasm-system follow another package there, and removes
// them all.
func TestRPM(t *testing.T) {
	testtool.NeedRoot(t, "to install packages and for chroot")
	testtool.Need(t, "rpmbuild")
	out, root := t.TempDir(), t.TempDir()
	call(t, []string{"OUT=" + out}, "./rpm.sh")
	packages, err := filepath.Glob(filepath.Join(out, "*.rpm"))
	require.NoError(t, err)
	require.Len(t, packages, 4)
	provides := call(t, nil, "rpm", append([]string{"-qp", "--provides"}, packages...)...)
	assert.Contains(t, provides, "libehunwind.so.2")
	assert.NotContains(t, provides, "libgcc_s")
	for _, file := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/bin/sh", "/bin/rm",
		"/sbin/ldconfig"} {
		copyTo(t, root, file)
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666))
	rpm := func(args ...string) string {
		// What Debian calls these libraries and programs is unknown to rpm.
		return call(t, nil, "rpm", append([]string{"--root=" + root, "--nodeps", "--quiet"}, args...)...)
	}
	rpm(append([]string{"-i"}, packages...)...)
	version := strings.TrimSpace(call(t, nil, "./version.sh"))
	assert.Contains(t, call(t, nil, "chroot", root, "/usr/bin/ehasm", "version"), "ehasm "+version)

	followsPackages(t, root, func(version, library string) string { return rpmPackage(t, version, library) },
		func(file string) { rpm("-U", file) }, func() { rpm("-e", "x") })

	rpm("-e", "ehasm-system", "libehunwind-devel", "libehunwind", "ehasm")
	nothingLeft(t, root)
}

// rpmPackage makes the package of followsPackages.
func rpmPackage(t *testing.T, version, library string) string {
	top := t.TempDir()
	spec := filepath.Join(top, "x.spec")
	require.NoError(t, os.WriteFile(spec, fmt.Appendf(nil, `Name: x
Version: %s
Release: 1
Summary: x
License: x
%%global debug_package %%{nil}
%%global __os_install_post %%{nil}
%%global _build_id_links none
%%description
x
%%install
install -D -m 644 %s %%{buildroot}/usr/lib/x/libx.so
%%files
/usr/lib/x
`, version, library), 0o644))
	call(t, nil, "rpmbuild", "-bb", "--quiet", "--define", "_topdir "+top, spec)
	found, err := filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}
