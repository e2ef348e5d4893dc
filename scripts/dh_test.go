//go:build linux

package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dhPackage are the files of a source package with a library, and a package for its eh_elf.
var dhPackage = map[string]string{
	"debian/control": `Source: libx
Maintainer: x <x@x.example>
Build-Depends: debhelper-compat (= 13)

Package: libx1
Architecture: any
Description: x
 x.

Package: libx1-eh-elf
Architecture: any
Depends: libx1 (= ${binary:Version})
Description: compiled unwind tables of libx1
 x.
`,
	"debian/changelog": `libx (1-1) unstable; urgency=medium

  * x.

 -- x <x@x.example>  Mon, 02 Nov 2026 00:00:00 +0000
`,
	"debian/rules": `#!/usr/bin/make -f
%:
	dh $@ --with ehasm
override_dh_auto_build:
	gcc -g -O2 -shared -fPIC -Wl,-soname,libx.so.1,--build-id x.c -o libx.so.1
override_dh_auto_install:
	install -D -m 644 libx.so.1 debian/libx1/usr/lib/x86_64-linux-gnu/libx.so.1
`,
	"x.c": "int x(int n) { return n; }\n",
}

// TestDebhelper builds a Debian package with dh --with ehasm, and proves what it ships against the library that is
// shipped, stripped.
func TestDebhelper(t *testing.T) {
	testtool.NeedRoot(t, "to build packages")
	testtool.Need(t, "dh", "dpkg-buildpackage")
	top := t.TempDir()
	for name, content := range dhPackage {
		path := filepath.Join(top, "libx", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(top, "libx/debian/control"), 0o644))
	bin, perl := filepath.Join(top, "bin"), filepath.Join(top, "perl")
	call(t, nil, "install", "-D", "dh_ehasm", filepath.Join(bin, "dh_ehasm"))
	call(t, nil, "install", "-D", "dh_ehasm.pm", filepath.Join(perl, "Debian/Debhelper/Sequence/ehasm.pm"))
	call(t, nil, "go", "build", "-o", filepath.Join(bin, "ehasm"), "../cmd/ehasm")

	cmd := exec.Command("dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps")
	cmd.Dir = filepath.Join(top, "libx")
	cmd.Env = append(os.Environ(), "PERL5LIB="+perl, "PATH="+bin+":"+os.Getenv("PATH"), "DEB_BUILD_OPTIONS=noautodbgsym")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	for _, name := range []string{"libx1", "libx1-eh-elf"} {
		call(t, nil, "dpkg-deb", "-x", filepath.Join(top, name+"_1-1_amd64.deb"), filepath.Join(top, "root"))
	}
	library := filepath.Join(top, "root/usr/lib/x86_64-linux-gnu/libx.so.1")
	call(t, nil, filepath.Join(bin, "ehasm"), "prove", library+".eh_elf.so")
	info, err := os.Stat(library + ".eh_elf.so")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o644), info.Mode())
}
