package x86

// This file defines the tables that gen fills in ztables.go. A form is one line of legacy.txt or vector.txt, possibly
// merged with others that differ in prefixes alone.

// argSpec says how an operand is encoded.
type argSpec struct {
	kind  argKind
	field field
	size  uint8
	mem   uint8 // if not 0, ModRM may name memory of this size in the register's place
}

type argKind uint8

const (
	argNone  argKind = iota
	argGPR           // general register
	argFixed         // the general register with the number in field
	argMem
	argAbs // an address of 8 bytes
	argVec
	argMMX
	argMask
	argTile
	argBnd
	argSeg
	argSegFixed
	argCtl
	argDbg
	argImm  // sign-extended
	argImmU // zero-extended
	argOne  // 1, not encoded
	argRel
)

type field uint8

const (
	fieldReg field = iota
	fieldRM
	fieldV    // VEX.vvvv
	fieldImm  // the immediate's high bits
	fieldZero // register 0
	fieldOp   // the opcode's low bits
)

// Sizes that depend on the prefixes; others are bytes. They begin above every size in bytes that occurs (fnsave's 108
// is the largest), so one byte holds both.
const (
	sizeV = 200 + iota // operand size: 2, 4 or 8
	sizeZ              // 2 or 4
	sizeY              // 4 or 8
	sizeL              // vector length, and parts of it
	sizeL2
	sizeL4
	sizeL8
	sizeCX  // 8 or 16, cmpxchg8b
	size512 // fxsave
)

// form is one instruction form: which prefixes and ModRM bytes choose it, and what it does. pp, w, l, mod and reg are
// masks of accepted values (mod: 1 register, 2 memory).
type form struct {
	slot            uint16 // as opcode numbers maps and opcodes
	op              Op
	pp, w, l, mod   uint8
	reg             uint8
	modrm           uint8 // if not 0, exactly this byte, such as of vmcall: 0f 01 c1
	args            [5]argSpec
	acc             uint16 // Access, two bits for each operand
	read, write     uint16 // implicit registers, whole
	readOp, writeOp uint16 // implicit registers, as wide as the operand
	n, nb           uint8  // EVEX: factor of disp8, a size, without and with broadcast
}

// span is a stretch of forms: those of an opcode are neighbours. n is 0 for an opcode without any.
type span struct {
	first uint16
	n     uint8
}

// spans holds the forms of each opcode: of the legacy maps 0-3, VEX 1-3, EVEX 1-6, XOP 8-10, 256 entries each. The
// maps' first indices are 0, 4, 7 and 13 times 256, as opcode and gen's base have them. It is computed at start, which
// takes less space in the program than a literal.
var spans = func() (s [16*256 + 1]span) {
	for i := range forms {
		o := &s[forms[i].slot]
		if o.n == 0 {
			o.first = uint16(i)
		}
		o.n++
	}
	return s
}()
