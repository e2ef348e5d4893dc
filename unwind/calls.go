package unwind

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// maxCall is the length in bytes of the longest call instruction: a prefix, REX,
// opcode, ModRM, SIB and a displacement of 32 bits (Intel SDM volume 2, CALL).
const maxCall = 9

// endsInCall reports whether code may end in a call instruction: E8 with a distance, or
// FF /2 with the bytes that address its operand. Other code may end in the same
// bytes: only a negative answer is certain.
func endsInCall(code []byte) bool {
	n := len(code)
	if n >= 5 && code[n-5] == 0xe8 { // E8 rel32: call of a place at a distance
		return true
	}
	// FF /2 without prefixes: opcode, ModRM, at most SIB and 4 bytes.
	for length := 2; length <= 7 && length <= n; length++ {
		if insn := code[n-length:]; insn[0] == 0xff && insn[1]>>3&7 == 2 && indirectLength(insn) == length {
			return true
		}
	}
	return false
}

// indirectLength returns the length in bytes of an instruction with a one-byte
// opcode, its ModRM byte and what that calls for: Intel SDM volume 2, tables 2-2 and
// 2-3.
func indirectLength(insn []byte) int {
	const onlyDisp32, needsSIB = 5, 4
	mod, rm := insn[1]>>6, insn[1]&7
	if mod == 3 {
		return 2
	}
	length := 2
	if rm == needsSIB {
		length++
		if mod == 0 && len(insn) > 2 && insn[2]&7 == onlyDisp32 {
			length += 4
		}
	} else if mod == 0 && rm == onlyDisp32 {
		length += 4
	}
	switch mod {
	case 1:
		length++
	case 2:
		length += 4
	}
	return length
}

// callSite describes the bytes before a place in the code.
type callSite struct {
	call     bool // maybe a call; true if the file cannot be read
	direct   bool // maybe one of a place at distance
	distance uint64
}

// before describes the bytes before a file offset.
func (o *Object) before(offset uint64) callSite {
	var buf [maxCall]byte
	return siteOf(o.codeBefore(buf[:], offset))
}

// siteOf describes the call that code may end in; nil: the code cannot be read, so there may be
// one.
func siteOf(code []byte) callSite {
	site := callSite{call: code == nil || endsInCall(code)}
	const direct = 5 // bytes
	if n := len(code); n >= direct && code[n-direct] == 0xe8 {
		site.direct, site.distance = true, uint64(int64(int32(binary.LittleEndian.Uint32(code[n-direct+1:]))))
	}
	return site
}

// begins reports whether the code at a file offset is the first of a function that may be called through a pointer:
// endbr64, what follows that, or what follows it and a comparison of a byte with zero, as in __do_global_dtors_aux of
// GCC's crtstuff.c, which has no row and runs in each object of a process that ends. None of these changes the stack.
func (o *Object) begins(offset uint64) bool {
	var buf [len(endbr64) + compareSize + len(endbr64)]byte
	return isBegin(o.codeBefore(buf[:], offset+uint64(len(endbr64))))
}

const (
	endbr64     = "\xf3\x0f\x1e\xfa"
	compare     = "\x80\x3d" // cmpb $imm8, disp32(%rip)
	compareSize = 7          // bytes, with both operands
)

// isBegin is begins for the code up to the end of an endbr64 at the offset.
func isBegin(code []byte) bool {
	text := string(code)
	if strings.HasSuffix(text, endbr64) {
		return true
	}
	text = text[:max(0, len(text)-len(endbr64))] // before the offset
	if off := len(text) - compareSize; off >= 0 && strings.HasPrefix(text[off:], compare) &&
		strings.HasSuffix(text[:off], endbr64) {
		return true
	}
	return strings.HasSuffix(text, endbr64)
}

// isStarter reports whether a return address, at a file offset, lies in code that ends the program or thread with what
// the call returned: exit(main(argc, argv, envp)) of a C library, or pthread_exit(start(arg)). Nothing called that
// code.
func (o *Object) isStarter(offset uint64) bool {
	var buf [maxCall + exitSize]byte
	return exitsWithResult(o.codeBefore(buf[:], offset+exitSize))
}

