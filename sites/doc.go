// Package sites makes what an eh_elf carries for exceptions: for the return
// addresses of calls whether the frame is passed over, cleans up, may catch, or
// must be asked. docs/abi.md, section 6, is normative.
package sites
