package codeflow_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// object is assembly linked into a shared object, its functions by their symbols.
type object struct {
	img    *codeflow.Image
	fns    []codeflow.Function
	labels map[string]uint64
	names  map[uint64]string
}

func link(t *testing.T, source string) *object {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(in, []byte(source), 0o600))
	msg, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", out, in).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	o := &object{labels: map[string]uint64{}, names: map[uint64]string{}}
	o.img, err = codeflow.NewImage(bytes.NewReader(data))
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(data))
	require.NoError(t, err)
	symbols, err := f.Symbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			continue
		}
		o.labels[s.Name] = s.Value
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			o.fns = append(o.fns, codeflow.Function{Lo: s.Value, Hi: s.Value + s.Size})
			o.names[s.Value] = s.Name
		}
	}
	slices.SortFunc(o.fns, func(a, b codeflow.Function) int { return int(a.Lo) - int(b.Lo) })
	return o
}

func (o *object) function(name string) *codeflow.Function {
	for i := range o.fns {
		if o.names[o.fns[i].Lo] == name {
			return &o.fns[i]
		}
	}
	panic("no function " + name)
}

// describe returns a state in short: the CFA, what is saved where, and what it rests on.
func describe(s *codeflow.State, basis codeflow.Basis) string {
	text := "?"
	if reg, off, ok := s.CFA(); ok {
		text = fmt.Sprintf("%v%+d", x86.Reg(reg), off)
	} else if reg, disp, off, ok := s.CFASlot(); ok {
		text = fmt.Sprintf("[%v%+d]%+d", x86.Reg(reg), disp, off)
	}
	for h := range uint8(16) {
		if codeflow.CalleeSaved>>h&1 == 0 {
			continue
		}
		switch w := s.Saved(h); w.Kind {
		case codeflow.AtCFA:
			text += fmt.Sprintf(" %v@%d", x86.Reg(h), w.Off)
		case codeflow.InReg:
			text += fmt.Sprintf(" %v=%v", x86.Reg(h), x86.Reg(w.Reg))
		case codeflow.AtReg:
			text += fmt.Sprintf(" %v@%v%+d", x86.Reg(h), x86.Reg(w.Reg), w.Off)
		case codeflow.Lost:
			text += fmt.Sprintf(" %v lost", x86.Reg(h))
		}
	}
	return text + []string{"", " (assumed)", " (guessed)"}[basis]
}

// interpret gives the states by address.
func (o *object) interpret(opt codeflow.Options) (map[uint64]string, *codeflow.Program) {
	got := map[uint64]string{}
	var mu sync.Mutex
	p := codeflow.New(o.img, o.fns, opt)
	p.Run(func(_ int, r *codeflow.Result) {
		mu.Lock()
		defer mu.Unlock()
		for pc := r.Func().Lo; pc < r.Func().Hi; pc++ {
			delete(got, pc)
		}
		r.Each(func(pc uint64, _ *x86.Inst, s *codeflow.State, basis codeflow.Basis) { got[pc] = describe(s, basis) })
	})
	return got, p
}

