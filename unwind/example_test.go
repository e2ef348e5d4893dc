//go:build linux && amd64

package unwind_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/unwind"
)

// A stack through a program and a library of a process whose mappings, registers and
// stack were recorded.
func Example() {
	dir, err := os.MkdirTemp("", "unwind")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	prog, lib := filepath.Join(dir, "prog"), filepath.Join(dir, "lib.so")
	exampleFiles(prog, lib)

	// Compile makes an eh_elf when an object is first needed.
	objects := unwind.NewObjects(unwind.Options{Compile: unwindtest.Compile})
	defer objects.Close()
	processes := unwind.NewProcesses()
	const pid, base = 10, 0x7f0000000000
	processes.Map(pid, 0x401000, 0x1000, 0x1000, objects.Object(prog, nil))
	processes.Map(pid, base+0x3000, 0x1000, 0x2000, objects.Object(lib, nil))

	const sp = 0x7ffd00001000
	var stack []byte // each function saves rbp above its return address
	for _, word := range []uint64{1, 0x401050, 2, 0x401010} {
		stack = binary.LittleEndian.AppendUint64(stack, word)
	}
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = base+0x3010, sp

	var walker unwind.Walker // one for each goroutine
	pcs := make([]uint64, 64)
	n, cause, _ := walker.Walk(processes.Process(pid).Maps(), &regs, &ehelf.Memory{Lo: sp, Bytes: stack}, pcs)
	for _, pc := range pcs[:n] {
		m := processes.Process(pid).Maps().Find(pc)
		fmt.Printf("%#x %s\n", pc, filepath.Base(m.Object.Name))
	}
	fmt.Println(cause)
	// Output:
	// 0x7f0000003010 lib.so
	// 0x401050 prog
	// 0x401010 prog
	// outermost frame
}

// exampleFiles writes a program and a library with unwind tables.
func exampleFiles(prog, lib string) {
	for path, e := range map[string]*unwindtest.ELF{
		prog: {Off: 0x1000, VAddr: 0x401000, Size: 0x1000, Funcs: []unwindtest.Func{
			{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
			{Name: "main", Addr: 0x401040, Size: 0x40},
		}},
		lib: {Off: 0x2000, VAddr: 0x3000, Size: 0x1000,
			Funcs: []unwindtest.Func{{Name: "work", Addr: 0x3000, Size: 0x100}}},
	} {
		if err := os.WriteFile(path, e.Bytes(), 0o600); err != nil {
			log.Fatal(err)
		}
	}
}
