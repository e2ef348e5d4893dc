package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// form is one entry of the tables, with Go source in place of values.
// This file makes ../ztables.go, the tables of the decoder, from two lists: legacy.txt, by hand,
// and vector.txt, harvested from objdump. Letters of operands are those of the SDM (volume 2,
// appendix A.2), as far as they go.

type form struct {
	space           string   // s legacy, v VEX, e EVEX, x XOP
	m, op           int      // map and opcode
	name            string   // mnemonic, in lower case
	pp, w, l, mod   int      // bit masks: prefixes none, 66, f3, f2; W0, W1; lengths; register, memory
	reg             int      // bit mask of ModRM.reg
	modrm           int      // exact byte, or -1
	args            []string // source of argSpec values
	acc             int      // two bits for each operand: 1 read, 2 written
	read, write     int      // whole registers
	readOp, writeOp int      // as wide as the operand
	n, nb           int      // factors of disp8, without and with broadcast; n may be a negative number of lengths
	immLen          int      // bytes of immediates; not written out
}

// readLines returns the lines of a list, without comments and empty ones.
func readLines(name string) ([]string, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		if l = strings.TrimSpace(l); l != "" && l[0] != '#' {
			out = append(out, l)
		}
	}
	return out, nil
}

// opcodes parses an opcode or a range of them, in hexadecimal.
func opcodes(s string) (lo, hi int) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	x, _ := strconv.ParseInt(a, 16, 32)
	y, _ := strconv.ParseInt(b, 16, 32)
	return int(x), int(y)
}

// handOpcodes returns the opcodes of maps 1 to 3 that legacy.txt has, map<<8|opcode.
func handOpcodes() map[int]bool {
	r := map[int]bool{}
	ls, _ := readLines("legacy.txt")
	for _, l := range ls {
		f := strings.Fields(l)
		m, _ := strconv.Atoi(f[0])
		for lo, hi := opcodes(f[1]); lo <= hi; lo++ {
			r[m<<8|lo] = true
		}
	}
	return r
}

// In the order of their opcodes, 8 apart.
var alu = strings.Fields("add or adc sbb and sub xor cmp")

// By ModRM.reg; 6 is an alias of shl.
var shifts = strings.Fields("rol ror rcl rcr shl shr shl sar")

// arithmetic returns the lines that follow a pattern.
func arithmetic() []string {
	var out []string
	for i, n := range alu {
		// The first operand is read and written; of cmp only read.
		rw := "+"
		if n == "cmp" {
			rw = ""
		}
		for k, a := range []string{"Eb,Gb", "Ev,Gv", "Gb,Eb", "Gv,Ev", "AL,Ib", "AX,Iz"} {
			out = append(out, fmt.Sprintf("0 %02x %s %s%s", i*8+k, n, rw, a))
		}
		for op, a := range map[int]string{0x80: "Eb,Ib", 0x81: "Ev,Iz", 0x83: "Ev,Ibs"} {
			out = append(out, fmt.Sprintf("0 %02x /%d %s %s%s", op, i, n, rw, a))
		}
	}
	// By a constant, by 1, by cl.
	for i, n := range shifts {
		for op, a := range map[int]string{0xc0: "Eb,Iu", 0xc1: "Ev,Iu", 0xd0: "Eb,One", 0xd1: "Ev,One", 0xd2: "Eb,CL",
			0xd3: "Ev,CL"} {
			out = append(out, fmt.Sprintf("0 %02x /%d %s +%s", op, i, n, a))
		}
	}
	// Maps have no order; the output must have one.
	sort.Strings(out)
	return out
}

// Names of implicit registers: their number, and whether all 64 bits count.
var implicitRegs = map[string]struct{ n, whole int }{}

// init fills implicitRegs, by names of 16 bits (operand size), 32 and 64.
func init() {
	for i, s := range strings.Fields("ax cx dx bx sp bp si di") {
		implicitRegs[s] = struct{ n, whole int }{i, 0}
		implicitRegs["e"+s] = struct{ n, whole int }{i, 1}
		implicitRegs["r"+s] = struct{ n, whole int }{i, 1}
	}
	implicitRegs["al"] = struct{ n, whole int }{0, 0}
	implicitRegs["ah"] = struct{ n, whole int }{0, 0}
	for i := 8; i < 16; i++ {
		implicitRegs[fmt.Sprint("r", i)] = struct{ n, whole int }{i, 1}
	}
}

// access splits the mark from an operand: = written, + both, none read.
func access(s string) (string, int) {
	switch s[0] {
	case '=':
		return s[1:], 2
	case '+':
		return s[1:], 3
	}
	return s, 1
}

