package procfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMapping(t *testing.T) {
	for _, c := range []struct {
		line string
		want Mapping
		ok   bool
	}{
		{"7f00-7f10 r-xp 00001000 08:01 42                       /usr/lib/a b.so",
			Mapping{0x7f00, 0x7f10, 0x1000, "/usr/lib/a b.so", 42, true, "08:01"}, true},
		{"7f00-7f10 r--p 00001000 08:01 42 /x (deleted)", Mapping{0x7f00, 0x7f10, 0x1000, "/x" + Deleted, 42, false,
			"08:01"}, true},
		{"7f00-7f10 rwxp 00000000 00:00 0 ", Mapping{0x7f00, 0x7f10, 0x7f00, "//anon", 0, true, "00:00"}, true},
		{"7f00-7f10 r-xp 00000000 00:00 0                          [vdso]",
			Mapping{0x7f00, 0x7f10, 0, "[vdso]", 0, true, "00:00"}, true},
		{`7f00-7f80 r-xp 00001000 fe:01 1234                       /a b\012c (deleted)`,
			Mapping{0x7f00, 0x7f80, 0x1000, "/a b\nc" + Deleted, 1234, true, "fe:01"}, true},
		{"7f00-7f80 rw-p 00000000 00:00 0 ", Mapping{0x7f00, 0x7f80, 0x7f00, "//anon", 0, false, "00:00"}, true},
		{"nonsense", Mapping{}, false},
		{"", Mapping{}, false},
		{"7f00 r-xp", Mapping{}, false},
		{"7f10-7f00 r-xp 0 0 0", Mapping{}, false},
		{"zz-7f00 r-xp 0 0 0", Mapping{}, false},
	} {
		m, ok := ParseMapping(c.line)
		assert.Equal(t, c.ok, ok, "%q", c.line)
		if c.ok {
			assert.Equal(t, c.want, m, "%q", c.line)
		}
	}
	list, err := Mappings(int32(os.Getpid()))
	require.NoError(t, err)
	names := fmt.Sprint(list)
	self, err := os.Executable()
	require.NoError(t, err)
	assert.Contains(t, names, self)
	assert.Contains(t, names, "[vdso]")
}

func TestCgroupOf(t *testing.T) {
	container := strings.Repeat("f0", 32)
	for text, want := range map[string]string{
		"0::/user.slice/session-1.scope\n":                               "/user.slice/session-1.scope",
		"12:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/abcd\n0::/\n": "/docker/abcd",
		"0::/\n":   "/",
		"":         "",
		"1:a:/b:c": "/b:c",
		"4:pids:/kubepods/a/very/long/name/of/another/controller\n3:cpu:/docker/" + container +
			"\n0::/system.slice/containerd.service\n": "/docker/" + container,
	} {
		assert.Equal(t, want, cgroupOf(text), text)
	}
	assert.Equal(t, "", Cgroup(1<<30))
}

func TestContainerID(t *testing.T) {
	id := strings.Repeat("f0", 32)
	for _, group := range []string{"/docker/" + id, "/system.slice/docker-" + id + ".scope",
		"/kubepods.slice/kubepods-pod6c1ef0d4_0000.slice/cri-containerd-" + id + ".scope",
		"/machine.slice/libpod-" + id + ".scope/container"} {
		assert.Equal(t, id, ContainerID(group), group)
	}
	for _, group := range []string{"", "/", "/user.slice/user-0.slice/session-1.scope", "/docker/" + id[:60]} {
		assert.Empty(t, ContainerID(group))
	}
}

// TestCompareEnd: a mapping up to the end of the address space is compared in as many pages as any other.
func TestCompareEnd(t *testing.T) {
	reads := 0
	m := Mapping{Start: 1 << 12, End: ^uint64(0)}
	assert.Equal(t, NotCompared, m.Compare(strings.NewReader(""), func(uint64, []byte) int { reads++; return 0 }))
	assert.LessOrEqual(t, reads, 66)
}

// TestMappingsIn: of many long names some are left out, of the mappings none.
func TestMappingsIn(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&text, "%x000-%x000 r-xp 00000000 fe:00 1 /%s/%d\n", i+1, i+2, strings.Repeat("d", 3700), i)
	}
	text.WriteString("7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /usr/lib/libc.so.6\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "maps"), []byte(text.String()), 0o600))
	list, err := MappingsIn(dir)
	require.NoError(t, err)
	require.Len(t, list, 10001)
	sum := 0
	for _, m := range list {
		sum += len(m.Name)
	}
	assert.Less(t, sum, 20<<20)
	assert.Equal(t, "/usr/lib/libc.so.6", list[10000].Name)
	assert.True(t, strings.HasSuffix(list[0].Name, "d/0"))
}
