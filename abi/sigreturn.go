package abi

import (
	"bytes"
	"slices"
)

// Sigreturn holds the code that signal handlers return to, which asks the kernel to resume the
// interrupted code: mov $15,%rax or mov $15,%eax, and syscall. 15 is rt_sigreturn
// (arch/x86/entry/syscalls/syscall_64.tbl). The longest comes first.
var Sigreturn = [...]string{
	"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05",
	"\xb8\x0f\x00\x00\x00\x0f\x05",
}

// MaxSigreturn is the length of the longest Sigreturn code, in bytes.
const MaxSigreturn = 9

// IsSigreturn reports whether code begins with one of Sigreturn.
func IsSigreturn(code []byte) bool {
	return slices.ContainsFunc(Sigreturn[:], func(c string) bool { return bytes.HasPrefix(code, []byte(c)) })
}