// TestStates: what holds at labels, and labels that nothing leads to.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		name, source string
		prepare      func(o *object)
		want         map[string]string
		unreached    []string
	}{
		{name: "pushes", source: "F(f) push %rbx\na: push %rbp\nb: xor %ebx,%ebx\nc: pop %rbp\npop %rbx\nd: ret\nE(f)",
			want: map[string]string{"f": "rsp+8", "a": "rsp+16", "b": "rsp+24", "c": "rsp+24 rbx@-16", "d": "rsp+8"}},
		{name: "pushed again", source: "F(f) push %rbp\npush %r14\npush %rbx\nxor %ebx,%ebx\npop %rbx\npop %r14\npop %rbp\npush %rbx\nxor %ebx,%ebx\na: pop %rbx\nret\nE(f)",
			want: map[string]string{"a": "rsp+16 rbx@-16"}},
		{name: "red zone", source: "F(f) mov %rbx,-16(%rsp)\nxor %ebx,%ebx\na: sub $24,%rsp\nb: add $24,%rsp\nc: mov -16(%rsp),%rbx\nd: ret\nE(f)",
			want: map[string]string{"a": "rsp+8 rbx@-24", "b": "rsp+32 rbx@-24", "c": "rsp+8 rbx@-24", "d": "rsp+8"}},
		{name: "restored on one path",
			source: "F(f) push %rbx\npush %rax\nxor %ebx,%ebx\ntest %edi,%edi\nje 1f\nmov 8(%rsp),%rbx\n1: nop\na: pop %rax\npop %rbx\nret\nE(f)",
			want:   map[string]string{"a": "rsp+24 rbx@-16"}},
		{name: "vector over two words, one of which is the only copy",
			source: "F(f) push %rbx\nsub $32,%rsp\nmov %rbx,8(%rsp)\nmov %rbp,(%rsp)\nxor %ebp,%ebp\nmovups %xmm0,(%rsp)\na: ud2\nE(f)",
			want:   map[string]string{"a": "rsp+48 rbp@-48"}},
		{name: "vector over a second copy",
			source: "F(f) sub $40,%rsp\nmov %rbx,32(%rsp)\nmov %rbx,8(%rsp)\nxor %ebx,%ebx\nmovups %xmm0,32(%rsp)\na: ud2\nE(f)",
			want:   map[string]string{"a": "rsp+48 rbx@-40"}},
		{name: "frame pointer", source: "F(f) push %rbp\nmov %rsp,%rbp\na: sub %rdi,%rsp\nb: leave\nc: ret\nE(f)",
			want: map[string]string{"a": "rsp+16 rbp@-16", "b": "rbp+16 rbp@-16", "c": "rsp+8"}},
		{name: "realigned", source: "F(f) lea 8(%rsp),%r10\nand $-32,%rsp\na: push -8(%r10)\npush %rbp\nmov %rsp,%rbp\npush %r10\nb: call *%rax\nc: mov -8(%rbp),%r10\nleave\nd: lea -8(%r10),%rsp\ne: ret\nE(f)",
			want: map[string]string{"a": "r10+0", "b": "r10+0 rbp@rsp+8", "c": "[rbp-8]+0 rbp@rsp+8", "d": "r10+0",
				"e": "rsp+8"}},
		{name: "register in a register", source: "F(f) mov %rbx,%rdx\nxor %ebx,%ebx\na: mov %rdx,%rbx\nb: ret\nE(f)",
			want: map[string]string{"a": "rsp+8 rbx=rdx", "b": "rsp+8"}},
		{name: "paths meet", source: "F(f) test %edi,%edi\nje 1f\nxor %ebx,%ebx\n1: nop\na: ret\nE(f)",
			want: map[string]string{"a": "rsp+8 rbx lost"}},
		{name: "xchg, cmov, partial write",
			source: "F(f) xchg %rbx,%rcx\na: cmove %rax,%rcx\nb: mov $1,%r12b\nc: ret\nE(f)",
			want:   map[string]string{"a": "rsp+8 rbx=rcx", "b": "rsp+8 rbx lost", "c": "rsp+8 rbx lost r12 lost"}},
		{name: "cold part and back",
			source: "F(f) push %rbx\ntest %edi,%edi\njne f.cold\na: pop %rbx\nret\nb: nop\njmp a\nE(f)\nF(f.cold) xor %ebx,%ebx\nc: jmp b\nE(f.cold)",
			want:   map[string]string{"a": "rsp+16 rbx@-16", "b": "rsp+16 rbx@-16", "c": "rsp+16 rbx@-16"}},
		{name: "three parts", source: "F(f) push %rbx\ntest %edi,%edi\njne f.warm\na: pop %rbx\nret\nE(f)\nF(f.warm) push %rax\nb: jne f.cold\npop %rax\njmp a\nE(f.warm)\nF(f.cold) nop\nc: pop %rax\njmp a\nE(f.cold)",
			want: map[string]string{"b": "rsp+24", "c": "rsp+24", "a": "rsp+16"}},
		// GCC's empty cold part: its label is the next function's
		{name: "cold label of two", source: "F(f) push %rbx\njne x.cold\npop %rbx\nret\nE(f)\nF(g) push %rbx\npush %rax\njne x.cold\npop %rax\npop %rbx\nret\nE(g)\nF(x.cold) nop\na: ud2\nE(x.cold)",
			unreached: []string{"a"}},
		{name: "tail call", source: "F(f) push %rbx\npop %rbx\njmp g\nE(f)\nF(g) nop\na: ret\nE(g)",
			want: map[string]string{"a": "rsp+8"}},
		{name: "does not return",
			source: "F(f) test %edi,%edi\njne 1f\nret\n1: push %rax\ncall g\na: ret\nE(f)\nF(g) sub $8,%rsp\ncall h\nE(g)\nF(h) ud2\nE(h)",
			want:   map[string]string{"a": "rsp+16 (guessed)"}},
		{name: "a single call that ends its function",
			source: "F(f) push %rbx\ntest %edi,%edi\njne 1f\na: pop %rbx\nret\n1: xor %ebx,%ebx\n" +
				strings.Repeat("call x@plt\n", 17) + "jmp a\nE(f)\nF(g) sub $8,%rsp\ncall x@plt\nE(g)",
			want: map[string]string{"a": "rsp+16 rbx@-16"}},
		{name: "error with a status",
			source: "F(f) push %rbx\nxor %ebx,%ebx\ncall g\nmov $1,%edi\nxor %esi,%esi\ncall error@plt\na: ret\nE(f)\nF(g) mov $0,%edi\ncall error@plt\nb: ret\nE(g)",
			want:   map[string]string{"a": "rsp+16 rbx@-16 (guessed)", "b": "rsp+8"}},
		{name: "jump table", source: "F(f) push %rbx\ncmp $1,%edi\nja 1f\nlea t(%rip),%rdx\nmovslq (%rdx,%rdi,4),%rax\nadd %rdx,%rax\njmp *%rax\n1: pop %rbx\nret\na: pop %rbx\nret\nb: push %rax\nud2\nE(f)\n.section .rodata\nt: .long a-t, b-t, 0",
			want: map[string]string{"a": "rsp+16", "b": "rsp+16"}},
		{name: "memory barrier at the stack's top",
			source: "F(f) push %rbx\nxor %ebx,%ebx\nlock orq $0,(%rsp)\na: lock addl $0,(%rsp)\nb: lock addl $1,(%rsp)\nc: pop %rbx\nret\nE(f)",
			want:   map[string]string{"a": "rsp+16 rbx@-16", "b": "rsp+16 rbx@-16", "c": "rsp+16 rbx lost"}},
		{name: "vector over a saved register and a local through a pointer",
			source: "F(f) push %rbx\npush %rax\nmov %rsp,(%rsp)\nlea -8(%rsp),%rsi\nmovups %xmm0,8(%rsi)\na: mov (%rsp),%rsp\nb: ud2\nE(f)",
			want:   map[string]string{"a": "rsp+24", "b": "rsi+32"}},
		// rustc's __rust_probestack, Windows' __chkstk: the size is in rax, which they keep
		{name: "probed stack", source: "F(f) push %rbx\nmov $0x2345,%eax\ncall probe\nsub %rax,%rsp\na: nop\nadd $0x2345,%rsp\npop %rbx\nb: ret\nE(f)\n" +
			"F(g) mov $0x2345,%eax\ncall h\nsub %rax,%rsp\nc: ud2\nE(g)\nF(h) inc %rax\nret\nE(h)\nF(i) mov $8,%eax\njmp 1f\nnop\n1: call probe\nsub %rax,%rsp\nd: ud2\nE(i)\n" +
			"F(probe) push %rbp\nmov %rsp,%rbp\nmov %rax,%r11\ncmp $0x1000,%r11\njna 3f\n2: sub $0x1000,%rsp\ntest %rsp,8(%rsp)\nsub $0x1000,%r11\ncmp $0x1000,%r11\nja 2b\n" +
			"3: sub %r11,%rsp\ntest %rsp,8(%rsp)\nadd %rax,%rsp\nleave\nret\nE(probe)",
			want: map[string]string{"a": "rsp+9045", "b": "rsp+8", "c": "?", "d": "?"}},
		// x264's assembly: rcx alone knows the frame, and the subroutine keeps it
		{name: "aligned stack in a register",
			source: "F(f) mov %rsp,%rcx\nand $-32,%rsp\nsub $64,%rsp\ncall keep\na: nop\nmov %rcx,%rsp\nret\nE(f)\n" +
				"F(g) mov %rsp,%rcx\nand $-32,%rsp\ncall change\nb: nop\nmov %rcx,%rsp\nret\nE(g)\n" +
				"F(h) mov %rsp,%rcx\nand $-32,%rsp\npush %rcx\ncall keep\nc: nop\npop %rsp\nret\nE(h)\n" +
				"F(keep) vpaddd %ymm0,%ymm1,%ymm1\nmov %rdi,%rdx\nret\nE(keep)\nF(change) xor %ecx,%ecx\nret\nE(change)",
			want: map[string]string{"a": "rcx+8", "b": "?", "c": "[rsp+0]+8"}},
		{name: "computed goto",
			source: "F(f) push %rbx\nmovzbl (%rsi),%eax\nlea t(%rip),%rsi\nmovslq (%rsi,%rax,4),%rax\nlea a(%rip),%rsi\nadd %rsi,%rax\njmp *%rax\nnop\na: pop %rbx\nret\nb: push %rax\nc: ud2\nE(f)\n.section .rodata\nt: .long 0, b-a, 0x7fffffff",
			want:   map[string]string{"a": "rsp+16", "b": "rsp+16", "c": "rsp+24"}},
		{name: "jump table at -O0",
			source: "F(f) push %rbx\ncmp $1,%edi\nja 1f\nmov %edi,%eax\nlea 0(,%rax,4),%rdx\nlea t(%rip),%rax\nmov (%rdx,%rax,1),%eax\ncltq\nlea t(%rip),%rdx\nadd %rdx,%rax\nnotrack jmp *%rax\n1: pop %rbx\nret\na: pop %rbx\nret\nE(f)\n.section .rodata\nt: .long a-t, a-t, 0",
			want:   map[string]string{"a": "rsp+16"}},
		{name: "table of addresses",
			source: "F(f) push %rbx\ncmp $1,%rdi\nja 1f\nlea t(%rip),%rdx\njmp *(%rdx,%rdi,8)\n1: pop %rbx\nret\na: pop %rbx\nret\nE(f)\n.data\nt: .quad a, a",
			want:   map[string]string{"a": "rsp+16"}},
		{name: "landing pad", source: "F(f) push %rbx\nxor %ebx,%ebx\npush $1\npush $2\nc1: call *%rax\nc2: add $16,%rsp\npop %rbx\nret\na: nop\nE(f)",
			prepare: func(o *object) {
				f := o.function("f")
				f.Sites = []codeflow.Site{{Lo: o.labels["c1"], Hi: o.labels["c2"], Pad: o.labels["a"]}}
			},
			want: map[string]string{"a": "rsp+16 rbx@-16"}},
		// GCC does not take the size back for a call that can't throw
		{name: "stale size of arguments",
			source: "F(f) push %rbx\nsub $16,%rsp\nxor %ebx,%ebx\ncall *%rax\nc1: sub $64,%rsp\nc2: call *%rax\nadd $64,%rsp\ncall *%rcx\nc3: add $16,%rsp\npop %rbx\nret\na: nop\nE(f)",
			prepare: func(o *object) {
				f := o.function("f")
				f.Sites = []codeflow.Site{{Lo: o.labels["c1"], Hi: o.labels["c3"], Pad: o.labels["a"]}}
				f.ArgSizes = []codeflow.ArgSize{{PC: o.labels["c2"], Bytes: 64}}
			},
			want: map[string]string{"a": "rsp+32 rbx@-16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := ""
			for _, line := range strings.Split(c.source, "\n") {
				if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "F("), ")"); ok &&
					strings.HasPrefix(line, "F(") {
					text += ".text\n.globl " + name + "\n.hidden " + name + "\n.type " + name + ",@function\n" +
						name + ":" + rest + "\n"
				} else if strings.HasPrefix(line, "E(") {
					name = strings.Trim(line, "E()")
					text += ".size " + name + ",.-" + name + "\n"
				} else {
					text += line + "\n"
				}
			}
			o := link(t, text)
			opt := codeflow.Options{Workers: 1}
			if c.prepare != nil {
				if c.prepare(o); o.function("f").ArgSizes != nil {
					opt.Begin = func() codeflow.Beginner { return nothing{} } // sizes of arguments are the table's
				}
			}
			got, _ := o.interpret(opt)
			for label, want := range c.want {
				assert.Equal(t, want, got[o.labels[label]], "at %s", label)
			}
			for _, label := range c.unreached {
				assert.NotContains(t, got, o.labels[label], "at %s", label)
			}
		})
	}
}