// implicit adds registers that are no operands.
func (f *form) implicit(list string) error {
	for _, t := range strings.Fields(list) {
		t, a := access(t)
		r, ok := implicitRegs[t]
		if !ok {
			return fmt.Errorf("implicit register %q", t)
		}
		// Names without width are as wide as the operand.
		rd, wr := &f.readOp, &f.writeOp
		if r.whole == 1 {
			rd, wr = &f.read, &f.write
		}
		if a&1 != 0 {
			*rd |= 1 << r.n
		}
		if a&2 != 0 {
			*wr |= 1 << r.n
		}
	}
	return nil
}

// Memory operands by letter, in bytes; 0: only the address counts.
var memSizes = map[string]int{"M": 0, "Mp": 0, "Mb": 1, "Mw": 2, "Md": 4, "Mq": 8, "Mo": 16, "Mt": 10, "Mn": 28,
	"Ms": 108}

// argSource gives an operand's Go source: kind, field, size.
func argSource(t string) (string, error) {
	// Letters of sizes, as in the SDM.
	sizes := map[byte]string{'b': "1", 'w': "2", 'd': "4", 'q': "8", 'v': "sizeV", 'y': "sizeY"}
	if n, ok := memSizes[t]; ok {
		return fmt.Sprintf("{argMem, 0, %d}", n), nil
	}
	// Operands with a fixed meaning.
	switch t {
	case "My":
		return "{argMem, 0, sizeY}", nil
	case "Mcx":
		return "{argMem, 0, sizeCX}", nil
	case "Mx":
		return "{argMem, 0, size512}", nil
	case "Ib", "Ibs":
		return "{argImm, 0, 1}", nil
	case "Iu":
		return "{argImmU, 0, 1}", nil
	case "Iw":
		return "{argImmU, 0, 2}", nil
	case "Iz":
		return "{argImm, 0, sizeZ}", nil
	case "Iv":
		return "{argImm, 0, sizeV}", nil
	case "Id":
		return "{argImm, 0, 4}", nil
	case "One":
		return "{argOne, 0, 0}", nil
	case "Jb":
		return "{argRel, 0, 1}", nil
	case "Jz":
		return "{argRel, 0, 4}", nil
	case "Sw":
		return "{argSeg, fieldReg, 2}", nil
	case "FS", "GS":
		return "{argSegFixed, " + map[string]string{"FS": "4", "GS": "5"}[t] + ", 8}", nil
	case "Cq":
		return "{argCtl, fieldReg, 8}", nil
	case "Dq":
		return "{argDbg, fieldReg, 8}", nil
	case "AL":
		return "{argFixed, 0, 1}", nil
	case "CL":
		return "{argFixed, 1, 1}", nil
	case "DX":
		return "{argFixed, 2, 2}", nil
	case "AX":
		return "{argFixed, 0, sizeV}", nil
	case "AXd":
		return "{argFixed, 0, sizeZ}", nil
	case "AXw":
		return "{argFixed, 0, 2}", nil
	case "Ob", "Ov":
		return "{argAbs, 0, " + sizes[t[1]] + "}", nil
	}
	if t[0] == 'M' {
		return "{argMem, 0, " + t[1:] + "}", nil
	}
	// Letters of fields, as vector.txt has them.
	fields := map[byte]string{'g': "fieldReg", 'e': "fieldRM", 'h': "fieldV", 'l': "fieldImm", '0': "fieldZero"}
	if len(t) == 2 && fields[t[1]] != "" {
		f := fields[t[1]]
		switch t[0] {
		// Registers of vectors and other files: a kind and a field.
		case 'V':
			return "{argVec, " + f + ", sizeL}", nil
		case 'X', 'Y', 'Z':
			return fmt.Sprintf("{argVec, %s, %d}", f, 16<<(t[0]-'X')), nil
		case 'P':
			return "{argMMX, " + f + ", 8}", nil
		case 'K':
			return "{argMask, " + f + ", 8}", nil
		case 'T':
			return "{argTile, " + f + ", 0}", nil
		case 'B':
			return "{argBnd, " + f + ", 16}", nil
		case 'D':
			return "{argGPR, " + f + ", 4}", nil
		case 'Q':
			return "{argGPR, " + f + ", 8}", nil
		}
	}
	// General registers and r/m: a kind and a size.
	if s, ok := sizes[t[1]]; ok && len(t) == 2 {
		switch t[0] {
		case 'E':
			return "{argRM, fieldRM, " + s + "}", nil
		case 'R':
			return "{argGPR, fieldRM, " + s + "}", nil
		case 'G':
			return "{argGPR, fieldReg, " + s + "}", nil
		case 'Z':
			return "{argGPR, fieldOp, " + s + "}", nil
		}
	}
	return "", fmt.Errorf("operand %q", t)
}

