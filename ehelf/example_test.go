//go:build linux && amd64

package ehelf_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
)

// A walk over a stack of which a copy is at hand, as in a perf recording.
func Example() {
	const path = "/bin/sh" // the program or library whose frames are walked
	dir, eh, functions := exampleFile(path)
	defer os.RemoveAll(dir)

	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	o, err := ehelf.OpenFor(eh, file)
	if err != nil {
		log.Fatal(err)
	}
	defer o.Close()

	const bias = 0x7f0000000000 // where the object is loaded
	const sp = 0x7ffd00001000
	// Three functions were called, each as the first instruction of the one before; the last caller is in another object.
	var stack []byte
	for _, word := range []uint64{bias + functions[1] + 1, bias + functions[2] + 1, 0x401000} {
		stack = binary.LittleEndian.AppendUint64(stack, word)
	}
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1} // Exact: the pc is where the thread was stopped
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = bias+functions[0], sp

	pcs := make([]uint64, 64)
	n := o.Walk(&regs, &ehelf.Memory{Lo: sp, Bytes: stack}, bias, pcs)
	fmt.Println(n, pcs[0] == bias+functions[1]+1, pcs[1] == bias+functions[2]+1, pcs[2] == 0x401000)
	fmt.Println(regs.Status)
	// Output:
	// 3 true true true
	// no unwind information
}

func ExampleOpenFor() {
	dir, eh, _ := exampleFile("/bin/sh")
	defer os.RemoveAll(dir)
	other, err := os.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	_, err = ehelf.OpenFor(eh, other)
	fmt.Println(errors.Is(err, ehelf.ErrMismatch))
	// Output: true
}

// exampleFile writes an object's eh_elf, as ehasm build does, and returns addresses of functions.
func exampleFile(path string) (dir, eh string, functions []uint64) {
	object, err := dwarfcfa.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	table, err := compile.NewTable(context.Background(), object, compile.Options{}, compile.Target{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range table.Ranges {
		if table.RowText(r.Row) == "rsp+8 ra=c-8" { // as at a function's first instruction
			functions = append(functions, uint64(r.Start))
		}
	}
	made, err := table.Compile(context.Background(), compile.Identify(object, compile.Options{}, compile.Target{}))
	if err != nil {
		log.Fatal(err)
	}
	if dir, err = os.MkdirTemp("", "ehelf"); err != nil {
		log.Fatal(err)
	}
	eh = filepath.Join(dir, filepath.Base(path)+abi.Suffix)
	if err := os.WriteFile(eh, made.Image.Bytes(), 0o600); err != nil {
		log.Fatal(err)
	}
	return dir, eh, functions
}
