package unwind

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestExitsWithResult: only an indirect call whose result is the argument of the next call starts a program.
func TestExitsWithResult(t *testing.T) {
	for code, want := range map[string]bool{
		"\xff\xd3" + "\x89\xc7\xe8\x01\x02\x03\x04\x90":             true,  // call *%rbx; mov %eax, %edi; call
		"\xff\x13" + "\x48\x89\xc7\xe8\x01\x02\x03\x04":             true,  // call *(%rbx); mov %rax, %rdi; call
		"\x41\xff\xd1" + "\x89\xc7\x31\xc0\xb0\x3c\x0f\x05":         true,  // call *%r9; exit
		"\x41\xff\xd4" + "\xbf\x6f\x00\x00\x00\xb8\x3c\x00":         true,  // call *%r12; exit(111)
		"\x41\xff\xd1" + "\x89\xc7\x31\xc0\xb0\x3b\x0f\x05":         false, // another system call
		"\xe8\x00\x00\x00\x00" + "\x89\xc7\xe8\x01\x02\x03\x04\x90": false, // a direct call
		"\xff\xd3" + "\x89\xc6\xe8\x01\x02\x03\x04\x90":             false, // mov %eax, %esi
		"\x90\x90" + "\x89\xc7\xe8\x01\x02\x03\x04\x90":             false, // no call
		"\xff\xd3" + "\x89\xc7\xeb\x01\x02\x03\x04\x90":             false, // a jump
		"\x89\xc7\xe8": false,
	} {
		assert.Equal(t, want, exitsWithResult([]byte(code)), "%x", code)
	}
}
