package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// This file asks objdump about the encodings of vector and other extended instructions: it writes
// probes, disassembles them, and takes from the text which operands lie in which fields. The result
// is vector.txt.

// probe is one encoding shown to objdump.
type probe struct {
	space     byte // 's' legacy, 'v' VEX, 'e' EVEX, 'x' XOP
	m, op, pp int  // map, opcode, prefix: 0 none, 1 66, 2 f3, 3 f2
	w, l, b   int  // W, vector length, EVEX.b
	mem, reg  int  // 1: a memory operand; value of ModRM.reg
	vvvv      bool // with register 9 in VEX.vvvv; else the field is unused
	mask      bool // with a mask register, as gathers need
	sib       bool // with an SIB byte
}

// shape is what objdump says of a probe: the mnemonic, the operands, the memory operand's bytes and the factor of
// disp8.
type shape struct {
	name string
	args []string
	n    int // factor of disp8
}

// bytes returns the probe's encoding, padded with nops to 32 bytes. Registers are chosen so that each field has another
// number. Thus operand can tell from a register's number alone which field it came from.
func (p probe) bytes() []byte {
	// vvvv is inverted: 15 stands for none.
	vvvv := byte(15 << 3)
	if p.vvvv {
		vvvv = ^9 & 15 << 3
	}
	var b []byte
	switch p.space {
	case 's':
		b = append(b, [][]byte{nil, {0x66}, {0xf3}, {0xf2}}[p.pp]...)
		// REX.W.
		if p.w == 1 {
			b = append(b, 0x48)
		}
		b = append(b, [][]byte{nil, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}}[p.m]...)
	// R, X and B are inverted: set bits mean 0.
	case 'v':
		b = append(b, 0xc4, 0xe0|byte(p.m), byte(p.w)<<7|vvvv|byte(p.l)<<2|byte(p.pp))
	case 'x':
		b = append(b, 0x8f, 0xe0|byte(p.m), byte(p.w)<<7|vvvv|byte(p.l)<<2|byte(p.pp))
	case 'e':
		k := byte(0)
		if p.mask {
			k = 1
		}
		b = append(b, 0x62, 0xf0|byte(p.m), byte(p.w)<<7|vvvv|4|byte(p.pp), byte(p.l)<<5|byte(p.b)<<4|8|k)
	}
	b = append(b, byte(p.op))
	// r/m register 6; memory at rcx+1, or with an index, also with displacement 1.
	switch {
	case p.mem == 0:
		b = append(b, 0xc0|byte(p.reg)<<3|6)
	case p.sib:
		b = append(b, 0x44|byte(p.reg)<<3, 0x29, 1)
	default:
		b = append(b, 0x41|byte(p.reg)<<3, 1)
	}
	b = append(b, 0xb0) // an immediate; a nop-like "mov al" if there is none
	for len(b) < 32 {
		b = append(b, 0x90)
	}
	return b
}

// A line of objdump's output, and the displacement in a memory operand.
var (
	lineRE = regexp.MustCompile(`^\s*([0-9a-f]+):\t([0-9a-f ]+)\t(.*)$`)
	dispRE = regexp.MustCompile(`\+0x([0-9a-f]+)\]`)
)

// disassemble runs objdump over the probes and returns what it says, or nil if it knows no such instruction.
func disassemble(ps []probe) ([]*shape, error) {
	f, err := os.CreateTemp("", "probe")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriter(f)
	// Each probe has 32 bytes, so its offset tells its number.
	for _, p := range ps {
		w.Write(p.bytes())
	}
	w.Flush()
	f.Close()
	cmd := exec.Command("objdump", "-D", "-w", "-z", "-M", "intel", "-b", "binary", "-m", "i386:x86-64", f.Name())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// By probe; nil: objdump does not know it.
	res := make([]*shape, len(ps))
	sc := bufio.NewScanner(out)
	sc.Buffer(make([]byte, 1<<16), 1<<16)
	for sc.Scan() {
		m := lineRE.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		addr, _ := strconv.ParseUint(m[1], 16, 64)
		// Padding, and bytes behind the instruction.
		if addr%32 != 0 {
			continue
		}
		res[addr/32] = parse(strings.TrimSpace(m[3]), ps[addr/32])
	}
	return res, cmd.Wait()
}

