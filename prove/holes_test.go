package prove

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// change replaces bytes of the text that occur once.
type change struct{ old, new []byte }

// withCave moves a change to code after the text: the bytes at the place of old become
// a jump there, and new is followed by a jump back.
func withCave(t *testing.T, image, old, new []byte) []byte {
	t.Helper()
	im, err := openImage(image)
	require.NoError(t, err)
	text := im.text(im.exec.Vaddr)
	require.Equal(t, 1, bytes.Count(text, old), "% x", old)
	return withCaveAt(t, image, bytes.Index(text, old), len(old), new)
}

// withCaveAt does so with the n bytes of the text from at on.
func withCaveAt(t *testing.T, image []byte, off, n int, new []byte) []byte {
	t.Helper()
	im, err := openImage(image)
	require.NoError(t, err)
	const room = 256
	end := im.exec.Off + im.exec.Filesz
	out := append(bytes.Clone(image[:end]), make([]byte, room)...)
	out = append(out, image[end:]...)
	for i := range uint64(le.Uint16(out[56:])) {
		if ph := out[ehdrSize+i*phdrSize:]; le.Uint64(ph[8:]) == im.exec.Off &&
			elf.ProgType(le.Uint32(ph)) == elf.PT_LOAD {
			le.PutUint64(ph[32:], im.exec.Filesz+room)
			le.PutUint64(ph[40:], im.exec.Filesz+room)
		}
	}
	shoff := le.Uint64(out[40:]) + room
	le.PutUint64(out[40:], shoff)
	for i := range uint64(le.Uint16(out[60:])) {
		if sh := out[shoff+i*shdrSize:]; le.Uint64(sh[24:]) >= end {
			le.PutUint64(sh[24:], le.Uint64(sh[24:])+room)
		}
		sh := out[shoff+i*shdrSize:]
		if le.Uint64(sh[24:]) == im.exec.Off { // .text
			le.PutUint64(sh[32:], im.exec.Filesz+room)
		}
		if typ := elf.SectionType(le.Uint32(sh[4:])); typ == elf.SHT_DYNSYM || typ == elf.SHT_SYMTAB {
			for off := le.Uint64(sh[24:]); off < le.Uint64(sh[24:])+le.Uint64(sh[32:]); off += elf.Sym64Size {
				if b := out[off+16:]; le.Uint64(out[off+8:])+le.Uint64(b) == im.exec.Vaddr+im.exec.Filesz {
					le.PutUint64(b, le.Uint64(b)+room) // the last function
				}
			}
		}
	}
	text := out[im.exec.Off:end]
	require.GreaterOrEqual(t, n, 5)
	jump := func(b []byte, from, to int) []byte {
		return binary.LittleEndian.AppendUint32(append(b, 0xe9), uint32(int32(to-from-5)))
	}
	code := jump(bytes.Clone(new), len(text)+len(new), off+n)
	copy(out[end:], code)
	copy(text[off:], jump(nil, off, len(text)))
	return out
}

// absolute makes the first lea of a descriptor, lea disp(%rip), %rdi; jmp, a move of the
// address that it has in the file.
func absolute(im *image) []change {
	text := im.text(im.exec.Vaddr)
	off := bytes.Index(text, []byte{0x48, 0x8d, 0x3d})
	old := text[off : off+7]
	to := im.exec.Vaddr + uint64(off) + 7 + uint64(int64(int32(le.Uint32(old[3:]))))
	return []change{{old, le.AppendUint32([]byte{0x48, 0xc7, 0xc7}, uint32(to))}}
}

// callOther calls what an expression's rule would name, from code after the text, in place
// of movsbq (%rbp), %rsi; inc %rbp.
func callOther(im *image, off byte) []byte {
	code := []byte{0x8b, 0x45, off, 0x48, 0x8d, 0x0d} // mov off(%rbp), %eax; lea _eh_elf(%rip), %rcx
	code = le.AppendUint32(code,
		uint32(im.dynamic.symbols[abi.SymbolStep].Value-(im.exec.Vaddr+im.exec.Filesz+uint64(len(code))+4)))
	// add; sub; call *%rax; lea
	return append(code, 0x48, 0x01, 0xc8, 0x48, 0x83, 0xec, 0x08, 0xff, 0xd0, 0x48, 0x8d, 0x64, 0x24, 0x08,
		0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5)
}

