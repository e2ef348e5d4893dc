//go:build linux && amd64

package ehelf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
)

// A walk over a stack of which a copy is at hand, as in a perf recording.
func Example() {
	dir, object, eh := exampleFiles()
	defer os.RemoveAll(dir)

	file, err := os.Open(object) // the program or library whose frames are walked
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
	// Each function of this object saves rbp above its return address.
	var stack []byte
	for _, word := range []uint64{bias + 0x1200, 1, bias + 0x1300, 2, 0x401000, 3} {
		stack = binary.LittleEndian.AppendUint64(stack, word)
	}
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1} // Exact: the pc is where the thread was stopped
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = bias+0x1100, sp

	pcs := make([]uint64, 64)
	n := o.Walk(&regs, &ehelf.Memory{Lo: sp, Bytes: stack}, bias, pcs)
	fmt.Printf("%#x\n", pcs[:n])
	fmt.Println(regs.Status) // 0x401000 is in another object
	// Output:
	// [0x7f0000001200 0x7f0000001300 0x401000]
	// no unwind information
}

func ExampleOpenFor() {
	dir, _, eh := exampleFiles()
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

// exampleFiles writes an object and its eh_elf, which ehasm build would make.
func exampleFiles() (dir, object, eh string) {
	dir, err := os.MkdirTemp("", "ehelf")
	if err != nil {
		log.Fatal(err)
	}
	object, eh = filepath.Join(dir, "libtiny.so"), filepath.Join(dir, "libtiny.so"+abi.Suffix)
	lib, err := elfout.New(elfouttest.Tiny(), elfout.Source{Name: "libtiny.so", BuildID: []byte{1}, FileSize: 1})
	if err != nil {
		log.Fatal(err)
	}
	part, err := abi.ReadPart(bytes.NewReader(lib.Bytes()), 0, 64) // ehasm build takes the unwind tables
	if err != nil {
		log.Fatal(err)
	}
	source := elfout.Source{Name: "libtiny.so", BuildID: lib.BuildID(), FileSize: 1, Content: abi.Content{part}}
	image, err := elfout.New(elfouttest.Tiny(), source)
	if err != nil {
		log.Fatal(err)
	}
	for path, b := range map[string][]byte{object: lib.Bytes(), eh: image.Bytes()} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			log.Fatal(err)
		}
	}
	return dir, object, eh
}
