//go:build linux && amd64

package unwind_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/unwind"
)

// A stack of a process whose mappings, registers and stack were recorded.
func Example() {
	// eh_elfs are made when objects are first needed.
	objects := unwind.NewObjects(unwind.Options{Compile: exampleCompile})
	defer objects.Close()
	const program = "/bin/sh"
	file, err := elf.Open(program)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()

	processes := unwind.NewProcesses()
	const pid, base = 10, 0x550000000000
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			processes.Space(pid).Map(base+p.Vaddr&^0xfff, p.Memsz, p.Off&^0xfff, objects.Object(program, nil))
		}
	}
	maps := processes.Space(pid).Maps()

	// The program's first function, called by code that its start-up code called.
	const sp = 0x7ffd00001000
	stack := binary.LittleEndian.AppendUint64(nil, base+file.Entry+1)
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = base+exampleFunction(program), sp

	var walker unwind.Walker // one for each goroutine
	pcs := make([]uint64, 64)
	n, cause, _ := walker.Walk(maps, &regs, &ehelf.Memory{Lo: sp, Bytes: stack}, pcs)
	for _, pc := range pcs[:n] {
		fmt.Println(filepath.Base(maps.Find(pc).Object.Name), pc == base+file.Entry+1)
	}
	fmt.Println(cause)
	// Output:
	// sh false
	// sh true
	// outermost frame
}

// exampleCompile makes the eh_elf of an object.
func exampleCompile(name string, file io.ReaderAt, size int64) ([]byte, error) {
	object, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, err
	}
	made, err := compile.Object(context.Background(), object, compile.Options{}, compile.Target{Transient: true})
	if err != nil {
		return nil, err
	}
	return bytes.Clone(made.Image.Bytes()), nil
}

// exampleFunction returns the address of an instruction that is the first one of a function.
func exampleFunction(path string) uint64 {
	object, err := dwarfcfa.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range table.Ranges {
		if table.RowText(r.Row) == "rsp+8 ra=c-8" {
			return uint64(r.Start)
		}
	}
	log.Fatal("no function")
	return 0
}