// keepInStack keeps rbp in slotExpr while the expression of a CFA is called.
func keepInStack(im *image) change {
	slot := []byte{0xac, 0x24, slotExpr & 0xff, slotExpr >> 8, 0, 0}
	return aroundCall(im, []byte{0x8b, 0x45, 0x00, 0x48, 0x83, 0xc5, 0x04}, // mov (%rbp), %eax; add $4, %rbp
		append([]byte{0x48, 0x89}, slot...), append([]byte{0x48, 0x8b}, slot...))
}

// callTwice calls the expression of a rule, and then as it did.
func callTwice(im *image) change {
	const head = 7 // what aroundRule begins with
	code := callOther(im, 1)
	code = code[:len(code)-8]
	off := bytes.Index(code, []byte{0x48, 0x8d, 0x0d}) + 3
	le.PutUint32(code[off:], le.Uint32(code[off:])-head)
	code[2] -= 5                                               // the descriptor's pointer is past the rule's operand
	return aroundRule(im, append(code, 0x8b, 0x45, 0xfc), nil) // mov -4(%rbp), %eax
}

// aroundRule puts code around the call of a rule's expression.
func aroundRule(im *image, before, after []byte) change {
	// mov 1(%rbp), %eax; add $5, %rbp
	return aroundCall(im, []byte{0x8b, 0x45, 0x01, 0x48, 0x83, 0xc5, 0x05}, before, after)
}

// aroundCall puts code around the call of an expression that begins with head.
func aroundCall(im *image, head, before, after []byte) change {
	text := im.text(im.exec.Vaddr)
	// add; sub; call *%rax; lea
	tail := []byte{0x48, 0x01, 0xc8, 0x48, 0x83, 0xec, 0x08, 0xff, 0xd0, 0x48, 0x8d, 0x64, 0x24, 0x08}
	off := bytes.Index(text, head)
	code := append(append(bytes.Clone(head), before...), 0x48, 0x8d, 0x0d) // lea _eh_elf(%rip), %rcx
	code = le.AppendUint32(code,
		uint32(im.dynamic.symbols[abi.SymbolStep].Value-(im.exec.Vaddr+im.exec.Filesz+uint64(len(code))+4)))
	return change{text[off : off+len(head)+7+len(tail)], append(append(code, tail...), after...)}
}

// readOther reads the word at the CFA, too.
func readOther(im *image) []byte { return readFirst(im, []byte{0x4c, 0x89, 0xe6}) } // mov %r12, %rsi

// readFirst reads a word whose address code leaves in rsi, in place of movsbq (%rbp), %rsi; inc %rbp.
func readFirst(im *image, code []byte) []byte {
	text := im.text(im.exec.Vaddr)
	code = append(code, 0xe8) // call
	code = le.AppendUint32(code, uint32(bytes.Index(text, cutRead)-len(text)-len(code)-4))
	return append(code, 0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5)
}

// throughCallback makes _eh_elf of an image without deref read words as the one of another
// does, by a callback that is not given, if what happens to lie in its slot is not null.
func throughCallback(im, other *image) change {
	text, from := im.text(im.exec.Vaddr), other.text(other.exec.Vaddr)
	// cmpq $0, slotRegs(%rsp); je; sub %r11, %r10
	off := bytes.Index(text, append(cutSlot[:len(cutSlot):len(cutSlot)], 0x0f, 0x84))
	for !bytes.HasPrefix(text[off+12:], []byte{0x4d, 0x29, 0xda}) { // sub %r11, %r10
		off += 1 + bytes.Index(text[off+1:], append(cutSlot[:len(cutSlot):len(cutSlot)], 0x0f, 0x84))
	}
	off += len(cutSlot)
	old := text[off : off+6]
	general := off + 6 + int(int32(le.Uint32(old[2:])))
	// mov %rbx, %r12 and %r13 to their slots; mov %rdi, %r12; mov %r10, %rbx
	body := from[bytes.Index(from, []byte{0x49, 0x89, 0xfc, 0x4c, 0x89, 0xd3})-15:]
	body = body[:bytes.IndexByte(body, 0xc3)+1]
	out := func(code []byte, to int) []byte { return le.AppendUint32(code, uint32(to-len(code)-4)) }
	const head = 28
	end := head + len(body)
	code := out([]byte{0x0f, 0x85}, end+5)                                        // jne, to where a walk goes on
	code = out(append(code, 0x48, 0x83, 0x7c, 0x24, slotMem, 0, 0x0f, 0x84), end) // cmpq $0, slotMem(%rsp); je
	code = out(append(code, 0x80, 0x7f, 0xfd, 0, 0x0f, 0x84), end)                // cmpb $0, -3(%rdi); je
	return change{old, out(append(append(code, body...), 0xe9), general-len(text))}
}

