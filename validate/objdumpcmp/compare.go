// Package objdumpcmp holds package x86 against objdump: lengths, mnemonics and operands of every instruction of a file.
package objdumpcmp

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// Result counts the instructions compared and those that differ.
type Result struct {
	Instructions int // those that objdump knows, in the ranges asked for
	Bad          int // objdump says (bad), or shows a prefix alone
	Length       int // other length, or none
	Mnemonic     int // other mnemonic
	Operands     int // other operands, of instructions on general registers
	Unknown      int // x86.OpUnknown
	Examples     []string
}

// Add adds o to r.
func (r *Result) Add(o *Result) {
	r.Instructions += o.Instructions
	r.Bad += o.Bad
	r.Length += o.Length
	r.Mnemonic += o.Mnemonic
	r.Operands += o.Operands
	r.Unknown += o.Unknown
	r.Examples = append(r.Examples, o.Examples...)
}

const maxExamples = 20 // of each kind of difference, at first

// File compares the instructions of the file at path whose addresses covered accepts; nil accepts all.
func File(path string, covered func(uint64) bool) (*Result, error) {
	cmd := exec.Command("objdump", "-d", "-w", "-z", "-M", "intel", "--insn-width=16", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r, err := Listing(out, covered)
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = fmt.Errorf("objdump %s: %w", path, werr)
	}
	return r, err
}

// Listing compares what objdump -d -w -M intel printed.
func Listing(listing io.Reader, covered func(uint64) bool) (*Result, error) {
	r := &Result{}
	sc := bufio.NewScanner(listing)
	sc.Buffer(make([]byte, 1<<20), 1<<20)
	var code [16]byte
	var in x86.Inst
	for sc.Scan() {
		addr, rest, ok := strings.Cut(sc.Text(), ":\t")
		if !ok {
			continue
		}
		pc, err := strconv.ParseUint(strings.TrimSpace(addr), 16, 64)
		if err != nil || covered != nil && !covered(pc) {
			continue
		}
		bytes, text, ok := strings.Cut(rest, "\t")
		if !ok {
			continue
		}
		n := 0
		clear(code[:])
		for _, f := range strings.Fields(bytes) {
			v, err := strconv.ParseUint(f, 16, 8)
			if err != nil || n == len(code) {
				return nil, fmt.Errorf("line %q", sc.Text())
			}
			code[n] = byte(v)
			n++
		}
		r.one(pc, code[:n], code[:], text, &in)
	}
	return r, sc.Err()
}

// one compares an instruction; code are its bytes, padded the same up to 16.
func (r *Result) one(pc uint64, code, padded []byte, text string, in *x86.Inst) {
	text = strings.TrimSpace(text)
	if i := strings.IndexAny(text, "#<"); i >= 0 { // objdump's comments and symbols
		text = strings.TrimSpace(text[:i])
	}
	name, operands := split(text)
	// 66 before a relative call or jump: AMD's processors take two bytes of distance, Intel's four; Decode refuses it
	disputed := name == "callw" || name == "jmpw" || name == "xbeginw" || len(code) == 5 && code[0] == 0x66 &&
		code[1] == 0x0f && code[2]&0xf0 == 0x80
	if strings.Contains(text, "(bad)") || name == "" || name == ".byte" || disputed || invalidVector(code) {
		r.Bad++
		return
	}
	// objdump's fstcw, fstsw, finit...: an fwait and what follows it
	if code[0] == 0x9b && len(code) > 1 && name[0] == 'f' {
		r.one(pc, code[:1], []byte{code[0], 0x90}, "fwait", in)
		r.one(pc+1, code[1:], padded[1:], text, in)
		return
	}
	r.Instructions++
	say := func(n *int, what string) {
		*n++
		if len(r.Examples) < maxExamples || *n < 20 && len(r.Examples) < 3*maxExamples {
			r.Examples = append(r.Examples, fmt.Sprintf("%s: %#x: % x: objdump %q, here %q length %d", what, pc, code,
				text, in.Text(pc), in.Len))
		}
	}
	if err := x86.Decode(padded, in); err != nil || int(in.Len) != len(code) {
		say(&r.Length, "length")
		return
	}
	if in.Op == x86.OpUnknown {
		say(&r.Unknown, "unknown")
		return
	}
	if !sameName(name, in) {
		say(&r.Mnemonic, "mnemonic")
		return
	}
	if !sameOperands(operands, pc, in) {
		say(&r.Operands, "operands")
	}
}

// invalidVector reports whether REX, 66, f2, f3 or f0 stands before VEX or EVEX: the processor
// refuses that (SDM Vol. 2, 2.3.2 to 2.3.4), objdump shows it. It does so where it lost step in
// data.
func invalidVector(code []byte) bool {
	refused := false
	for _, b := range code {
		switch {
		case b&0xf0 == 0x40, b == 0x66, b == 0xf2, b == 0xf3, b == 0xf0:
			refused = true
		case b == 0x2e, b == 0x36, b == 0x3e, b == 0x26, b == 0x64, b == 0x65, b == 0x67:
		default:
			return refused && (b == 0xc4 || b == 0xc5 || b == 0x62)
		}
	}
	return false
}

// prefixNames stand before the mnemonic in objdump's lines.
var prefixNames = map[string]bool{"lock": true, "rep": true, "repz": true, "repnz": true, "data16": true,
	"addr32": true, "cs": true, "ds": true,
	"es": true, "ss": true, "fs": true, "gs": true, "bnd": true, "notrack": true, "{vex}": true, "{evex}": true,
	"{vex3}": true, "xacquire": true, "xrelease": true, "rex.W": true, "rex": true, "{disp32}": true, "{disp8}": true,
	"{load}": true}