// Names that objdump prints for prefixes without an instruction.
var skipName = map[string]bool{"data16": true, "rex.W": true, "rex.w": true, "repz": true, "repnz": true, "lock": true,
	"(bad)": true, "rep": true, "cs": true, "ds": true}

// parse takes an instruction's text apart; nil if the probe is none.
func parse(text string, p probe) *shape {
	if strings.Contains(text, "(bad)") || strings.Contains(text, "{bad}") {
		return nil
	}
	for strings.HasPrefix(text, "{") {
		_, text, _ = strings.Cut(text, " ") // {vex}, {evex}: how to make gas choose this encoding
	}
	if strings.Contains(text, "%") {
		return nil // a template of objdump's own that no width completes
	}
	name, rest, _ := strings.Cut(text, " ")
	if skipName[name] || strings.HasPrefix(name, "rex") {
		return nil
	}
	// objdump adds addresses behind #.
	if i := strings.Index(rest, "#"); i >= 0 {
		rest = rest[:i]
	}
	s := &shape{name: name}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return s
	}
	for _, a := range strings.Split(rest, ",") {
		a = strings.TrimSpace(a)
		k := a
		if strings.Contains(a, "[") {
			// The displacement 1 is printed multiplied: that is the factor.
			if d := dispRE.FindStringSubmatch(a); d != nil {
				n, _ := strconv.ParseUint(d[1], 16, 32)
				s.n = int(n)
			}
			// Masks and rounding follow a register in braces.
		} else if i := strings.IndexByte(k, '{'); i > 0 {
			k = k[:i]
		}
		s.args = append(s.args, operand(k, p))
	}
	if p.b == 1 && !strings.Contains(rest, "BCST") && !strings.Contains(rest, "{1to") && p.mem == 1 {
		return nil // embedded broadcast without one
	}
	return s
}

// xmm, ymm and zmm registers.
var vecRE = regexp.MustCompile(`^([xyz])mm(\d+)$`)

// Other registers and their letters.
var regClass = []struct {
	re *regexp.Regexp
	k  string
}{
	{regexp.MustCompile(`^mm(\d+)$`), "P"},
	{regexp.MustCompile(`^k(\d+)$`), "K"},
	{regexp.MustCompile(`^tmm(\d+)$`), "T"},
	{regexp.MustCompile(`^bnd(\d+)$`), "B"},
}

// Names by number, and words of memory sizes in bytes.
var (
	gpr32   = strings.Fields("eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d")
	gpr64   = strings.Fields("rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11")
	memSize = map[string]int{"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64,
		"TBYTE": 10, "OWORD": 16, "FWORD": 6}
)

// operand names an operand by its kind and the field that holds it.
func operand(a string, p probe) string {
	if strings.Contains(a, "[") {
		f := strings.Fields(a)
		if len(f) > 1 && (f[1] == "PTR" || f[1] == "BCST") {
			return fmt.Sprintf("M%d", memSize[f[0]])
		}
		return "M0"
	}
	if strings.HasPrefix(a, "0x") {
		return "I"
	}
	// The number of a register tells the field, by the choice of bytes.
	field := func(n int) string {
		switch {
		case n == p.reg && !(p.mem == 0 && p.reg == 6):
			return "g"
		case n == 6 && p.mem == 0:
			return "e"
		case n == 9 && p.vvvv:
			return "h"
		case n == 11:
			return "l"
		case n == 0:
			return "0"
		}
		return "?"
	}
	if m := vecRE.FindStringSubmatch(a); m != nil {
		n, _ := strconv.Atoi(m[2])
		c := strings.ToUpper(m[1])
		// The vector length of the probe itself is V.
		if c == "XYZ"[p.l:p.l+1] {
			c = "V"
		}
		return c + field(n)
	}
	for _, c := range regClass {
		if m := c.re.FindStringSubmatch(a); m != nil {
			n, _ := strconv.Atoi(m[1])
			return c.k + field(n)
		}
	}
	for i := range gpr32 {
		if a == gpr32[i] {
			return "D" + field(i)
		}
		if a == gpr64[i] {
			return "Q" + field(i)
		}
	}
	return "?" + a
}