// TestHandMadeMutants proves that code is refused which does something beside its row:
// each mutant is right but for what its name says.
func TestHandMadeMutants(t *testing.T) {
	table := small()
	image := compile(t, table, variants()[0])
	im, err := openImage(image)
	require.NoError(t, err)
	proof := func(table *dwarfcfa.Table, file []byte) error {
		im, err := openImage(file)
		require.NoError(t, err)
		p := newProver(im, table)
		p.x.ownRows = nil // code after the text has none
		return p.prove()
	}
	require.NoError(t, proof(table, image))
	longTable := rowtest.Pages(2, 40, 20)
	long := compile(t, longTable, variants()[1])
	require.NoError(t, proof(longTable, long))
	noDeref := compile(t, table, variants()[2])
	require.NoError(t, proof(table, noDeref))
	direct, err := openImage(noDeref)
	require.NoError(t, err)
	// The word at rsi by the callback: what it says is forgotten.
	ask := []byte{0x48, 0x83, 0xec, 0x18, 0x49, 0x8b, 0x46, 0x18, 0x49, 0x8b, 0x7e, 0x20, 0x48, 0x8d, 0x54, 0x24,
		0x08, 0x48, 0x89, 0x74, 0x24, 0x10,
		0xff, 0xd0, 0x48, 0x8b, 0x74, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18}
	ask = ask[:len(ask):len(ask)]
	moreKeys := []byte{0x48, 0x83, 0xc7, 0x10, 0x83, 0xe8, 0x10} // add $16, %rdi; sub $16, %eax
	// lea 8(%r9), %r10; cmp slotHigh(%rsp), %r10
	fastRow := []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, slotHigh}
	for _, m := range []struct {
		name     string
		why      string
		changes  []change
		caves    []change
		old, new []byte
		long     bool // of a file that has long records
		noDeref  bool // of a file whose _eh_elf has no callback
	}{
		{name: "a step that goes the slow way writes its pc to a register of the caller",
			why: "not the end of a step", changes: []change{
				{old: []byte{0x48, 0x8b, 0x83, 0x80, 0, 0, 0, 0x49, 0x89, 0x04, 0xd0},
					new: []byte{0x48, 0x8b, 0x8b, 0x80, 0, 0, 0, 0x48, 0x89, 0x0c, 0xc3}}}},
		{name: "the reading of words takes 120 bytes of stack", why: "rsp is", changes: []change{
			{old: []byte{0x48, 0x83, 0xec, 0x18}, new: []byte{0x48, 0x83, 0xec, 0x78}},
			{old: []byte{0x48, 0x83, 0xc4, 0x18}, new: []byte{0x48, 0x83, 0xc4, 0x78}}}},
		{name: "a descriptor is named by its address in the file", why: "the descriptor is at", changes: absolute(im)},
		{name: "a fast row reads the registers in memory, which _eh_elf has not", why: "also in a step of _eh_elf",
			old: []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, 0x30},
			new: []byte{0x48, 0x8b, 0x7c, 0x24, slotRegs, 0x48, 0x8b, 0x3f, 0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54,
				0x24, 0x30}},
		// mov slot(%rsp), %r15; inc %rdx
		{name: "the end of a slow step does not restore the caller's r15", why: "register 15 of the machine is scratch",
			changes: []change{
				{old: []byte{0x4c, 0x8b, 0x7c, 0x24, slotSaved + 32, 0x48, 0xff, 0xc2}, new: []byte{0x4c, 0x89, 0x7c,
					0x24, slotSaved + 32, 0x48, 0xff, 0xc2}}}},
		{name: "a result is overwritten by one that overlaps it", why: "results overlap",
			old: []byte{0x48, 0x89, 0x58, 0x10, 0x48, 0x89, 0x68, 0x18},
			new: []byte{0x48, 0x89, 0x58, 0x10, 0x48, 0x89, 0x68, 0x18, 0x48, 0x89, 0x48, 0x0c}},
		{name: "deref is asked for address 0, too", why: "the callback is asked for 0",
			old: []byte{0x49, 0x0f, 0xbe, 0x7c, 0x24, 0xfd},
			new: []byte{0x31, 0xff, 0xff, 0x54, 0x24, 0x18, 0x49, 0x0f, 0xbe, 0x7c, 0x24, 0xfd}},
		{name: "a null read callback is called", why: "a callback that may be null",
			old: []byte{0x49, 0x8b, 0x46, 0x18, 0x48, 0x85, 0xc0}, // mov 24(%r14), %rax; test %rax, %rax
			new: append(ask, 0x49, 0x8b, 0x46, 0x18, 0x48, 0x85, 0xc0)},
		{name: "the read callback is called twice", why: "asked 2 times",
			old: []byte{0x48, 0x83, 0xec, 0x18, 0x49, 0x8b, 0x7e, 0x20}, // sub $24, %rsp; mov 32(%r14), %rdi
			new: append(ask, 0x49, 0x8b, 0x46, 0x18, 0x48, 0x83, 0xec, 0x18, 0x49, 0x8b, 0x7e, 0x20)},
		{name: "a word is read that no rule needs", why: "no rule needs",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			new: readOther(im)},
		{name: "the search of a record begins in another way where it has 3 keys",
			why: "no instruction of generated code", long: true,
			old: []byte{0x83, 0xe8, 0x11, 0x48, 0xff, 0xc7}, // sub $17, %eax; inc %rdi
			new: []byte{0x83, 0xe8, 0x11, 0x48, 0xff, 0xc7, 0x48, 0x89, 0xbc, 0x24, slotExpr & 0xff, slotExpr >> 8, 0,
				0, 0x83, 0xf8, 3, 0x75, 6, 0xf3, 0x0f, 0x6f, 0x0f, 0x0f, 0x0b}},
		{name: "the lowest bit is asked for where there may be none", why: "which may be 0", long: true,
			old: []byte{0x41, 0xf7, 0xd2, 0xf3, 0x45, 0x0f, 0xbc, 0xd2}, // not %r10d; tzcnt %r10d, %r10d
			new: []byte{0xf3, 0x45, 0x0f, 0xbc, 0xd2}},
		{name: "the search of a record reads at the pc", why: "a lookup reads 4 places", long: true,
			old: []byte{0x83, 0xe8, 0x11, 0x48, 0xff, 0xc7},
			// mov slotPC(%rsp), %r10; mov (%r10), %r10
			new: []byte{0x4c, 0x8b, 0x54, 0x24, slotCursor, 0x4d, 0x8b, 0x12, 0x83, 0xe8, 0x11, 0x48, 0xff, 0xc7}},
		{name: "an expression is called for a rule that has none", why: "a read at (desc + 2)",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5}, // movsbq (%rbp), %rsi; inc %rbp
			new: callOther(im, 1)},
		{name: "a rule reads 8 bytes, where its operand is one and the file may end", why: "a read at (desc + 1)",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			new: []byte{0x48, 0x8b, 0x75, 0x00, 0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5}},
		{name: "a walk reads above its return address", why: "a read of the stack at +8",
			old: []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, slotHigh},
			new: []byte{0x48, 0x8b, 0xbc, 0x24, 0xb0, 1, 0, 0, 0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24,
				slotHigh}},
		{name: "a value lies across a call of an expression where the expression has its stack",
			why: "the descriptor is", caves: []change{keepInStack(im)}},
		{name: "an expression begins with another CFA", why: "the CFA in an expression", caves: []change{aroundRule(im,
			[]byte{0x49, 0xff, 0xc4}, []byte{0x4d, 0x8d, 0x64, 0x24, 0xff})}}, // inc %r12; lea -1(%r12), %r12
		{name: "an expression goes by another load bias", why: "the base in an expression", caves: []change{aroundRule(im,
			// incq; mov; lea; mov
			[]byte{0x48, 0xff, 0x44, 0x24, slotBase}, []byte{0x48, 0x8b, 0x4c, 0x24, slotBase, 0x48, 0x8d, 0x49, 0xff,
				0x48, 0x89, 0x4c, 0x24, slotBase})}},
		{name: "a rule overwrites the value of another register", why: "a store to the stack at",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			new: []byte{0x48, 0xc7, 0x84, 0x24, slotNew + 24, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48,
				0xff, 0xc5}},
		{name: "the copying of registers overwrites one that is still to be copied", why: "a store to the stack at",
			// bsf %r13d, %eax; mov slotNew(%rsp,%rax,8), %rcx
			old: []byte{0x41, 0x0f, 0xbc, 0xc5, 0x48, 0x8b, 0x8c, 0xc4, slotNew, 0, 0, 0},
			new: []byte{0x41, 0x0f, 0xbc, 0xc5, 0x48, 0xc7, 0x84, 0x24, slotNew + 24, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x8b,
				0x8c, 0xc4, slotNew, 0, 0, 0}},
		{name: "a rule says that the caller's pc was executing", why: "exact",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			new: []byte{0xc7, 0x44, 0x24, slotExact, 1, 0, 0, 0, 0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5}},
		{name: "what lies below the stack is taken to stay in a call", why: "the word is", caves: []change{
			{old: []byte{0x48, 0x83, 0xec, 0x18, 0x49, 0x8b, 0x7e, 0x20}, // sub $24, %rsp; mov 32(%r14), %rdi
				new: []byte{0x48, 0x83, 0xec, 0x28, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x48, 0x89, 0x7c,
					0x24, 0x10, 0x49, 0x8b, 0x7e, 0x20}},
			{old: []byte{0x89, 0xc1, 0x48, 0x8b, 0x44, 0x24, 0x08}, // mov %eax, %ecx; mov 8(%rsp), %rax
				new: []byte{0x89, 0xc1, 0x48, 0x83, 0xec, 0x10, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x83, 0xc4, 0x10, 0x48,
					0x3b, 0x7c, 0x24, 0x10,
					0x74, 9, 0x48, 0xc7, 0x44, 0x24, 0x08, 0, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 0x08}}}},
		{name: "a rule that names no register reads one by its operand", why: "a read of the registers",
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			new: []byte{0x0f, 0xb6, 0x4d, 0x00, 0x48, 0x8b, 0x04, 0xcb, 0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff,
				0xc5}},
		{name: "a scratch register is taken to stay in a call", why: "the word is", caves: []change{
			{old: []byte{0x48, 0x83, 0xec, 0x18, 0x49, 0x8b, 0x7e, 0x20}, // sub $24, %rsp; mov 32(%r14), %rdi
				new: []byte{0x48, 0x83, 0xec, 0x18, 0x4c, 0x89, 0x44, 0x24, 0x10, 0x49, 0x8b, 0x7e, 0x20}},
			{old: []byte{0x89, 0xc1, 0x48, 0x8b, 0x44, 0x24, 0x08}, // mov %eax, %ecx; mov 8(%rsp), %rax
				new: []byte{0x89, 0xc1, 0x4c, 0x3b, 0x44, 0x24, 0x10, 0x74, 9, 0x48, 0xc7, 0x44, 0x24, 0x08, 0, 0, 0,
					0, 0x48, 0x8b, 0x44, 0x24, 0x08}}}},
		{name: "a row writes where _eh_elf keeps the address of its result", why: "slot 64 of the frame",
			// mov %rax, slotResult(%rsp)
			old: fastRow, new: append([]byte{0x48, 0x89, 0x44, 0x24, slotResult}, fastRow...)},
		{name: "a row takes the base to be in the frame, which in _eh_elf it is not",
			why: "no instruction of generated code",
			// cmp %rsi, slotBase(%rsp); je; ud2
			old: fastRow, new: append([]byte{0x48, 0x39, 0x74, 0x24, slotBase, 0x74, 2, 0x0f, 0x0b}, fastRow...)},
		{name: "a row takes rsp to be valid in ecx, which _eh_elf does not set",
			why: "no instruction of generated code",
			// test $128, %cl; jne; ud2
			old: fastRow, new: append([]byte{0xf6, 0xc1, 1 << abi.RSP, 0x75, 2, 0x0f, 0x0b}, fastRow...)},
		{name: "a row takes the upper half of rcx to be 0, which in _eh_elf it need not be",
			why: "no instruction of generated code",
			// mov; shr; test; je; ud2
			old: fastRow, new: append([]byte{0x48, 0x89, 0xcf, 0x48, 0xc1, 0xef, 32, 0x48, 0x85, 0xff, 0x74, 2, 0x0f,
				0x0b}, fastRow...)},
		{name: "the copying of registers reads by a pointer that the last rule has cleared",
			why: "not a copy of a register", caves: []change{
				// mov %r13d, 136(%rbx)
				{old: []byte{0x44, 0x89, 0xab, abi.RegsValid, 0, 0, 0}, new: []byte{0x31, 0xed, 0x44, 0x89, 0xab,
					abi.RegsValid, 0, 0, 0}},
				// bsf %r13d, %eax; mov slotNew(%rsp,%rax,8), %rcx
				{old: []byte{0x41, 0x0f, 0xbc, 0xc5, 0x48, 0x8b, 0x8c, 0xc4, slotNew, 0, 0, 0},
					new: []byte{0x41, 0x0f, 0xbc, 0xc5, 0x0f, 0xb6, 0x4d, 0x00, 0x48, 0x8b, 0x8c, 0xc4, slotNew, 0, 0,
						0}}}},
		{name: "a row gives its frame to signal handlers for a moment", why: "is not below the window's end",
			// add $416, %rsp; sub $416, %rsp
			old: fastRow, new: append([]byte{0x48, 0x81, 0xc4, 0xa0, 1, 0, 0, 0x48, 0x81, 0xec, 0xa0, 1, 0, 0},
				fastRow...)},
		{name: "an _eh_elf without a callback calls what lies where the other keeps it", why: "a call of",
			noDeref: true,
			caves:   []change{throughCallback(direct, im)}},
		{name: "the search of a record writes a register of the caller where more than 16 keys are left",
			why: "a lookup writes registers", long: true,
			// mov; test; je; movl $0, (%r10)
			old: moreKeys, new: append([]byte{0x4c, 0x8b, 0x54, 0x24, slotRegs, 0x4d, 0x85, 0xd2, 0x74, 7, 0x41, 0xc7,
				0x02, 0, 0, 0, 0}, moreKeys...)},
		{name: "the search of a record writes to the registers that _eh_elf has not",
			why: "also in a step of _eh_elf", long: true,
			old: moreKeys, new: append([]byte{0x4c, 0x8b, 0x54, 0x24, slotRegs, 0x41, 0xc7, 0x02, 0, 0, 0, 0},
				moreKeys...)},
		{name: "deref is asked twice for the return address", why: "is asked twice",
			old: []byte{0x49, 0x0f, 0xbe, 0x7c, 0x24, 0xfd}, // movsbq -3(%r12), %rdi
			new: []byte{0x49, 0x0f, 0xbe, 0x7c, 0x24, 0xfd, 0x48, 0x8d, 0x3c, 0xfb, 0xff, 0x54, 0x24, 0x18, 0x49,
				0x0f, 0xbe, 0x7c, 0x24, 0xfd}},
		{name: "a rule asks twice for its word", why: "2 times",
			// movsbq (%rbp), %rsi; inc %rbp
			old: []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5},
			// movsbq (%rbp), %rsi; lea (%r12,%rsi,8), %rsi
			new: readFirst(im, []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x49, 0x8d, 0x34, 0xf4})},
		{name: "a rule calls its expression twice", why: "called twice", caves: []change{callTwice(im)}},
		{name: "the read callback of _eh_elf reads above its return address", why: "a read of the stack at +8",
			old: []byte{0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0}, // mov %rdi, %rax; mov %rsi, %rdi; call *%rax
			new: []byte{0x48, 0x8b, 0x4c, 0x24, 0x10, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0}},
		{name: "a step reads a word that its row does not need", why: "which no rule needs",
			old: []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, 0x30}, // lea 8(%r9), %r10; cmp 48(%rsp), %r10
			new: []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, slotHigh, 0x73, 18, 0x49, 0x8d, 0xba, 0, 0xf0,
				0xff, 0xff,
				0x48, 0x3b, 0x7c, 0x24, slotLow, 0x7c, 4, 0x48, 0x8b, 0x7f, 0x08, 0x4c, 0x3b, 0x54, 0x24, slotHigh}},
	} {
		table, file := table, bytes.Clone(image)
		if m.long {
			table, file = longTable, bytes.Clone(long)
		}
		if m.noDeref {
			file = bytes.Clone(noDeref)
		}
		if m.old != nil {
			file = withCave(t, file, m.old, m.new)
		}
		for _, c := range m.caves {
			file = withCave(t, file, c.old, c.new)
		}
		text := file[im.exec.Off : im.exec.Off+im.exec.Filesz]
		for _, c := range m.changes {
			require.Equal(t, 1, bytes.Count(text, c.old), m.name)
			copy(text, bytes.ReplaceAll(text, c.old, c.new))
		}
		assert.ErrorContains(t, proof(table, file), m.why, m.name)
	}
}

