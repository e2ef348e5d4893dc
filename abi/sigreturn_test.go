package abi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIsSigreturn(t *testing.T) {
	for _, code := range Sigreturn {
		assert.LessOrEqual(t, len(code), len(Sigreturn[0]))
		assert.True(t, IsSigreturn([]byte(code+"\x90")))
		assert.False(t, IsSigreturn([]byte(code[:len(code)-1])))
		assert.False(t, IsSigreturn([]byte("\x90"+code)))
		assert.False(t, IsSigreturn([]byte(strings.Replace(code, "\x0f", "\x0e", 1))), "another system call")
	}
	assert.Len(t, Sigreturn[0], MaxSigreturn)
}
