// Package sites makes the table of an eh_elf for exceptions: for the return
// addresses of calls, whether an unwinder passes over the frame, runs a cleanup
// in it, or calls its personality routine. docs/abi.md, section 6, is
// normative.
package sites