// TestEndOfRules: the end of the rules names no register above the 17, by which code could read
// behind eh_elf_regs_t.
func TestEndOfRules(t *testing.T) {
	table := small()
	image := compile(t, table, variants()[0])
	store := []byte{0x44, 0x89, 0xab, abi.RegsValid, 0, 0, 0}                           // mov %r13d, 136(%rbx)
	image = withCave(t, image, store, append([]byte{0x4a, 0x8b, 0x04, 0xfb}, store...)) // mov (%rbx,%r15,8), %rax
	end := 3 + bytes.Index(image, []byte{descCFAGiven, ruleOffset8<<5 | abi.RIP, 0xff, ruleEnd << 5})
	require.Greater(t, end, 3)
	for _, c := range []struct {
		reg byte
		why string
	}{{abi.RIP, ""}, {numRegs, "a rule for register 17"}, {31, "a rule for register 31"}} {
		image[end] = ruleEnd<<5 | c.reg
		im, err := openImage(image)
		require.NoError(t, err)
		p := newProver(im, table)
		p.x.ownRows = nil // code after the text has none
		if err := p.prove(); c.why == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.why)
		}
	}
}

// TestEmptyTable: in a file without rows, too, a lookup is a comparison and a jump that goes on.
func TestEmptyTable(t *testing.T) {
	refusesEmpty(t, "the code ends", 0xff, 0xe7) // jmp *%rdi
}

