package symbolize

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCaller: a return address belongs to the instruction before it, except in a function that is only returned to,
// whose FDE begins a byte before, or which follows no code.
func TestCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	gcc := exec.Command("gcc", "-shared", "-nostdlib", "-o", path, "-x", "assembler", "-")
	gcc.Stdin = strings.NewReader(`.text
	.cfi_startproc
	.cfi_signal_frame
	nop
.globl restore
.type restore, @function
restore: syscall
	.cfi_endproc
.size restore, .-restore
	.p2align 4
.Lunnamed: .cfi_startproc
	nop
	call *%rax
	.cfi_endproc
.globl after
.type after, @function
after: .cfi_startproc
	call *%rax
	.cfi_endproc
.size after, .-after
	.zero 8
.globl start_context
.type start_context, @function
start_context: nop
.size start_context, .-start_context
.section .note.GNU-stack
`)
	out, err := gcc.CombinedOutput()
	require.NoError(t, err, "%s", out)
	list, err := exec.Command("nm", path).Output()
	require.NoError(t, err)
	addrs := make(map[string]uint64)
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 3 {
			addrs[f[2]] = hexOf(t, f[0])
		}
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	n := New(Options{})
	c := n.NewCache(nil)
	objects := unwind.NewObjects(unwind.Options{Compile: unwindtest.Compile})
	ps := unwind.NewProcesses()
	ps.Space(1).Map(0x10000, uint64(info.Size()), 0, objects.Object(path, nil))
	maps := ps.Space(1).Maps()
	require.NoError(t, maps.All()[0].Object.Ready())
	caller := func(pc uint64) *frame.Frame {
		m := maps.Find(0x10000 + pc - 1)
		require.NotNil(t, m)
		f, _ := c.Caller(m, 1, 0x10000+pc)
		return f
	}
	assert.Equal(t, "restore", caller(addrs["restore"]).Name)
	assert.Zero(t, caller(addrs["restore"]).Offset)
	assert.True(t, caller(addrs["after"]).NoSymbol, "the call before is another function's, without a symbol")
	assert.Equal(t, "after", caller(addrs["after"]+2).Name)
	assert.Equal(t, "start_context", caller(addrs["start_context"]).Name)
	_, signal := c.Caller(maps.Find(0x10000+addrs["restore"]-1), 1, 0x10000+addrs["restore"])
	assert.True(t, signal)
	hits := make(map[*unwind.Object]Hits)
	c.Hits(hits)
	assert.Equal(t, Hits{All: 6, Unnamed: 1}, hits[objects.Object(path, nil)])
}

func hexOf(t *testing.T, s string) (v uint64) {
	for _, c := range []byte(s) {
		v = v<<4 | uint64(strings.IndexByte("0123456789abcdef", c))
	}
	return v
}
