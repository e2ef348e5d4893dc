#!/bin/sh
# libgcc.sh LIBGCC STATIC UNWINDER FOLDER: from the functions that the shared LIBGCC exports and the libraries libgcc.a and
# libgcc_eh.a, libgcc.o, with libgcc_ before the name of each; stubs.S, which exports those that are not ours; and libgcc.map
# with the versions of all.
set -eu
ours="_Unwind_DeleteException _Unwind_ForcedUnwind _Unwind_GetCFA _Unwind_GetDataRelBase _Unwind_GetGR _Unwind_GetIP _Unwind_GetIPInfo
_Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase _Unwind_RaiseException _Unwind_Resume _Unwind_Resume_or_Rethrow
_Unwind_SetGR _Unwind_SetIP __cpu_indicator_init __register_frame __register_frame_info __register_frame_info_bases __register_frame_info_table
__register_frame_info_table_bases __register_frame_table"
cd "$4"
LC_ALL=C readelf --dyn-syms -W "$1" | awk -v ours="$ours" '
BEGIN { count = 0; versions = 0; n = split(ours, list); for (i = 1; i <= n; i++) own[list[i]] = 1 }
($4 == "FUNC" || $4 == "OBJECT") && $7 ~ /^[0-9]+$/ && split($8, part, "@") > 1 {
	name = part[1]; version = part[length(part)]; default_ = part[2] == ""
	if (!(version in seen)) { seen[version] = 1; order[++versions] = version }
	if (!(name in seen)) { seen[name] = 1; print name " libgcc_" name > "names" }
	if ($4 == "OBJECT") next
	if (default_) listed[version] = listed[version] " " name ";"
	if (name in own) { found[name] = 1; next }
	label = "ehx_stub_" count++
	print "\t.globl " label "\n\t.hidden " label ", libgcc_" name "\n\t.type " label ", @function\n" label ":\n\t.cfi_startproc\n\tendbr64\n\tjmp libgcc_" name "\n\t.cfi_endproc\n\t.size " label ", .-" label > "stubs.S"
	if (default_) print "\t.globl " name "\n\t.type " name ", @function\n\t.set " name ", " label > "stubs.S"
	else print "\t.globl ehx_sym_" count "\n\t.type ehx_sym_" count ", @function\n\t.set ehx_sym_" count ", " label "\n\t.symver ehx_sym_" count ", " name "@" version ", remove" > "stubs.S"
}
END {
	for (name in own) if (!(name in found)) { print "libgcc.sh: no " name > "/dev/stderr"; exit 1 }
	print "\t.section .note.GNU-stack, \"\", @progbits" > "stubs.S"
	for (v = 1; v <= versions; v++) print order[v] " {" (listed[order[v]] != "" ? " global:" listed[order[v]] : "") (v == 1 ? " local: ehu_*;" : "") " };" > "libgcc.map"
	print "EHASM_1 { global: ehasm_throws; };" > "libgcc.map"
}'
rm -rf members
mkdir members
(cd members && ar x "$3")
# A program may have its own _Unwind_Find_FDE, and the contexts of C's personality routine are of both kinds.
objcopy --redefine-sym _Unwind_Find_FDE=ehx_find_fde_ members/unwind-dw2.o
objcopy --redefine-sym _Unwind_GetDataRelBase=ehx_get_data_ --redefine-sym _Unwind_GetIPInfo=ehx_get_ip_info_ \
	--redefine-sym _Unwind_GetLanguageSpecificData=ehx_get_lsda_ --redefine-sym _Unwind_GetRegionStart=ehx_get_start_ \
	--redefine-sym _Unwind_GetTextRelBase=ehx_get_text_ --redefine-sym _Unwind_SetGR=ehx_set_gr_ \
	--redefine-sym _Unwind_SetIP=ehx_set_ip_ members/unwind-c.o
ld -r -o all.o $(sed 's/ .*//; s/^/-u /' names) members/*.o "$2"
objcopy --redefine-syms=names all.o libgcc.o
