package jit

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFile: code of a file is followed only along ways that call nothing, and only if they lead to returns that agree.
func TestFile(t *testing.T) {
	long := strings.Repeat("4883c001", 2*mostSteps) // add $1, %rax
	for name, c := range map[string]struct {
		code   string
		offset int // of the return address, from the stack pointer; -1: not known
	}{
		"leaf":             {`4883ec10 7504 4883c001 4883c410 c3`, 0},
		"aligned stack":    {`4889e1 4883e4e0 4883ec60 4889cc c3`, 0},
		"long":             {long[:len(long)/4] + `c3`, 0},
		"longer":           {long + `c3`, -1},
		"call":             {`e800000000 c3`, -1},
		"call on one way":  {`7501 c3 e800000000 4883c408 c3`, 0},
		"system call":      {`0f05 c3`, -1},
		"one on one way":   {`7501 c3 0f05 f4`, 0},
		"ways contradict":  {`7505 4883c408 c3 4883c410 c3`, -1},
		"jump to anywhere": {`7501 c3 ffe0`, -1},
		"no return":        {`ebfe`, -1},
	} {
		const bias, sp, back = 0x7000, 0x9000, 0x1234
		b, err := hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		require.NoError(t, err)
		m := append(memory(b), make(memory, pageSize)...)
		f := File{Read: m.read}
		for range 2 { // the second time it is known
			regs := abi.Regs{Valid: abi.AllRegs}
			regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBX] = base+bias, sp, 3
			status := f.Step(&regs, stack(max(c.offset, 0), back), bias)
			if c.offset < 0 {
				assert.Equal(t, abi.StatusNoInfo, status, name)
				continue
			}
			assert.Equal(t, abi.StatusOK, status, name)
			assert.Equal(t, uint64(back), regs.Reg[abi.RIP], name)
			assert.Equal(t, uint64(sp+c.offset+8), regs.Reg[abi.RSP], name)
			assert.Equal(t, uint64(3), regs.Reg[abi.RBX], name)
		}
	}
	f := File{Read: code(`c3`).read, Limits: NewLimits(0)}
	f.Limits.followed(2 * mostFollowed)
	regs := abi.Regs{Valid: abi.AllRegs}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = base, 0x9000
	assert.Equal(t, abi.StatusNoInfo, f.Step(&regs, stack(0, 1), 0), "beyond the limit")
}
