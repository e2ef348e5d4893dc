package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNames(t *testing.T) {
	one := Finding{Kind: KindCFA, Code: "1", Start: 0x1000, PC: 0x1001, Actual: "rsp+16", Claimed: "rsp+8"}
	other := one
	other.Code = "2" // of another function
	moved := one
	moved.Start, moved.PC = 0x2000, 0x2001
	twice := (&Names{}).Of("a.so", []Finding{one, other, one})
	assert.NotEqual(t, twice[0], twice[1])
	assert.Equal(t, twice[0]+" #2", twice[2])
	assert.Equal(t, twice[:1], (&Names{}).Of("a.so", []Finding{moved}))

	// with a symbol, the FDE does not matter
	one.Function, one.Symbol, moved.Function, moved.Symbol = "f", 0xff0, "f", 0x1ff0
	moved.Start = 0x1ff8
	assert.Equal(t, (&Names{}).Of("a.so", []Finding{one}), (&Names{}).Of("a.so", []Finding{moved}))
	moved.PC++
	assert.NotEqual(t, (&Names{}).Of("a.so", []Finding{one}), (&Names{}).Of("a.so", []Finding{moved}))

	// nor do addresses in what is wrong
	moved.PC--
	one.Actual, moved.Actual = "inside the instruction at 0x1000", "inside the instruction at 0x2000"
	assert.Equal(t, (&Names{}).Of("a.so", []Finding{one}), (&Names{}).Of("a.so", []Finding{moved}))

	one.Function = "f\t\n\x1b[31m"
	id := (&Names{}).Of("a\n.so", []Finding{one})[0]
	assert.True(t, IsIdentity(id))
	assert.False(t, strings.ContainsAny(id, "\n\x1b"))
}

func TestFileURI(t *testing.T) {
	for name, want := range map[string]string{
		"lib/a b.so": "lib/a%20b.so", "/src/x.c": "x.c", "/src/../etc/x.c": "file:///etc/x.c",
		"../x.c": "file:///x.c", "/else/x:1.c": "file:///else/x:1.c",
	} {
		assert.Equal(t, want, fileURI("/src", name), name)
	}
}
