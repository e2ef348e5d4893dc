package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// This file makes ../ztables.go, the tables of the decoder, from two lists: legacy.txt, by hand, and vector.txt,
// harvested from objdump. Letters of operands are those of the SDM (volume 2, appendix A.2), as far as they go.

// form is one entry of the tables, with Go source in place of values.
type form struct {
	// Each field but name becomes one of ../tables.go's form.
	space           string // s legacy, v VEX, e EVEX, x XOP
	m, op           int    // map and opcode
	name            string // mnemonic, in lower case
	pp, w, l, mod   int    // bit masks: prefixes none, 66, f3, f2; W0, W1; lengths; register, memory
	reg             int    // bit mask of ModRM.reg
	modrm           int    // exact byte, or -1
	args            []arg
	acc             int    // two bits for each operand: 1 read, 2 written
	read, write     int    // whole registers
	readOp, writeOp int    // as wide as the operand
	n, nb           string // source of the factors of disp8, without and with broadcast
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

// By ModRM.reg; 6 is an alias of shl that the SDM does not list, but processors and objdump know.
var shifts = strings.Fields("rol ror rcl rcr shl shr shl sar")

// arithmetic returns the lines that follow a pattern. The first eight rows of the opcode map and its groups 1 and 2
// (SDM Vol. 2 Table A-6) are as regular as that.
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
	// By a constant, by 1, by cl: group 2.
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

// arg is the source of an argSpec's fields: kind, field, size, and the size as memory or "0".
type arg [4]string

// Memory operands by letter, in bytes; 0: only the address counts.
var memSizes = map[string]int{"M": 0, "Mp": 0, "Mb": 1, "Mw": 2, "Md": 4, "Mq": 8, "Mo": 16, "Mt": 10, "Mn": 28,
	"Ms": 108}

// Operands with a fixed meaning.
var fixedArgs = map[string]arg{
	"My": {"argMem", "0", "sizeY"}, "Mcx": {"argMem", "0", "sizeCX"}, "Mx": {"argMem", "0", "size512"},
	"Ib": {"argImm", "0", "1"}, "Ibs": {"argImm", "0", "1"}, "Iu": {"argImmU", "0", "1"}, "Iw": {"argImmU", "0", "2"},
	"Iz": {"argImm", "0", "sizeZ"}, "Iv": {"argImm", "0", "sizeV"}, "Id": {"argImm", "0", "4"},
	"One": {"argOne", "0", "0"}, "Jb": {"argRel", "0", "1"}, "Jz": {"argRel", "0", "4"},
	"Sw": {"argSeg", "fieldReg", "2"}, "FS": {"argSegFixed", "4", "8"}, "GS": {"argSegFixed", "5", "8"},
	"Cq": {"argCtl", "fieldReg", "8"}, "Dq": {"argDbg", "fieldReg", "8"},
	"AL": {"argFixed", "0", "1"}, "CL": {"argFixed", "1", "1"}, "DX": {"argFixed", "2", "2"},
	"AX": {"argFixed", "0", "sizeV"}, "AXd": {"argFixed", "0", "sizeZ"}, "AXw": {"argFixed", "0", "2"},
	"Ob": {"argAbs", "0", "1"}, "Ov": {"argAbs", "0", "sizeV"},
}

// Operands of two letters, by both: a kind and a size, then a field, as vector.txt has them.
var (
	fileArgs = map[byte]arg{'V': {"argVec", "", "sizeL"}, 'X': {"argVec", "", "16"}, 'Y': {"argVec", "", "32"},
		'Z': {"argVec", "", "64"}, 'P': {"argMMX", "", "8"}, 'K': {"argMask", "", "8"}, 'T': {"argTile", "", "0"},
		'B': {"argBnd", "", "16"}, 'D': {"argGPR", "", "4"}, 'Q': {"argGPR", "", "8"}}
	fields = map[byte]string{'g': "fieldReg", 'e': "fieldRM", 'h': "fieldV", 'l': "fieldImm", '0': "fieldZero"}
)

// General registers and r/m, by both letters: a field, then a size, as in the SDM.
var (
	registerArgs = map[byte]string{'E': "fieldRM", 'R': "fieldRM", 'G': "fieldReg", 'Z': "fieldOp"}
	sizes        = map[byte]string{'b': "1", 'w': "2", 'd': "4", 'q': "8", 'v': "sizeV", 'y': "sizeY"}
)

// argOf gives an operand's source.
func argOf(t string) (arg, error) {
	if n, ok := memSizes[t]; ok {
		return arg{"argMem", "0", strconv.Itoa(n), "0"}, nil
	}
	a, ok := fixedArgs[t]
	if !ok && len(t) == 2 {
		f, s := fields[t[1]], sizes[t[1]]
		if a, ok = fileArgs[t[0]]; ok && f != "" {
			a[1] = f
		} else if f, ok = registerArgs[t[0]]; ok && s != "" {
			a = arg{"argGPR", f, s}
			if t[0] == 'E' { // a register or memory
				a[3] = s
				return a, nil
			}
		} else {
			ok = false
		}
	}
	if !ok && t[0] == 'M' {
		a, ok = arg{"argMem", "0", t[1:]}, true
	}
	if !ok {
		return a, fmt.Errorf("operand %q", t)
	}
	a[3] = "0"
	return a, nil
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
			s, err := argOf(a)
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

// readsFirst reports whether an instruction's first operand is a source. objdump lists destinations first; these
// instructions have none among their operands, or compare, load state, or hint.
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
	fm.n, fm.nb = f[10], f[11]
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
			if a == "I" {
				a = "Iu"
				if fm.space == "x" && fm.m == 10 {
					a = "Id"
				}
			}
			fm.acc |= acc << (2 * i)
			s, err := argOf(a)
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

// sized is a form at one vector length, with its sizes in bytes: those of its operands, and the factor of disp8.
type sized struct {
	form  *form
	sizes []int
}

// merge joins forms of an opcode that differ in the vector length alone, and in sizes that are as large as it, or a
// half, a quarter or an eighth of it. objdump was asked for 128, 256 and 512 bits apart, and most vector instructions
// have all three.
func merge(forms []*form, slot func(f *form) int) (out []*form) {
	var order []string
	groups := map[string][]sized{}
	for _, f := range forms {
		if f.space != "v" && f.space != "e" || f.l > 7 {
			order = append(order, fmt.Sprint(len(order)))
			groups[order[len(order)-1]] = []sized{{f, nil}}
			continue
		}
		for l := 1; l <= 4; l *= 2 {
			if f.l&l == 0 {
				continue
			}
			g := *f
			factor, _ := strconv.Atoi(f.n)
			g.l, g.args, g.n = 0, slices.Clone(f.args), ""
			s := sized{&g, []int{factor}}
			for i, a := range g.args {
				n, err := strconv.Atoi(a[2])
				if a[2] == "sizeL" {
					n, err = 16*l, nil
				}
				if err != nil || a[0] != "argVec" && a[0] != "argMem" {
					n = 0
				} else {
					g.args[i][2] = ""
				}
				s.sizes = append(s.sizes, n)
			}
			key := fmt.Sprint(slot(f), g)
			if groups[key] == nil {
				order = append(order, key)
			}
			g.l = l
			groups[key] = append(groups[key], s)
		}
	}
	for _, key := range order {
		for group := groups[key]; len(group) > 0; {
			same, rest := group[:1:1], []sized(nil)
			for _, s := range group[1:] {
				if joined := append(same, s); fits(joined) {
					same = joined
				} else {
					rest = append(rest, s)
				}
			}
			out, group = append(out, join(same)), rest
		}
	}
	return out
}

// sizeOf returns the source of a size that forms have in column i; ok is false if it is neither the same in all nor the
// same part of each one's vector length.
func sizeOf(forms []sized, i int) (string, bool) {
	n := forms[0].sizes[i]
	part := lengthOf(n, 16*forms[0].form.l)
	same := true
	for _, f := range forms {
		same = same && f.sizes[i] == n
		if lengthOf(f.sizes[i], 16*f.form.l) != part {
			part = -1
		}
	}
	if same {
		return strconv.Itoa(n), true
	} else if part >= 0 {
		return lengths[part], true
	}
	return "", false
}

// fits reports whether forms can be one.
func fits(forms []sized) bool {
	for i := range forms[0].sizes {
		if _, ok := sizeOf(forms, i); !ok {
			return false
		}
	}
	return true
}

// join returns the one form of forms that fit.
func join(forms []sized) *form {
	f := forms[0].form
	if forms[0].sizes == nil {
		return f
	}
	f.n, _ = sizeOf(forms, 0)
	for i := range f.args {
		if f.args[i][2] == "" {
			f.args[i][2], _ = sizeOf(forms, i+1)
		}
	}
	for _, g := range forms[1:] {
		f.l |= g.form.l
	}
	return f
}

// mergeW joins forms that differ in W alone, and in sizes that are 4 without it and 8 with it. Such pairs move a
// general register of 4 or 8 bytes, like vmovd and vcvtsi2sd.
func mergeW(forms []*form, slot func(f *form) int) (out []*form) {
	waiting := map[string][]*form{}
	for _, f := range forms {
		g := *f
		g.w, g.n, g.nb, g.args = 0, "", "", slices.Clone(f.args)
		for i := range g.args {
			g.args[i][2] = ""
		}
		key := fmt.Sprint(slot(f), g)
		if i := slices.IndexFunc(waiting[key], f.joinW); f.w != 3 && i >= 0 {
			waiting[key] = slices.Delete(waiting[key], i, i+1)
			continue
		}
		if f.w != 3 {
			waiting[key] = append(waiting[key], f)
		}
		out = append(out, f)
	}
	return out
}

// joinW makes first, a form of the other W, stand for f as well, and reports whether it can.
func (f *form) joinW(first *form) bool {
	joined := *first
	joined.w, joined.args = 3, slices.Clone(first.args)
	ok := f.w+first.w == 3
	join := func(a *string, b string) {
		short, long := *a, b
		if f.w == 1 {
			short, long = long, short
		}
		switch {
		case short == "4" && long == "8":
			*a = "sizeY"
		case short != long:
			ok = false
		}
	}
	join(&joined.n, f.n)
	join(&joined.nb, f.nb)
	for i := range f.args {
		join(&joined.args[i][2], f.args[i][2])
	}
	if ok {
		*first = joined
	}
	return ok
}

// mergeMemory joins forms that differ in one operand alone: a register that ModRM's lower part names, or memory. Half
// of vector.txt's lines are the memory form of the line before; one form for both halves the table.
func mergeMemory(forms []*form, slot func(f *form) int) (out []*form) {
	registers := map[string][2]*form{} // a form with a register there, and one with memory
	for _, f := range forms {
		key, which := "", f.mod-1
		for i, a := range f.args {
			if which == 0 && a[1] == "fieldRM" && a[3] == "0" || which == 1 && a[0] == "argMem" && a[2] != "0" {
				g := *f
				g.args = slices.Clone(f.args)
				g.args[i] = arg{}
				g.mod, g.n, g.nb = 0, "", ""
				key = fmt.Sprint(slot(f), g)
			}
		}
		pair := registers[key]
		if key == "" || pair[which] != nil {
			out = append(out, f)
			continue
		}
		pair[which] = f
		registers[key] = pair
		r, m := pair[0], pair[1]
		if r == nil || m == nil {
			out = append(out, f)
			continue
		}
		// The one that came first stands for both.
		first, merged := pair[1-which], *m
		merged.mod = 3
		merged.args = slices.Clone(r.args)
		for i, a := range m.args {
			if a[0] == "argMem" {
				merged.args[i][3] = a[2]
			}
		}
		*first = merged
	}
	return out
}

// source returns the form as a Go literal.
func (f *form) source(id string, slot int) string {
	var args []string
	for _, a := range f.args {
		args = append(args, "{"+strings.Join(a[:], ", ")+"}")
	}
	s := fmt.Sprintf("{slot: %#x, op: %s, pp: %d, w: %d, l: %d, mod: %d, reg: %#x, modrm: %d, args: [5]argSpec{%s}, acc: %#x, "+
		"read: %#x, write: %#x, readOp: %#x, writeOp: %#x, n: %s, nb: %s},", slot, id, f.pp, f.w, f.l, f.mod, f.reg,
		max(f.modrm, 0), strings.Join(args, ", "), f.acc, f.read, f.write, f.readOp, f.writeOp, cmp.Or(f.n, "0"), cmp.Or(f.nb, "0"))
	s = zeroField.ReplaceAllString(s, "")
	if id[0] != 'O' {
		s += " // " + f.name
	}
	return s + "\n"
}

// zeroField is a field that a literal need not have.
var zeroField = regexp.MustCompile(`, \w+: (0x0\b|0\b|\[5\]argSpec\{\})`)

// generate returns the source of the tables, made of both lists. The forms are in the order of slots; of one slot, in
// the order of the lists, on which match relies.
func generate() ([]byte, error) {
	var forms []*form
	hand, err := readLines("legacy.txt")
	if err != nil {
		return nil, err
	}
	for _, l := range append(arithmetic(), hand...) {
		fs, err := handForms(l)
		if err != nil {
			return nil, err
		}
		forms = append(forms, fs...)
	}
	vec, err := readLines("vector.txt")
	if err != nil {
		return nil, err
	}
	for _, l := range vec {
		f, err := vectorForm(l)
		if err != nil {
			return nil, err
		}
		forms = append(forms, f)
	}
	// tables: legacy maps 0-3, VEX 1-3, EVEX 1-6, XOP 8-10
	base := map[string]int{"s": 0, "v": 3, "e": 6, "x": 5}
	slot := func(f *form) int { return (base[f.space]+f.m)*256 + f.op }
	sort.SliceStable(forms, func(i, j int) bool { return slot(forms[i]) < slot(forms[j]) })
	forms = mergeMemory(mergeW(merge(forms, slot), slot), slot)
	// The mnemonics: those that code names, then the others in the order of the alphabet.
	source, err := os.ReadFile("../ops.go")
	if err != nil {
		return nil, err
	}
	ids := map[string]string{} // what stands for a mnemonic in the source
	names := []string{"(unknown)"}
	named := map[string]string{"OpTHREEDNOW": "3dnow"}
	for _, line := range opRE.FindAllString(string(source), -1) {
		id := line[1:]
		name := cmp.Or(named[id], strings.ToLower(id[2:]))
		if ids[name] == "" {
			ids[name] = id
			names = append(names, name)
		}
	}
	var others []string
	for _, f := range forms {
		if ids[f.name] == "" && !slices.Contains(others, f.name) {
			others = append(others, f.name)
		}
	}
	sort.Strings(others)
	for _, n := range others {
		ids[n] = strconv.Itoa(len(names))
		names = append(names, n)
	}
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/analysis/x86/gen from legacy.txt and vector.txt. DO NOT EDIT.\n\npackage x86\n\n")
	fmt.Fprintf(&b, "// NumOps is the number of mnemonics: each Op is less.\nconst NumOps = %d\n\n", len(names))
	b.WriteString("// Those of all Ops.\nconst mnemonics = `")
	line := 0
	for _, n := range names {
		sep := " "
		if line += len(n) + 1; line > 100 {
			sep, line = "\n", len(n)
		}
		b.WriteString(sep + n)
	}
	b.WriteString("`\n\nvar forms = [...]form{\n")
	for _, f := range forms {
		b.WriteString(f.source(ids[f.name], slot(f)))
	}
	b.WriteString("}\n")
	return format.Source(b.Bytes())
}

// opRE is the constant of a mnemonic, as the first word of a line.
var opRE = regexp.MustCompile(`(?m)^\tOp[A-Z0-9]+\b`)
