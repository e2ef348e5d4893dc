//go:build linux && amd64

package main

// kind says what an instruction does to the frames.
type kind uint8

const (
	unread       kind = iota // not looked at yet
	ordinary                 // nothing
	call                     // pushes a return address
	callNext                 // call .+5 before a pop: pushes its own end, which is data
	ret                      // pops a return address, or an address that was pushed to go there
	indirectJump             // as longjmp ends
	systemCall
)

// kindOf returns the kind of the instruction at the start of b (Intel SDM vol.
// 2).
func kindOf(b []byte) kind {
	for len(b) > 2 && isPrefix(b[0]) {
		b = b[1:]
	}
	if len(b) < 2 {
		return ordinary
	}
	switch {
	case b[0] == 0xe8: // call rel32
		if len(b) > 6 && b[1]|b[2]|b[3]|b[4] == 0 && takesAddress(b[5:]) {
			return callNext
		}
		return call
	case b[0] == 0xff && b[1]>>3&7 == 2: // call r/m
		return call
	case b[0] == 0xff && b[1]>>3&7 == 4: // jmp r/m
		return indirectJump
	case b[0] == 0xc3, b[0] == 0xc2: // ret, ret imm16
		return ret
	case b[0] == 0x0f && b[1] == 0x05: // syscall
		return systemCall
	}
	return ordinary
}

// takesAddress reports whether the instruction at the start of b pops a register, or reads or drops the word at rsp.
// Other code right behind a call that leads there is a function.
func takesAddress(b []byte) bool {
	if b[0]&0xf0 == 0x40 {
		b = b[1:]
	}
	return b[0]&0xf8 == 0x58 || len(b) > 2 && (b[0] == 0x8b && b[1]&0xc7 == 4 && b[2] == 0x24 || b[0] == 0x83 &&
		b[1] == 0xc4)
}

// isPrefix reports whether b is a legacy or REX prefix that may stand before a
// call, a jump or a return.
func isPrefix(b byte) bool {
	switch b {
	case 0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x3e:
		return true
	}
	return b&0xf0 == 0x40
}