// nothing is a table without a row.
type nothing struct{}

func (nothing) Begin(uint64) (codeflow.State, bool) { return codeflow.Initial(), true }

// TestBroken: a function that loses rbx for its callers.
func TestBroken(t *testing.T) {
	o := link(t, ".text\n.type f,@function\nf: call g\na: ret\n.size f,.-f\n.type g,@function\ng: xor %ebx,%ebx\nret\n.size g,.-g\n")
	got, p := o.interpret(codeflow.Options{Workers: 1})
	assert.Equal(t, uint16(1)<<x86.RBX, p.Broken(o.labels["g"]))
	assert.Equal(t, "rsp+8 rbx lost", got[o.labels["a"]])
}

// described are libc's functions, by their symbols.
func described(t testing.TB) *object {
	path := "/lib/x86_64-linux-gnu/libc.so.6"
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	o := &object{}
	o.img, err = codeflow.NewImage(bytes.NewReader(data))
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(data))
	require.NoError(t, err)
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			o.fns = append(o.fns, codeflow.Function{Lo: s.Value, Hi: s.Value + s.Size})
		}
	}
	slices.SortFunc(o.fns, func(a, b codeflow.Function) int { return int(a.Lo) - int(b.Lo) })
	kept := o.fns[:0]
	for _, f := range o.fns {
		if n := len(kept); n == 0 || f.Lo >= kept[n-1].Hi {
			kept = append(kept, f)
		}
	}
	o.fns = kept
	return o
}

