package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/validate/verify"
)

// variant is a way to compile a table.
type variant struct {
	name string
	plan plan.Options
	asm  asmgen.Options
	src  elfout.Source
}

// The variants between them use all code of the emitter.
var variants = [...]variant{
	{name: "tree", src: elfout.Source{Name: "test"}},
	{name: "packed", plan: plan.Options{Dispatch: plan.DispatchPacked}, src: elfout.Source{Name: "test"}},
	{name: "short pages", plan: plan.Options{Dispatch: plan.DispatchPacked, PageBits: plan.PageBits - 1},
		src: elfout.Source{Name: "test"}},
	{name: "no-deref", asm: asmgen.Options{NoDeref: true}, src: elfout.Source{Name: "test"}},
	{name: "relro", src: elfout.Source{Name: "test", Relro: true}},
	{name: "bare", src: elfout.Source{Name: "test", Bare: true}},
}

// emitter emits and proves, up to the first file that is refused.
type emitter struct {
	answer
	hash    hash.Hash // of all images, in order
	running bool      // run the code as well
}

// emitAll prints an answer as JSON: for random tables with every kind of rule and
// operation, tables at the bounds of the emitter's choices, and objects.
func emitAll(files []string, running bool, stdout, stderr io.Writer) int {
	e := emitter{hash: sha256.New(), running: running}
	e.all(files)
	e.Hash = hex.EncodeToString(e.hash.Sum(nil))
	if err := json.NewEncoder(stdout).Encode(&e.answer); err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	return 0
}

// all emits the random tables, always the same ones, then those of the files.
func (e *emitter) all(files []string) {
	e.table("bounds", bounds())
	e.table("groups", groups(20))
	e.table("few groups", groups(3))
	e.table("pages", rowtest.Pages(300, 200, 300))
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		data := make([]byte, 200+rng.IntN(6000))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		e.table(fmt.Sprintf("random table %d", i), rowtest.Table(data, 250))
	}
	for _, path := range files {
		if len(e.Refused) > 0 {
			return
		}
		o, err := dwarfcfa.Open(path)
		if err != nil {
			e.refuse(path, err)
			return
		}
		t, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
		o.Close()
		if err != nil {
			e.refuse(path, err)
			return
		}
		e.table(path, t)
	}
}

// refuse notes that a file is not proven.
func (e *emitter) refuse(name string, err error) {
	e.Refused = append(e.Refused, fmt.Sprintf("%s: %v", name, err))
}

// table compiles and proves a table in all ways.
func (e *emitter) table(name string, t *dwarfcfa.Table) {
	for _, v := range variants {
		if len(e.Refused) > 0 {
			return
		}
		if err := e.one(t, v); err != nil {
			e.refuse(name+", "+v.name, err)
		}
	}
}

// one compiles and proves one table; a panic of the emitter counts as a refusal.
func (e *emitter) one(t *dwarfcfa.Table, v variant) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	p, err := plan.Build(t, v.plan)
	if err != nil {
		return err
	}
	code, err := asmgen.Assemble(p, v.asm)
	if err != nil {
		return err
	}
	image, err := elfout.New(code, v.src)
	if err != nil {
		return err
	}
	e.hash.Write(image.Bytes())
	if _, err := prove.Image(image.Bytes(), t); err != nil {
		return err
	}
	e.Images++
	if e.running {
		_, err = verify.Image(image.Bytes(), t)
	}
	return err
}

// groups returns a table of n groups of ranges far apart; tables lead to the segments of many.
func groups(n int) *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	pc := dwarfcfa.Addr(0x1f4) // inside a page, so that borders fall anywhere
	for i := range n {
		for j := range 9 {
			if i == 0 {
				t.Rows = append(t.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
			}
			end := pc + 213
			if i%5 == 2 && j == 8 { // a range over many pages, which needs a separate segment
				end += 0x30000
			}
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: pc, End: end, Row: uint32(j)})
			pc = end
		}
		pc += 0x80000 + 0x1230*dwarfcfa.Addr(i)
	}
	return t
}

// bounds returns a table of rows at the bounds of what the emitter tells apart: of bytes,
// of the fast path's offsets, of slots.
func bounds() *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	pc := dwarfcfa.Addr(0x1f4)
	add := func(r dwarfcfa.Row, size dwarfcfa.Addr) { // each row once
		for i := range t.Rows {
			if t.Rows[i] == r {
				return
			}
		}
		t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: pc, End: pc + size, Row: uint32(len(t.Rows))})
		t.Rows = append(t.Rows, r)
		pc += size
	}
	// Offsets around -1024 and 1016: a byte times 8 holds -1024 to 1016.
	edges := []int64{-16, -24, -1016, -1024, -1032, 8, 1016, 1024, -13, 1 << 30, -1 << 30, -1<<30 - 8, 1<<31 - 8,
		-1 << 31, 1 << 40}
	for _, base := range []uint16{abi.RSP, abi.RBP} {
		for _, off := range append([]int64{0, 16, 20, 120, 128, -128}, edges...) {
			add(rowtest.Row(base, off), 3)
			add(rowtest.Row(base, off, abi.RBP, abi.RBX), 300)
		}
		for _, off := range edges {
			for _, reg := range []int{abi.RIP, abi.RBP, abi.RBX, abi.R12, abi.R15, abi.R11} {
				r := rowtest.Row(base, 48)
				r.Regs[reg] = rowtest.Saved(off)
				add(r, 2)
			}
			r := rowtest.Row(base, 48)
			r.Regs[abi.RSP].Offset = off
			add(r, 2)
		}
		for reg := range abi.NumRegs {
			for _, rule := range []dwarfcfa.RegRule{{Kind: dwarfcfa.RuleUndefined}, {Kind: dwarfcfa.RuleSameValue},
				{Kind: dwarfcfa.RuleRegister, Reg: abi.R9}} {
				r := rowtest.Row(base, 48)
				r.Regs[reg] = rule
				if reg != abi.RIP && reg != abi.RSP {
					add(r, 1)
				}
			}
		}
		r := rowtest.Row(base, 16)
		r.Flags = dwarfcfa.RowSignal
		add(r, 256)
	}
	// Registers that share a place in the code, side by side and not.
	slots := []int64{0, -16, -24, -32}
	for _, a := range slots {
		for _, b := range slots {
			for _, c := range slots {
				r := rowtest.Row(abi.RSP, 48)
				for i, reg := range []int{abi.R12, abi.R13, abi.R14} {
					if off := [3]int64{a, b, c}[i]; off != 0 {
						r.Regs[reg] = rowtest.Saved(off)
					}
				}
				add(r, 5)
			}
		}
	}
	return t
}
