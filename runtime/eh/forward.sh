#!/bin/sh
# forward.sh LIBGCC FOLDER: from the functions that the real libgcc_s exports, forward.S and forward.h with a stub for
# each that is not one of ours, and libgcc.map with all their versions.
set -eu
ours="_Unwind_DeleteException _Unwind_ForcedUnwind _Unwind_GetCFA _Unwind_GetDataRelBase _Unwind_GetGR _Unwind_GetIP _Unwind_GetIPInfo
_Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase _Unwind_RaiseException _Unwind_Resume _Unwind_Resume_or_Rethrow
_Unwind_SetGR _Unwind_SetIP __register_frame __register_frame_info __register_frame_info_bases __register_frame_info_table __register_frame_info_table_bases
__register_frame_table"
id=$(LC_ALL=C readelf -n "$1" | sed -n 's/.*Build ID: *//p' | sed 's/../0x&,/g')
LC_ALL=C readelf --dyn-syms -W "$1" | awk -v ours="$ours" -v out="$2" -v id="${id:-0}" '
BEGIN { count = 0; versions = 0; n = split(ours, list); for (i = 1; i <= n; i++) own[list[i]] = 1 }
$4 == "FUNC" && $7 != "UND" && split($8, part, "@") > 1 {
	name = part[1]; version = part[length(part)]; default_ = part[2] == ""
	if (!(version in seen)) { seen[version] = 1; order[++versions] = version }
	if (default_) listed[version] = listed[version] " " name ";"
	if (name in own) { found[name] = 1; next }
	names[count] = name; address[count] = $2; of[count] = version; at[count] = default_ ? "@@" : "@"; count++
}
END {
	for (name in own) if (!(name in found)) { print "forward.sh: no " name > "/dev/stderr"; exit 1 }
	stub = out "/forward.S"; header = out "/forward.h"; map = out "/libgcc.map"
	print "\t.text\n\t.hidden ehx_forward_\n\t.hidden ehx_resolve_\n\t.cfi_startproc" > stub
	for (i = 0; i < count; i++) {
		label = "ehx_stub_" i
		print "\t.globl " label "\n\t.hidden " label "\n\t.type " label ", @function\n" label ":\n\tendbr64\n\tmov ehx_forward_+" 8 * i "(%rip), %r11\n\ttest %r11, %r11\n\tjz 1f\n\tjmp *%r11\n1:\tmov $" i ", %r11d\n\tjmp ehx_unresolved\n\t.size " label ", .-" label > stub
		if (at[i] == "@@") print "\t.globl " names[i] "\n\t.type " names[i] ", @function\n\t.set " names[i] ", " label > stub
		else print "\t.globl ehx_sym_" i "\n\t.type ehx_sym_" i ", @function\n\t.set ehx_sym_" i ", " label "\n\t.symver ehx_sym_" i ", " names[i] "@" of[i] ", remove" > stub
	}
	print "ehx_unresolved:" > stub
	split("rdi rsi rdx rcx r8 r9 rax", regs, " ")
	for (i = 1; i <= 7; i++) print "\tpush %" regs[i] "\n\t.cfi_adjust_cfa_offset 8" > stub
	print "\tsub $128, %rsp\n\t.cfi_adjust_cfa_offset 128" > stub
	for (i = 0; i < 8; i++) print "\tmovups %xmm" i ", " 16 * i "(%rsp)" > stub
	print "\tmov %r11d, %edi\n\tcall ehx_resolve_\n\tmov %rax, %r11" > stub
	for (i = 0; i < 8; i++) print "\tmovups " 16 * i "(%rsp), %xmm" i > stub
	print "\tadd $128, %rsp\n\t.cfi_adjust_cfa_offset -128" > stub
	for (i = 7; i >= 1; i--) print "\tpop %" regs[i] "\n\t.cfi_adjust_cfa_offset -8" > stub
	print "\tjmp *%r11\n\t.cfi_endproc\n\t.section .note.GNU-stack, \"\", @progbits" > stub
	print "enum { NUM_FORWARDS = " count " };\nstatic const unsigned char ehx_build_id_[] = {" id "};\nstatic const struct { char name[40], version[16]; unsigned long address; } ehx_names_[NUM_FORWARDS] = {" > header
	for (i = 0; i < count; i++) print "    {\"" names[i] "\", \"" of[i] "\", 0x" address[i] "}," > header
	print "};" > header
	for (v = 1; v <= versions; v++) print order[v] " {" (listed[order[v]] != "" ? " global:" listed[order[v]] : "") (v == 1 ? " local: ehu_*;" : "") " };" > map
}'