// startsAt is isStarter for a return address in m.
func (m *Maps) startsAt(pc uint64) bool {
	mapping := m.Find(pc - 1)
	return mapping != nil && mapping.Object.isStarter(mapping.FileOffset(pc))
}

// StartsAt reports whether pc, a return address for which there is no row, lies in code that nothing called: what
// starts a program or thread, or an object's entry point. A walk ends there as Outermost.
func (m *Maps) StartsAt(pc uint64) bool {
	mapping := m.Find(pc - 1)
	if mapping == nil {
		return false
	}
	bias, ok := mapping.Object.Bias(mapping)
	return ok && mapping.Object.isEntry(pc-1-bias) || m.startsAt(pc)
}

// exits are how code goes on that passes the result of a call, or what must not come back, to exit, pthread_exit or the
// system call exit.
var exits = [...]string{
	"\x89\xc7\xe8",                     // mov %eax, %edi; call
	"\x48\x89\xc7\xe8",                 // mov %rax, %rdi; call
	"\x89\xc7\x31\xc0\xb0\x3c\x0f\x05", // mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall
	"\xbf\x6f\x00\x00\x00\xb8\x3c\x00", // mov $111, %edi; mov $60, %eax: Go's threads
}

// exitSize is the length of the longest of exits.
const exitSize = 8

// exitsWithResult is isStarter for the code up to exitSize bytes after the return address.
func exitsWithResult(code []byte) bool {
	if len(code) < exitSize {
		return false
	}
	// The code up to the return address, and from it on.
	called, then := code[:len(code)-exitSize], string(code[len(code)-exitSize:])
	return endsInCall(called) && !siteOf(called).direct &&
		slices.ContainsFunc(exits[:], func(e string) bool { return strings.HasPrefix(then, e) })
}

// ReturnsTo reports whether pc, found on the stack, can be a return address: it lies
// after a call in executable memory, or at the code that returns from a signal handler.
func (m *Maps) ReturnsTo(pc uint64) bool {
	caller := m.Find(pc - 1)
	if caller != nil && m.generated != nil && !caller.Object.IsFile() {
		return m.generated.Returns(pc) || m.restorer(pc)
	}
	if caller != nil && caller.Object.before(caller.FileOffset(pc-1)+1).call {
		return true
	}
	return m.restorer(pc)
}

// restorer reports whether the code at pc returns from a signal handler.
func (m *Maps) restorer(pc uint64) bool {
	mapping := m.Find(pc)
	if mapping == nil {
		return false
	}
	if mapping.Object.isSigreturn(mapping.FileOffset(pc)) {
		return true
	}
	return m.SignalFrame(pc)
}

// SignalFrame reports whether the code at the run-time address pc is a signal frame: its caller was interrupted at its
// pc, and did not call.
func (m *Maps) SignalFrame(pc uint64) bool {
	mapping := m.Find(pc)
	if mapping == nil {
		return false
	}
	bias, ok := mapping.Object.Bias(mapping)
	return ok && mapping.Object.SignalFrame(pc-bias)
}

// maxLeaf bounds the bytes from a function's start to the pc in it, for guessLeaf.
const maxLeaf = 1 << 16