// handForms parses a line of legacy.txt: map, opcodes, selectors, mnemonic, operands; implicit
// registers. A range of opcodes gives a form each.
func handForms(line string) ([]*form, error) {
	main, impl, _ := strings.Cut(line, ";")
	f := strings.Fields(main)
	// Without selectors a form takes all prefixes, lengths and values of ModRM.reg.
	fm := form{space: "s", pp: 0, w: 3, l: 15, mod: 3, reg: 0xff, modrm: -1}
	fm.m, _ = strconv.Atoi(f[0])
	lo, hi := opcodes(f[1])
	f = f[2:]
	reg := 0
sel:
	// Selectors come before the mnemonic.
	for len(f) > 0 {
		switch t := f[0]; {
		case t == "np":
			fm.pp |= 1
		case t == "66":
			fm.pp |= 2
		case t == "f3":
			fm.pp |= 4
		case t == "f2":
			fm.pp |= 8
		case t == "m":
			fm.mod = 2
		case t == "r":
			fm.mod = 1
		case t == "w1":
			fm.w = 2
		case t[0] == '/':
			n, _ := strconv.Atoi(t[1:])
			reg |= 1 << n
		case t[0] == 'x' && len(t) == 3:
			n, err := strconv.ParseUint(t[1:], 16, 8)
			if err != nil {
				break sel
			}
			fm.modrm = int(n)
			fm.mod = 1
		default:
			break sel
		}
		f = f[1:]
	}
	if reg != 0 {
		fm.reg = reg
	}
	// No prefix named: any.
	if fm.pp == 0 {
		fm.pp = 15
	}
	fm.name = f[0]
	if len(f) > 1 {
		for i, a := range strings.Split(f[1], ",") {
			a, acc := access(a)
			fm.acc |= acc << (2 * i)
			s, err := argSource(a)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			fm.args = append(fm.args, s)
		}
	}
	if err := fm.implicit(impl); err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	var out []*form
	for op := lo; op <= hi; op++ {
		c := fm
		c.op = op
		out = append(out, &c)
	}
	return out, nil
}

// readsFirst reports whether an instruction's first operand is a source.
func readsFirst(n string) bool {
	n = strings.TrimPrefix(n, "v")
	for _, p := range []string{"comis", "ucomis", "ptest", "testp", "ldmxcsr", "kortest", "ktest", "pcmpistr", "pcmpestr",
		"gatherpf", "scatterpf",
		"maskmovdqu", "maskmovq", "lwp", "llwpcb", "loadiwkey", "tileloadd", "ldtilecfg", "prefetch"} {
		if strings.HasPrefix(n, p) {
			return n != "tileloadd"
		}
	}
	return false
}

// vectorForm parses a line of vector.txt; write gives its columns.
func vectorForm(l string) (*form, error) {
	f := strings.Fields(l)
	fm := &form{space: f[0], modrm: -1, name: f[8]}
	fm.m, _ = strconv.Atoi(f[1])
	fm.op, _ = opcodes(f[2])
	fm.mod = map[string]int{"r": 1, "m": 2}[f[3]]
	hex := func(s string) int { n, _ := strconv.ParseInt(s, 16, 32); return int(n) }
	fm.pp, fm.w, fm.l, fm.reg = hex(f[4][2:]), hex(f[5][1:]), hex(f[6][1:]), hex(f[7][1:])
	if fm.space == "s" {
		fm.l = 15
	}
	fm.n, _ = strconv.Atoi(f[10])
	fm.nb, _ = strconv.Atoi(f[11])
	if f[9] != "-" {
		// vector.txt says nothing of reading and writing: the first operand is written, others are
		// read.
		for i, a := range strings.Split(f[9], ",") {
			acc := 1
			if i == 0 && !readsFirst(fm.name) {
				acc = 2
				if a[0] != 'D' && a[0] != 'Q' && a[0] != 'M' && fm.space == "s" {
					acc = 3 // two-operand forms, mostly
				}
			}
			if i == 1 && fm.name == "mulx" || i == 0 && fm.name == "extrq" {
				acc = 2
			}
			// Immediates, and registers in them.
			if a == "I" || a[len(a)-1] == 'l' && len(a) == 2 {
				fm.immLen = 1
			}
			if a == "I" {
				a = "Iu"
				if fm.space == "x" && fm.m == 10 {
					a = "Id"
				}
			}
			fm.acc |= acc << (2 * i)
			s, err := argSource(a)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l, err)
			}
			fm.args = append(fm.args, s)
		}
	}
	// Implicit registers of vector instructions.
	switch n := strings.TrimPrefix(fm.name, "v"); {
	case n == "pcmpistri":
		return fm, fm.implicit("=ecx")
	case n == "pcmpestri":
		return fm, fm.implicit("rax rdx =ecx")
	case n == "pcmpestrm":
		return fm, fm.implicit("rax rdx")
	case n == "maskmovq" || n == "maskmovdqu":
		return fm, fm.implicit("rdi")
	case n == "mulx":
		return fm, fm.implicit("rdx")
	}
	return fm, nil
}