// TestWorkers: the number of workers, and looking again, make no difference.
func TestWorkers(t *testing.T) {
	o := described(t)
	one, p := o.interpret(codeflow.Options{Workers: 1})
	require.Greater(t, len(one), 50_000)
	eight, _ := o.interpret(codeflow.Options{Workers: 8})
	if len(one) != len(eight) {
		require.Len(t, eight, len(one))
	}
	for pc, s := range one {
		if eight[pc] != s {
			require.Equal(t, s, eight[pc], "at %#x", pc)
		}
	}
	for i := 0; i < len(o.fns); i += 16 {
		p.Again(i, nil, func(r *codeflow.Result) {
			r.Each(func(pc uint64, _ *x86.Inst, s *codeflow.State, basis codeflow.Basis) {
				if got := describe(s, basis); got != one[pc] {
					require.Equal(t, one[pc], got, "at %#x", pc)
				}
			})
		})
	}
}

// TestEachReads: looking at a function changes neither it nor others, however often.
func TestEachReads(t *testing.T) {
	o := described(t)
	for i := range o.fns {
		o.fns[i].Shared = true // what other functions bring counts
	}
	want, _ := o.interpret(codeflow.Options{Workers: 1})
	got := map[uint64]string{}
	codeflow.New(o.img, o.fns, codeflow.Options{Workers: 1}).Run(func(_ int, r *codeflow.Result) {
		for pc := r.Func().Lo; pc < r.Func().Hi; pc++ {
			delete(got, pc)
		}
		r.Each(nil)
		r.Each(func(_ uint64, _ *x86.Inst, s *codeflow.State, _ codeflow.Basis) {
			s.Regs = [16]codeflow.Value{} // of a copy
			s.Put(0, -8, codeflow.Value{})
		})
		r.Each(func(pc uint64, _ *x86.Inst, s *codeflow.State, basis codeflow.Basis) { got[pc] = describe(s, basis) })
	})
	require.Equal(t, len(want), len(got))
	for pc, s := range want {
		if got[pc] != s {
			require.Equal(t, s, got[pc], "at %#x", pc)
		}
	}
}

