//go:build linux && amd64

package record

import (
	"os"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
)

// TestLabelWithinExec: a sample of execve, before the program is mapped, has no label of the program; those after it
// do.
func TestLabelWithinExec(t *testing.T) {
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.files.Close()
	l := newLabeler(labels.Executable)
	pid := int32(os.Getpid())
	tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("program"), Exec: true})
	space := tr.process(pid).space
	before := l.number(tr, pid, pid, 0, tr.process(pid))
	tr.mapped(&perfdata.Mmap{PID: pid, TID: pid, Addr: 0x1000, Len: 0x1000, Exec: true, Name: []byte("/bin/program")},
		&mapped.Found{})
	assert.Equal(t, space, tr.process(pid).space)
	after := l.number(tr, pid, pid, 0, tr.process(pid))
	sets := l.take()
	assert.Empty(t, sets[before])
	assert.Equal(t, []stackfmt.Label{{Key: "process.executable.name", Value: "program"}}, sets[after])
}