// split returns the mnemonic and the operands of objdump's text, without prefixes.
func split(text string) (name, operands string) {
	for {
		w, rest, _ := strings.Cut(text, " ")
		rest = strings.TrimSpace(rest)
		if w, _, _ := strings.Cut(w, ",p"); prefixNames[w] || strings.HasPrefix(w, "rex.") || w == "jcc" {
			text = rest
			continue
		}
		return w, rest
	}
}

// sameNames has the mnemonics of package x86 for those that objdump writes otherwise.
var sameNames = map[string]string{"xbegin": "xbegin", "sysretl": "sysret", "sysretq": "sysret", "sysretd": "sysret",
	"sysexitd": "sysexit", "sysexitq": "sysexit", "iretd": "iret", "iretq": "iret", "iretw": "iret", "retfq": "retf",
	"retfw": "retf", "ldmxcsr": "ldmxcsr",
	"pushw": "push", "popw": "pop", "callw": "call", "pushfw": "pushf", "popfw": "popf", "leavew": "leave",
	"fwait": "fwait", "jecxz": "jrcxz", "rdsspd": "rdssp", "rdsspq": "rdssp",
	"incsspd": "incssp", "incsspq": "incssp", "xsave64": "xsave", "xrstor64": "xrstor", "xsavec64": "xsavec",
	"xsaveopt64": "xsaveopt", "xsaves64": "xsaves", "xrstors64": "xrstors",
	"fxsave64": "fxsave", "fxrstor64": "fxrstor", "wrussd": "wruss", "wrussq": "wruss", "wrssd": "wrss",
	"wrssq": "wrss", "prefetchwt1": "prefetchwt1", "retw": "ret", "enterw": "enter", "prefetch": "prefetch",
	"xchg": "xchg", "icebp": "int1",
	"xstore-rng": "xstorerng", "xcrypt-ecb": "xcryptecb", "xcrypt-cbc": "xcryptcbc", "xcrypt-ctr": "xcryptctr",
	"xcrypt-cfb": "xcryptcfb", "xcrypt-ofb": "xcryptofb"}

// sameName reports whether objdump's mnemonic is the instruction's.
func sameName(name string, in *x86.Inst) bool {
	m := in.Mnemonic()
	if name == m || sameNames[name] == m {
		return true
	}
	switch in.Op {
	case x86.OpFOTHER, x86.OpFNSTCW, x86.OpFNSTSW, x86.OpFNSTENV, x86.OpFNSAVE:
		return name[0] == 'f'
	case x86.OpTHREEDNOW:
		return strings.HasPrefix(name, "pf") || strings.HasPrefix(name, "pi") || strings.HasPrefix(name, "pm") ||
			strings.HasPrefix(name, "ps") || strings.HasPrefix(name, "pa")
	case x86.OpNOP:
		return name == "nop" || name == "xchg" || name == "endbr64"
	case x86.OpCALLF:
		return name == "call"
	case x86.OpJMPF:
		return name == "jmp"
	}
	// comparisons and pclmul show their immediate in the name
	if in.Enc.ImmLen == 1 && len(name) > len(m)-2 {
		for _, p := range []string{"cmp", "vcmp", "vpcmp", "vpcom", "pclmul", "vpclmul"} {
			if strings.HasPrefix(m, p) && strings.HasPrefix(name, p) {
				return true
			}
		}
	}
	return false
}

// sameOperands compares the operands of instructions without vector registers.
func sameOperands(want string, pc uint64, in *x86.Inst) bool {
	if in.Enc.Form != x86.FormLegacy || in.NArgs == 0 || in.Op == x86.OpCALLF || in.Op == x86.OpLSS ||
		in.Op == x86.OpLFS || in.Op == x86.OpLGS || in.Op == x86.OpMOVDIR64B || in.Op == x86.OpWRSS || in.Op == x86.OpWRUSS ||
		in.Op == x86.OpENQCMD || in.Op == x86.OpENQCMDS || in.Op == x86.OpJMPF || in.Op == x86.OpFOTHER ||
		in.Op == x86.OpNOP {
		return true
	}
	if in.Prefix&x86.PrefixOpSize != 0 && (in.Op == x86.OpCALL || in.Op == x86.OpJMP) {
		return true
	}
	for _, a := range in.Args[:in.NArgs] {
		switch a.Kind {
		case x86.KGPR, x86.KMem, x86.KImm, x86.KRel:
		default:
			return true
		}
	}
	if in.Args[in.NArgs-1].Kind == x86.KRel {
		want = "0x" + strings.TrimPrefix(want, "0x") // objdump prints a target of a section without
	}
	_, got, _ := strings.Cut(in.Text(pc), in.Mnemonic()+" ")
	return canonical(got) == canonical(want)
}

// canonical drops what is a matter of taste: +0x0, riz, a scale of 1, redundant segments.
func canonical(s string) string {
	if i := strings.Index(s, "[rip+0xffffffff"); i >= 0 {
		if j := strings.IndexByte(s[i:], ']'); j > 0 {
			if v, err := strconv.ParseUint(s[i+7:i+j], 16, 64); err == nil {
				s = fmt.Sprintf("%s[rip-0x%x%s", s[:i], -v, s[i+j:])
			}
		}
	}
	return strings.NewReplacer("+0x0]", "]", "+riz*1", "", "+riz*2", "", "+riz*4", "", "+riz*8", "", "+eiz*1", "",
		"ds:", "", "cs:", "", "ss:", "", "es:", "", "*1", "", "ZMMWORD PTR ", "", "XMMWORD PTR ", "", "OWORD PTR ",
		"", "FWORD PTR ", "", "TBYTE PTR ", "").Replace(s)
}
