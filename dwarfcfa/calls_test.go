package dwarfcfa_test

import (
	"bufio"
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestCalls compares the calls that are found with objdump's: nearly all are, and few others.
func TestCalls(t *testing.T) {
	testtool.Need(t, "objdump")
	const file = "/bin/ls"
	o, err := dwarfcfa.Open(file)
	require.NoError(t, err)
	defer o.Close()
	out, err := exec.Command("objdump", "-d", "-w", file).Output()
	require.NoError(t, err)
	calls := o.Calls()
	count := calls.Walk()
	found, same, want := 0, 0, 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		// "  4b0a:\te8 f1 fb ff ff       \tcall   4700 <...>"
		part := strings.Split(lines.Text(), "\t")
		if len(part) < 3 || !strings.HasPrefix(part[2], "call") && !strings.HasPrefix(part[2], "notrack call") {
			continue
		}
		addr, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(part[0]), ":"), 16, 64)
		require.NoError(t, err)
		end := dwarfcfa.Addr(addr) + dwarfcfa.Addr(len(strings.Fields(part[1])))
		want++
		found += count(end - 1)
		n := count(end)
		found, same = found+n, same+n
	}
	found += count(1 << 40)
	assert.Greater(t, want, 1000)
	assert.GreaterOrEqual(t, 100*same, 99*want, "%d of %d", same, want)
	assert.LessOrEqual(t, 100*found, 103*want, "%d of %d", found, want)
	t.Log(found, same, want)
	none := dwarfcfa.Calls{}
	assert.True(t, none.None())
	assert.Zero(t, none.Walk()(1<<40))
}
