package labels

import (
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	all, err := Parse(strings.Split(Names(), ", "))
	require.NoError(t, err)
	assert.Equal(t, CPU<<1-1, all)
	none, err := Parse([]string{"none"})
	require.NoError(t, err)
	assert.Zero(t, none)
	for _, names := range [][]string{{"x"}, {""}, {"none", "pid"}, {"PID"}} {
		_, err := Parse(names)
		assert.ErrorContains(t, err, "want none, or a list of comm, pid, tid, executable", names)
	}
}

// TestOf: what is not known is left out, and so is what is not wanted.
func TestOf(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	o := Origin{PID: 7, TID: 8, CPU: 1, Cgroup: "/system.slice/docker-" + id + ".scope", Host: "h"}
	set := PID | TID | CPU | Container | Host | Executable | BuildID
	assert.Equal(t, []stackfmt.Label{{Key: "process.pid", Value: "7"}, {Key: "thread.id", Value: "8"},
		{Key: "container.id", Value: id},
		{Key: "host.name", Value: "h"}, {Key: "cpu.logical_number", Value: "1"}}, set.Of(&o))
	assert.Equal(t, Origin{PID: 7, Host: "h"}, (PID | Host | Comm).Only(o))
}
