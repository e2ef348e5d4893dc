package testtool

import (
	"fmt"
	"strconv"
	"strings"
)

// NameBombs returns mangled names of C++ and Rust, of some 13 bytes a level. With each level the demangled name
// doubles.
func NameBombs(levels int) (cpp, rust string) {
	var c, r strings.Builder
	c.WriteString("_Z1fI1aIiiE")
	r.WriteString("INvC1a1fTiiE")
	last := len("INvC1a1f")
	for i := range levels {
		fmt.Fprintf(&c, "S0_I%[1]s%[1]sE", substitution(i+2))
		size := r.Len()
		fmt.Fprintf(&r, "TB%[1]sB%[1]sE", base62(last))
		last = size
	}
	return c.String() + "Evv", "_R" + r.String() + "E"
}

// substitution is the n-th of Itanium's C++ ABI, 5.1.10.
func substitution(n int) string {
	if n == 0 {
		return "S_"
	}
	return "S" + strings.ToUpper(strconv.FormatInt(int64(n-1), 36)) + "_"
}

// base62 is a number as Rust's RFC 2603 has it: of digits, lower and upper case letters, one less, before "_".
func base62(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	text := "_"
	if n == 0 {
		return text
	}
	for n--; ; n /= len(digits) {
		text = digits[n%len(digits):n%len(digits)+1] + text
		if n < len(digits) {
			return text
		}
	}
}