// refusesEmpty has the jump of the lookup in files without rows come after other instructions, for which
// the proof refuses them with this message.
func refusesEmpty(t *testing.T, message string, before ...byte) {
	t.Helper()
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for _, v := range variants() {
		image := compile(t, table, v)
		_, err := Image(image, table)
		require.NoError(t, err, v.name)
		off := bytes.Index(image, []byte{0x48, 0x83, 0xf8, 0x00, 0x0f, 0x83}) // cmp $0, %rax; jae
		require.Greater(t, off, 0, v.name)
		to := le.Uint32(image[off+6:]) + 1 - uint32(len(before)) // jmp is a byte shorter than jae
		copy(image[off+4:], le.AppendUint32(append(before, 0xe9), to))
		_, err = Image(image, table)
		assert.ErrorContains(t, err, message, v.name)
	}
}

// TestCFARegister: the register of a CFA is one of the 17 of eh_elf_regs_t, whatever the table says.
func TestCFARegister(t *testing.T) {
	for _, reg := range []uint16{abi.RBX, numRegs, 40} {
		table := small()
		image := compile(t, table, variants()[0])
		off := bytes.Index(image, []byte{descCFAReg, abi.RBX, 32, 0, 0, 0, 0, 0, 0, 0})
		require.Greater(t, off, 0)
		image[off+1], table.Rows[2].CFA.Reg = byte(reg), reg
		_, err := Image(image, table)
		if reg == abi.RBX {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "the CFA is register")
		}
	}
}

