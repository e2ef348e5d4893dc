package builder

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRemoteRoot: below another root, which has no /etc/hosts, a server is found by its name. Another process enters
// it.
func TestRemoteRoot(t *testing.T) {
	const rootOf, serverOf = "EHASM_TEST_ROOT", "EHASM_TEST_SERVER"
	if root := os.Getenv(rootOf); root != "" {
		remote, err := NewRemote(os.Getenv(serverOf))
		require.NoError(t, err)
		require.NoError(t, EnterRoot(root, remote))
		_, ended, notes := buildFrom(t, remote, compile.Options{}, "/lib0.so")
		assert.Empty(t, notes)
		assert.Equal(t, []Status{Fetched}, ended)
		return
	}
	testtool.NeedRoot(t, "for chroot")
	if _, err := net.LookupHost("localhost"); err != nil {
		t.Skip("needs an address of localhost, as in /etc/hosts: ", err)
	}
	object := twoObjects(t)[0]
	made, _, _ := buildFrom(t, nil, compile.Options{}, object)
	server := httptest.NewServer(http.FileServer(http.Dir(made)))
	defer server.Close()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "tmp"), 0o755))
	b, err := os.ReadFile(object)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "lib0.so"), b, 0o644))
	cmd := exec.Command(os.Args[0], "-test.run=^TestRemoteRoot$")
	cmd.Env = append(os.Environ(), rootOf+"="+root, serverOf+"="+strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
		"TMPDIR=/tmp")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
}
