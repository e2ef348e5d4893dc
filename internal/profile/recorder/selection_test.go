//go:build linux && amd64

package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSelection has control groups as systemd, Docker, containerd and Kubernetes name them.
func TestSelection(t *testing.T) {
	proc := t.TempDir()
	const id = "4f3c8e2ab1d94f3c8e2ab1d94f3c8e2ab1d94f3c8e2ab1d94f3c8e2ab1d9aaaa"
	for pid, p := range map[int]struct{ comm, cgroup string }{
		10: {"postgres", "0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n"},
		11: {"nginx", "0::/system.slice/nginx.service\n"},
		12: {"nginx-debug", "12:cpu,cpuacct:/docker/" + id + "\n0::/docker/" + id + "\n"},
		13: {"sh", "0::/system.slice/docker-" + id + ".scope\n"},
		14: {"java", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope/inner\n"},
		15: {"nginx.service", "0::/\n"},
	} {
		folder := filepath.Join(proc, fmt.Sprint(pid))
		require.NoError(t, os.Mkdir(folder, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "comm"), []byte(p.comm+"\n"), 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "cgroup"), []byte(p.cgroup), 0o666))
	}
	require.NoError(t, os.Mkdir(filepath.Join(proc, "16"), 0o777)) // it has ended meanwhile
	require.NoError(t, os.Mkdir(filepath.Join(proc, "sys"), 0o777))
	for _, c := range []struct {
		of   Selection
		want []int
	}{
		{Selection{Name: "nginx"}, []int{11, 12, 15}}, {Selection{Name: "^nginx$"}, []int{11}},
		{Selection{Name: "^(sh|java)$"}, []int{13, 14}},
		{Selection{Unit: "nginx.service"}, []int{11}}, {Selection{Unit: "nginx"}, []int{11}},
		{Selection{Unit: "postgresql@15-main"}, []int{10}},
		{Selection{Container: id}, []int{12, 13, 14}}, {Selection{Container: id[:12]}, []int{12, 13, 14}},
		{Selection{Container: id[4:12]}, nil},
	} {
		assert.NoError(t, c.of.Check())
		got, err := c.of.processes(proc)
		assert.NoError(t, err)
		assert.Equal(t, c.want, got, "%+v", c.of)
	}
	for _, bad := range []Selection{{Name: "("}, {Container: "abc"}, {Container: "my_container"}} {
		assert.Error(t, bad.Check())
	}
}
