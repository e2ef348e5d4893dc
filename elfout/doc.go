// Package elfout writes an eh_elf: it wraps the code and data that asmgen made
// into an ELF64 shared object that every loader, debugger and profiler accepts.
//
// The file holds two loadable segments and nothing that a loader must write to:
// no relocation, no initialiser, no dependency. In file order:
//
//	R    ELF and program headers
//	R    .note.gnu.build-id .note.ehasm      identity
//	R    .gnu.hash .hash .dynsym .dynstr     the exported functions
//	R    .eh_frame_hdr .eh_frame             unwind information of .text itself
//	R    .dynamic
//	R    .rodata                             asmgen.Code.Data
//	R+X  .text                               asmgen.Code.Text
//	     .symtab .strtab .shstrtab, section headers
//
// New fixes the layout, applies the fixups and computes the build-id; nothing
// grows afterwards. Equal input gives equal bytes.
//
// Sources: System V gABI chapters 4 and 5 (ELF, dynamic linking), x86-64 psABI,
// LSB 5.0 Core (.eh_frame, .eh_frame_hdr, GNU_STACK), DWARF 5 §6.4.
//
// The dynamic section is in the read-only segment and PT_DYNAMIC lacks PF_W.
// musl, and glibc from 2.35 on, then leave it unwritten; glibc before 2.35
// relocates the section in place, whatever its flags, and cannot load the
// file. For it there is Source.Relro: .dynamic then lies after .text, in a
// separate writable segment that PT_GNU_RELRO makes read-only once the loader
// has relocated it.
package elfout
