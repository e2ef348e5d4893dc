package abi_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
)

// A walker reads the identity note to learn which object an eh_elf belongs to.
func ExampleParseNote() {
	note := abi.Note{Version: abi.Version, Flags: abi.FlagPacked, Low: 0x1000, High: 0x5000, Rows: 12,
		BuildID: []byte{0xc0, 0xde}}
	read, err := abi.ParseNote(note.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("pcs %#x to %#x of object %x, packed: %v\n", read.Low, read.High, read.BuildID,
		read.Flags&abi.FlagPacked != 0)
	// Output: pcs 0x1000 to 0x5000 of object c0de, packed: true
}

// The code that a signal handler returns to has no unwind tables in some C libraries; it is known by its bytes.
func ExampleIsSigreturn() {
	fmt.Println(abi.IsSigreturn([]byte("\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"))) // mov $15, %rax; syscall
	fmt.Println(abi.IsSigreturn([]byte("\xc3")))                                 // ret
	// Output:
	// true
	// false
}