// lengths are the sizes that follow the vector length: whole, half, and so on.
var lengths = [...]string{"sizeL", "sizeL2", "sizeL4", "sizeL8"}

// lengthOf returns which of lengths n bytes are at a vector length of vl bytes, or -1.
func lengthOf(n, vl int) int {
	for i := range lengths {
		if n == vl>>i {
			return i
		}
	}
	return -1
}

// merge joins forms of an opcode that differ in the vector length alone, and in memory and factors of disp8 that are as
// large as it, or a half, a quarter or an eighth of it.
func merge(forms []*form, slot func(f *form) int) (out []*form) {
	merged := map[string]*form{}
	for _, f := range forms {
		if f.space != "v" && f.space != "e" || f.l != 1 && f.l != 2 && f.l != 4 {
			out = append(out, f)
			continue
		}
		g, vl := *f, 16*f.l
		g.args = slices.Clone(f.args)
		for i, a := range g.args {
			var n int
			if _, err := fmt.Sscanf(a, "{argMem, 0, %d}", &n); err == nil && lengthOf(n, vl) >= 0 {
				g.args[i] = "{argMem, 0, " + lengths[lengthOf(n, vl)] + "}"
			}
		}
		if k := lengthOf(g.n, vl); k >= 0 {
			g.n = -1 - k
		}
		g.l = 0
		key := fmt.Sprint(slot(f), g)
		if first := merged[key]; first == nil {
			merged[key] = f
			out = append(out, f)
		} else {
			first.l, first.args, first.n = first.l|f.l, g.args, g.n
		}
	}
	return out
}

// source returns the form as a Go literal.
func (f *form) source(id string, slot int) string {
	n := strconv.Itoa(f.n)
	if f.n < 0 {
		n = lengths[-1-f.n]
	}
	s := fmt.Sprintf("{slot: %#x, op: %s, pp: %d, w: %d, l: %d, mod: %d, reg: %#x, modrm: %d, args: [5]argSpec{%s}, acc: %#x, "+
		"read: %#x, write: %#x, readOp: %#x, writeOp: %#x, n: %s, nb: %d},\n", slot, id, f.pp, f.w, f.l, f.mod, f.reg,
		max(f.modrm, 0), strings.Join(f.args, ", "), f.acc, f.read, f.write, f.readOp, f.writeOp, n, f.nb)
	return zeroField.ReplaceAllString(s, "")
}

// zeroField is a field that a literal need not have.
var zeroField = regexp.MustCompile(`, \w+: (0x0\b|0\b|\[5\]argSpec\{\})`)

// ident returns the constant's name of a mnemonic.
func ident(name string) string {
	return "Op" + strings.ToUpper(strings.ReplaceAll(strings.ReplaceAll(name, ".", "_"), "3dnow", "ThreeDNow"))
}

// generate reads both lists and writes the tables.
func generate() error {
	var forms []*form
	hand, err := readLines("legacy.txt")
	if err != nil {
		return err
	}
	for _, l := range append(arithmetic(), hand...) {
		fs, err := handForms(l)
		if err != nil {
			return err
		}
		forms = append(forms, fs...)
	}
	vec, err := readLines("vector.txt")
	if err != nil {
		return err
	}
	for _, l := range vec {
		f, err := vectorForm(l)
		if err != nil {
			return err
		}
		forms = append(forms, f)
	}
	// tables: legacy maps 0-3, VEX 1-3, EVEX 1-6, XOP 8-10
	base := map[string]int{"s": 0, "v": 3, "e": 6, "x": 5}
	slot := func(f *form) int { return (base[f.space]+f.m)*256 + f.op }
	sort.SliceStable(forms, func(i, j int) bool { return slot(forms[i]) < slot(forms[j]) })
	forms = merge(forms, slot)
	// The constants are in the order of the alphabet.
	names := map[string]bool{}
	names["pause"] = true // nop with f3
	for _, f := range forms {
		names[f.name] = true
	}
	var sorted []string
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/analysis/x86/gen from legacy.txt and vector.txt. DO NOT EDIT.\n\npackage x86\n\n// The mnemonics.\nconst (\n\tOpUnknown Op = iota\n")
	for _, n := range sorted {
		fmt.Fprintf(&b, "%s\n", ident(n))
	}
	b.WriteString(")\n\nvar opNames = [...]string{\"(unknown)\",\n")
	for _, n := range sorted {
		fmt.Fprintf(&b, "%q,\n", n)
	}
	b.WriteString("}\n\nvar forms = [...]form{\n")
	for _, f := range forms {
		b.WriteString(f.source(ident(f.name), slot(f)))
	}
	b.WriteString("}\n")
	src, err := format.Source(b.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile("../ztables.go", src, 0o644)
}