// TestStaleStack proves that what lay below rsp is forgotten in a call, and where a pc
// may have been written over it.
func TestStaleStack(t *testing.T) {
	p := newProver(&image{}, small())
	s := p.stateOf(&p.v.walk, 0)
	below, above := p.t.plus(p.x.sp, frameBase-8), p.t.plus(p.x.sp, frameBase+slotExpr)
	s.stack = append(s.stack, cell{frameBase - 8, 8, p.v.args.pc}, cell{frameBase + slotExpr, 8, p.v.args.pc},
		cell{frameBase + slotNew, 8, p.v.args.pc})
	p.clobber(s)
	s.reg[rSP] = p.t.plus(s.reg[rSP], -8)
	got, err := p.x.load(s, below, 8)
	require.NoError(t, err)
	assert.NotEqual(t, p.v.args.pc, got)
	got, err = p.x.load(s, above, 8)
	require.NoError(t, err)
	assert.Equal(t, p.v.args.pc, got)

	p.x.may.pcSlot = p.t.scaled(p.v.walk.pcs, p.v.walk.cursor, 8)
	require.NoError(t, p.x.store(s, p.x.may.pcSlot, 8, p.v.args.pc))
	_, err = p.x.load(s, p.t.plus(p.x.sp, frameBase+slotNew), 8)
	assert.Error(t, err)
}

