package abi_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/abi"
)

// TestGoLayout compares the written offsets with Go's own structures, where the
// generated code runs. TestHeader compares them with C's.
func TestGoLayout(t *testing.T) {
	var r abi.Regs
	assert.Equal(t, []uintptr{abi.RegsReg, abi.RegsValid, abi.RegsExact, abi.RegsStatus, abi.RegsSize},
		[]uintptr{unsafe.Offsetof(r.Reg), unsafe.Offsetof(r.Valid), unsafe.Offsetof(r.Exact),
			unsafe.Offsetof(r.Status), unsafe.Sizeof(r)})
	var m abi.Memory
	assert.Equal(t, []uintptr{abi.MemoryLo, abi.MemorySize, abi.MemoryBytes, abi.MemoryRead, abi.MemoryArg,
		abi.MemoryLen},
		[]uintptr{unsafe.Offsetof(m.Lo), unsafe.Offsetof(m.Size), unsafe.Offsetof(m.Bytes), unsafe.Offsetof(m.Read),
			unsafe.Offsetof(m.Arg), unsafe.Sizeof(m)})
	var c abi.Context
	assert.Equal(t, []uintptr{abi.ContextFlagsOff, abi.ContextRIPOff, abi.ContextRSPOff, abi.ContextRBPOff,
		abi.ContextRBXOff, abi.ContextSize},
		[]uintptr{unsafe.Offsetof(c.Flags), unsafe.Offsetof(c.RIP), unsafe.Offsetof(c.RSP), unsafe.Offsetof(c.RBP),
			unsafe.Offsetof(c.RBX), unsafe.Sizeof(c)})
}