// line is one form in vector.txt.
type line struct {
	space      byte
	m, op      int
	pp, w, l   int // bit masks
	mem        int // 0 register, 1 memory
	reg        int // bit mask
	name, args string
	n, nb      int // disp8 factors, without and with broadcast
}

// isGroup reports whether ModRM.reg may choose the instruction. Other opcodes are probed with one value of reg.
func isGroup(space byte, m, op int) bool {
	switch m {
	case 1:
		return op >= 0x71 && op <= 0x73 || op == 0xae && space == 'v' || op == 0x78 && space == 's'
	case 2:
		return op == 0xf3 || op == 0xc6 || op == 0xc7 || op == 0x49 || op == 0xd8 && space == 's'
	case 9:
		return op == 1 || op == 2 || op == 0x12
	case 10:
		return op == 0x12
	}
	return false
}

// harvest makes all probes, asks objdump, and writes vector.txt.
func harvest() error {
	var ps []probe
	// add adds a probe with a register and with memory; of groups, for each value of ModRM.reg.
	add := func(p probe, groups bool) {
		for p.mem = 0; p.mem < 2; p.mem++ {
			if groups {
				for p.reg = 0; p.reg < 8; p.reg++ {
					ps = append(ps, p)
				}
			} else {
				p.reg = 2
				ps = append(ps, p)
			}
		}
	}
	hand := handOpcodes()
	// Legacy maps 0f, 0f 38 and 0f 3a, apart from what is listed by hand.
	for m := 1; m <= 3; m++ {
		for op := 0; op < 256; op++ {
			if hand[m<<8|op] || m == 1 && (op == 0x38 || op == 0x3a || op == 0x0f) {
				continue
			}
			for pp := 0; pp < 4; pp++ {
				for w := 0; w < 2; w++ {
					add(probe{space: 's', m: m, op: op, pp: pp, w: w}, isGroup('s', m, op))
				}
			}
		}
	}
	for _, s := range []struct {
		space    byte
		maps     []int
		ll, b, g int
		// Maps, number of lengths and of values of EVEX.b.
	}{{'v', []int{1, 2, 3}, 2, 1, 0}, {'x', []int{8, 9, 10}, 2, 1, 0}, {'e', []int{1, 2, 3, 5, 6}, 3, 2, 0}} {
		for _, m := range s.maps {
			for op := 0; op < 256; op++ {
				for pp := 0; pp < 4; pp++ {
					if s.space == 'x' && pp > 0 {
						continue
					}
					for w := 0; w < 2; w++ {
						for l := 0; l < s.ll; l++ {
							for b := 0; b < s.b; b++ {
								group := isGroup(s.space, m, op)
								// With and without a register in vvvv.
								for _, v := range []bool{false, true} {
									add(probe{space: s.space, m: m, op: op, pp: pp, w: w, l: l, b: b, vvvv: v}, group)
								}
								// Gathers and scatters need an SIB byte, with EVEX also a mask.
								if m == 2 || m == 2 && s.space == 'e' {
									for _, v := range []bool{false, true} {
										ps = append(ps, probe{space: s.space, m: m, op: op, pp: pp, w: w, l: l, b: b, vvvv: v, mask: s.space == 'e',
											sib: true, mem: 1, reg: 2})
										if op == 0xc6 || op == 0xc7 {
											for r := 0; r < 8; r++ {
												ps = append(ps, probe{space: s.space, m: m, op: op, pp: pp, w: w, l: l, b: b, vvvv: v, mask: true,
													sib: true, mem: 1, reg: r})
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	sh, err := disassemble(ps)
	if err != nil {
		return err
	}
	type key struct {
		space                byte
		m, op, pp, w, l, mem int
		name, args           string
	}
	// Equal shapes are one line, with masks of what they agree for.
	forms := map[key]*line{}
	// the plain ones first, so that a form met without SIB and mask is not taken from there
	seen, named := map[[8]int]bool{}, map[[8]int]bool{}
	// Where vvvv may hold a register, probes without one are no form.
	for i, p := range ps {
		if sh[i] != nil && p.vvvv && p.b == 0 {
			named[[8]int{int(p.space), p.m, p.op, p.pp, p.w, p.l, p.mem, p.reg}] = true
		}
	}
	for i, p := range ps {
		s := sh[i]
		if s == nil || p.b == 1 && p.mem == 0 {
			continue
		}
		id := [8]int{int(p.space), p.m, p.op, p.pp, p.w, p.l, p.mem, p.reg}
		if p.sib && seen[id] || p.space != 's' && !p.vvvv && named[id] {
			continue
		}
		if !p.sib && p.b == 0 {
			seen[id] = true
		}
		a := strings.Join(s.args, ",")
		// An operand that no field explains.
		if strings.Contains(a, "?") {
			fmt.Fprintf(os.Stderr, "not understood: % x %s %s\n", p.bytes()[:12], s.name, a)
			continue
		}
		if p.b == 1 {
			// only the factor is of interest
			for k, f := range forms {
				if k.space == p.space && k.m == p.m && k.op == p.op && k.pp == p.pp && k.w == p.w && k.l == p.l && k.mem == 1 {
					f.nb = s.n
				}
			}
			continue
		}
		k := key{p.space, p.m, p.op, p.pp, p.w, p.l, p.mem, s.name, a}
		f := forms[k]
		if f == nil {
			f = &line{space: p.space, m: p.m, op: p.op, pp: 1 << p.pp, w: 1 << p.w, l: 1 << p.l, mem: p.mem, name: s.name,
				args: a, n: s.n}
			forms[k] = f
		}
		f.reg |= 1 << p.reg
		// Outside of groups one value of ModRM.reg stands for all.
		if !isGroup(p.space, p.m, p.op) {
			f.reg = 0xff
		}
	}
	return write(forms2lines(func(yield func(*line)) {
		for _, f := range forms {
			yield(f)
		}
	}))
}

// forms2lines merges forms that differ in one ignored bit only.
func forms2lines(each func(func(*line))) []*line {
	var ls []*line
	each(func(f *line) {
		ls = append(ls, f)
	})
	less := func(a, b *line) bool { return a.text() < b.text() }
	merge := func(id func(*line) string, join func(to, from *line)) {
		sort.Slice(ls, func(i, j int) bool { return less(ls[i], ls[j]) })
		byText := map[string]*line{}
		out := ls[:0]
		for _, l := range ls {
			if o := byText[id(l)]; o != nil {
				join(o, l)
				continue
			}
			byText[id(l)] = l
			out = append(out, l)
		}
		ls = out
	}
	// W, length and prefix that make no difference become masks.
	merge(func(l *line) string { c := *l; c.w = 0; return c.text() }, func(a, b *line) { a.w |= b.w })
	merge(func(l *line) string { c := *l; c.l = 0; return c.text() }, func(a, b *line) { a.l |= b.l })
	merge(func(l *line) string { c := *l; c.pp = 0; return c.text() }, func(a, b *line) { a.pp |= b.pp })
	sort.Slice(ls, func(i, j int) bool { return less(ls[i], ls[j]) })
	return ls
}

// text returns the line for vector.txt.
func (l *line) text() string {
	a := l.args
	if a == "" {
		a = "-"
	}
	return fmt.Sprintf("%c %d %02x %c pp%x w%x l%x r%02x %s %s %d %d", l.space, l.m, l.op, "rm"[l.mem], l.pp, l.w, l.l,
		l.reg, l.name, a, l.n, l.nb)
}

// write writes vector.txt with a head that explains its columns.
func write(ls []*line) error {
	var b bytes.Buffer
	b.WriteString("# Vector instructions as `objdump -M intel` (binutils) shows them; made by `go run ./internal/analysis/x86/gen -harvest`.\n" +
		"# space map opcode form prefixes(mask) W(mask) L(mask) reg(mask) mnemonic operands disp8-factor factor-with-broadcast\n" +
		"# operands: V P K D Q vector, MMX, mask, 32-bit, 64-bit register in g reg, e rm, h vvvv, l immediate's high bits; MN memory of N bytes\n")
	for _, l := range ls {
		b.WriteString(l.text() + "\n")
	}
	return os.WriteFile("vector.txt", b.Bytes(), 0o644)
}