// TestJumpFromRIP: an address relative to rip counts from the instruction's end.
func TestJumpFromRIP(t *testing.T) {
	p := newProver(&image{}, small())
	var addr uint64
	p.x.ownRows = nil
	p.x.code = func(uint64) []byte { return []byte{0xff, 0x25, 0x10, 0, 0, 0} } // jmp *16(%rip)
	p.x.data = func(from uint64, n int) []byte { addr = from; return make([]byte, n) }
	_, end, err := p.x.step(p.stateOf(&p.v.walk, 0x1000))
	require.NoError(t, err)
	require.NotNil(t, end)
	assert.EqualValues(t, 0x1016, addr)
}

// TestRaisedStack: what lies below rsp does not stay, nor does a return address.
func TestRaisedStack(t *testing.T) {
	p := newProver(&image{}, small())
	p.x.ownRows = nil
	p.x.code = func(uint64) []byte { return []byte{0x48, 0x83, 0xc4, 0x10} } // add $16, %rsp
	s := p.stateOf(&p.v.walk, 0x1000)
	_, _, err := p.x.step(s)
	require.NoError(t, err)
	assert.Equal(t, []term{noTerm, noTerm, p.v.args.regs}, []term{p.slot(s, slotFirst), p.slot(s, slotLow),
		p.slot(s, slotRegs)})
	x := exprProof{p: p.proof}
	_, _, err = p.x.step(x.enter(0x1000))
	assert.ErrorContains(t, err, "above its return address")
}

