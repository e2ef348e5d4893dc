// Command truth runs a program one instruction at a time and holds unwind tables
// against what it did.
//
// The frames are known from the calls themselves: a call instruction says where its
// callee's CFA is, what the return address is, and what the callee-saved registers
// held. At each further instruction of the callee a row is right if it gives just
// that. No table and no decoder takes part in the knowledge; calls and returns are
// told from other instructions by their opcodes, and by what they did to rsp.
//
//	go run ./truth --steps 1000000 -- /usr/bin/openssl speed -bytes 64 -seconds 1 sha1
//
// A call within the program's own knowledge only: frames entered before stepping
// began have no truth and are not compared.
package main