// imageOf returns an ELF file whose one segment is code.
func imageOf(code []byte) []byte {
	const start = 0x1000
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: start, Phoff: 64,
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	_ = binary.Write(&b, binary.LittleEndian, &h)
	_ = binary.Write(&b, binary.LittleEndian, &elf.Prog64{Type: uint32(elf.PT_LOAD),
		Flags: uint32(elf.PF_R | elf.PF_X), Off: 120, Vaddr: start, Paddr: start, Filesz: uint64(len(code)),
		Memsz: uint64(len(code)), Align: 1})
	b.Write(code)
	return b.Bytes()
}

// FuzzAnalysis interprets any bytes, cut into functions of any size with landing pads anywhere: it
// ends, and shows each instruction once, with its own bytes.
func FuzzAnalysis(f *testing.F) {
	f.Add([]byte{0x53, 0x85, 0xff, 0x75, 0x02, 0x5b, 0xc3, 0x31, 0xdb, 0xeb, 0xfa}, []byte{7}, false)
	f.Add([]byte{0xe8, 0, 0, 0, 0, 0x5b, 0xff, 0xe0, 0x48, 0x83, 0xe4, 0xf0, 0xeb, 0xfa}, []byte{3, 9}, true)
	f.Add([]byte{0x48, 0x8d, 0x15, 9, 0, 0, 0, 0x48, 0x63, 4, 0x82, 0x48, 1, 0xd0, 0xff, 0xe0, 4, 0, 0, 0},
		[]byte{16}, false)
	f.Fuzz(func(t *testing.T, code, cuts []byte, rows bool) {
		if len(code) == 0 || len(code) > 1<<12 {
			return
		}
		img, err := codeflow.NewImage(bytes.NewReader(imageOf(code)))
		require.NoError(t, err)
		const start = 0x1000
		var fns []codeflow.Function
		lo := uint64(0)
		for _, n := range append(cuts, 255) {
			hi := min(lo+uint64(n)+1, uint64(len(code)))
			if hi > lo {
				pad := start + uint64(n)*7%uint64(len(code))
				fns = append(fns, codeflow.Function{Lo: start + lo, Hi: start + hi, Shared: n&1 != 0, Entry: n&2 != 0,
					Signal: n == 77, Sites: []codeflow.Site{{Lo: start + lo, Hi: start + hi, Pad: pad}}})
			}
			lo = hi
		}
		opt := codeflow.Options{Workers: 2}
		if rows {
			opt.Begin = func() codeflow.Beginner { return nothing{} }
		}
		codeflow.New(img, fns, opt).Run(func(i int, r *codeflow.Result) {
			r.Each(func(pc uint64, in *x86.Inst, s *codeflow.State, _ codeflow.Basis) {
				if pc < fns[i].Lo || pc >= fns[i].Hi || r.Inst(pc) != in {
					t.Errorf("%#x shown for [%#x, %#x)", pc, fns[i].Lo, fns[i].Hi)
				}
				_ = describe(s, 0)
			})
		})
	})
}