// TestOnlyCell: a store that covers more than a field is not one of the field.
func TestOnlyCell(t *testing.T) {
	p := newProver(&image{}, small())
	for _, cells := range []cells{nil, {{abi.RegsExact, 4, p.v.args.pc}},
		{{abi.RegsStatus, 2, p.v.args.pc}, {0, 8, p.v.args.pc}}} {
		_, ok := cells.only(abi.RegsStatus, 2)
		assert.False(t, ok)
	}
	v, ok := cells{{abi.RegsStatus, 2, p.v.args.pc}}.only(abi.RegsStatus, 2)
	assert.True(t, ok && v == p.v.args.pc)
}

// TestTables tries every bit of the tables that loaders and unwinders search.
func TestTables(t *testing.T) {
	image := compile(t, small(), variants()[0])
	_, err := openImage(image)
	require.NoError(t, err)
	accepted := map[string]int{".gnu.hash": 0, ".hash": 0, ".eh_frame_hdr": 0}
	for _, a := range areas(t, image) {
		if _, ok := accepted[a.name]; !ok {
			continue
		}
		for bit := 8 * a.from; bit < 8*a.to; bit++ {
			image[bit/8] ^= 1 << (bit % 8)
			if _, err := openImage(image); err == nil {
				accepted[a.name]++
			}
			image[bit/8] ^= 1 << (bit % 8)
		}
	}
	assert.Equal(t, map[string]int{".gnu.hash": 0, ".hash": 0, ".eh_frame_hdr": 0}, accepted)
}

// TestRelroPages: loaders protect the whole pages that end in PT_GNU_RELRO, so that what
// lies on another one stays writable.
func TestRelroPages(t *testing.T) {
	image := compile(t, small(), variants()[3])
	im, err := openImage(image)
	require.NoError(t, err)
	w := im.segments[2]
	require.Zero(t, (w.Vaddr+w.Memsz)%pageSize)
	changed := 0
	for i := range uint64(le.Uint16(image[56:])) {
		if ph := image[ehdrSize+i*phdrSize:]; le.Uint64(ph[16:]) == w.Vaddr &&
			elf.ProgType(le.Uint32(ph)) != elf.PT_DYNAMIC {
			le.PutUint64(ph[40:], w.Memsz+16)
			changed++
		}
	}
	require.Equal(t, 2, changed)
	le.PutUint64(image[40:], 0) // no section headers, of which one would say it, too
	le.PutUint32(image[60:], 0)
	_, err = openImage(image)
	assert.ErrorContains(t, err, "a writable segment")
}

// TestNoteSections: what tools read by sections is what loaders read by PT_NOTE.
func TestNoteSections(t *testing.T) {
	image := compile(t, small(), variants()[0])
	im, err := openImage(image)
	require.NoError(t, err)
	const by = 4
	changed := 0
	for i := range uint64(le.Uint16(image[60:])) {
		sh := image[le.Uint64(image[40:])+i*shdrSize:]
		switch {
		case elf.SectionType(le.Uint32(sh[4:])) != elf.SHT_NOTE:
		case le.Uint64(sh[16:]) == im.notes.addr:
			le.PutUint64(sh[32:], le.Uint64(sh[32:])+by)
			changed++
		default:
			le.PutUint64(sh[16:], le.Uint64(sh[16:])+by)
			le.PutUint64(sh[24:], le.Uint64(sh[24:])+by)
			le.PutUint64(sh[32:], le.Uint64(sh[32:])-by)
			changed++
		}
	}
	require.Equal(t, 2, changed)
	_, err = openImage(image)
	assert.ErrorContains(t, err, "section .note")
}
