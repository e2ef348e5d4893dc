// Command truth runs a program one instruction at a time and compares unwind
// tables with what it did.
//
// The calls themselves give the frames: a call instruction determines the CFA of
// its callee, the return address, and the contents of the callee-saved registers.
// At each instruction of the callee a row is right if it gives exactly these. No
// table and no decoder is used: calls and returns are recognised by their opcodes
// and by what they did to rsp.
//
//	go run ./validate/truth --steps 1000000 -- /usr/bin/openssl speed -bytes 64 -seconds 1 sha1
//
// Frames entered before stepping began are not known and are not compared.
//
// A program shows only what it runs. With --force, each function of a file, of any kind of x86-64 code, is started with
// any registers and memory, in a process that holds nothing but the file's segments:
//
//	go run ./validate/truth --force /usr/lib/x86_64-linux-gnu/libcrypto.so.3
//
// The registers that a callee saves hold values that occur nowhere else. What faults is left out, functions of other
// files return at once, exceptions go to landing pads. A wrong row counts if the function returns as it should, with
// all these values back.
package main