// guessLeaf steps over an innermost frame that has pushed nothing yet: the word at rsp
// is a return address after a call of a place shortly before the pc, or after any call if a function
// begins at the pc. rbp is then still the caller's, and a step by rbp would skip the caller.
func (m *Maps) guessLeaf(regs *abi.Regs, mem *ehelf.Memory) bool {
	const word = 8
	sp, pc := regs.Reg[abi.RSP], regs.Reg[abi.RIP]
	if regs.Exact == 0 || regs.Valid>>abi.RSP&1 == 0 {
		return false
	}
	back, ok := mem.ReadWord(sp)
	if !ok {
		return false
	}
	caller, callee := m.Find(back-1), m.Find(pc)
	if caller == nil || callee == nil {
		return false
	}
	site := caller.Object.before(caller.FileOffset(back-1) + 1)
	start := back + site.distance
	if site.call && callee.Object.begins(callee.FileOffset(pc)) { // a function that begins at the pc has pushed nothing
		start = pc
	} else if !site.direct {
		return false
	}
	// The pc must lie in the function that was called, which has no row.
	if start > pc || pc-start >= maxLeaf || m.Find(start) != callee || callee.Object.hasRow(callee, start) {
		return false
	}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Exact = back, sp+word, 0
	regs.Valid &= abi.CalleeSaved | 1<<abi.RSP | 1<<abi.RIP
	return true
}

// hasRow reports whether the object has a row for a run-time address.
func (o *Object) hasRow(m *Mapping, addr uint64) bool {
	bias, ok := o.Bias(m)
	return ok && o.probe(addr-bias).status != abi.StatusNoInfo
}

// settle drops the frames that a wrong guess has led to. Frames after one found by frame
// pointer depend on the rsp guessed with it. If one of them cannot be a frame, the guess was
// wrong, and the stack ends with the last guess. That guess lies after a call and is often
// right nevertheless: code that aligns its stack pushes the return address a second time,
// next to rbp.
func (w *Walker) settle(m *Maps, pcs []uint64, cause Cause, object *Object) (int, Cause, *Object) {
	guesses := w.Guesses
	for len(guesses) > 0 && guesses[len(guesses)-1] >= len(pcs) {
		guesses = guesses[:len(guesses)-1]
	}
	n := len(pcs)
	if len(guesses) > 0 {
		// Only frames after the first guess may be wrong: those before it follow rows.
		if k := m.invented(pcs, guesses[0]+1, cause); k >= 0 {
			for guesses[len(guesses)-1] > k { // guesses after the frame that cannot be one are void
				guesses = guesses[:len(guesses)-1]
			}
			n = guesses[len(guesses)-1] + 1
			cause, object = NoInfo, nil
			if mapping := m.Find(pcs[n-2]); mapping != nil { // where a guess was the only way
				object = mapping.Object
				if object.Err() != nil {
					cause = NoObject
				}
			}
		}
	}
	w.Guesses = guesses
	if cause == Outermost && len(guesses) > 0 {
		cause = OutermostGuessed
	}
	return n, cause, object
}

// invented returns the index of the first frame, from an index on, that cannot be a
// caller, or -1 if all can; len(pcs) if nothing is mapped at the pc after them. The
// outermost frame need not have called.
func (m *Maps) invented(pcs []uint64, from int, cause Cause) int {
	for k := from; k < len(pcs); k++ {
		outermost := k == len(pcs)-1 && cause == Outermost
		if !m.ReturnsTo(pcs[k]) && (m.Find(pcs[k]) == nil || !outermost && !m.restorer(pcs[k-1])) {
			return k
		}
	}
	if cause == NoMapping {
		return len(pcs)
	}
	return -1
}

// redZone is how many bytes below rsp a leaf function may use: x86-64 psABI 3.2.2.
const redZone = 128

// readsBelow reports whether the step from a frame needs memory below its rsp,
// where copies of stacks begin. The registers do not change.
func (v *view) readsBelow(i int, regs *abi.Regs, mem *ehelf.Memory) (below bool) {
	sp := regs.Reg[abi.RSP]
	copied := *mem
	probe := ehelf.Memory{Read: func(addr uint64) (uint64, bool) {
		if sp-addr-1 < redZone { // small only below rsp: from rsp on, the difference wraps around
			below = true
		}
		return copied.ReadWord(addr)
	}}
	again := *regs
	object := v.maps.list[i].Object
	if code := object.code.Load(); code != nil {
		code.Step(&again, &probe, v.bias[i])
	} else if object.stepper != nil {
		object.stepper.Step(&again, &probe, v.bias[i])
	}
	return below
}
