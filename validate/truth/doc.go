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
package main
