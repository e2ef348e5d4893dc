#!/bin/bash
# Runs ehasm check over files, and sums up: internal/analysis/check/sweep.sh OUTPUT [FOLDER...] (default: /usr). OUTPUT gets what check
# printed. EHASM names the command, EHASM_FILES a list of files in place of the folders.
set -u -o pipefail
out=${1:?no output file}
shift
[ $# -gt 0 ] || set -- /usr
ehasm=${EHASM:-ehasm}
list=${EHASM_FILES:-$out.files}
if [ -z "${EHASM_FILES:-}" ]; then
	# ELF, 64 bits, little-endian, executable or shared object, x86-64; one name of each inode
	find "$@" -xdev -type f -size +64c -print0 | perl -0ne '
		chomp; open my $f, "<:raw", $_ or next; read($f, my $h, 20) == 20 or next;
		my ($id, $type, $machine) = unpack "a6 x10 v v", $h;
		next unless $id eq "\x7fELF\2\1" && ($type == 2 || $type == 3) && $machine == 62;
		my ($dev, $ino) = stat $f; print "$_\n" unless $seen{"$dev:$ino"}++' >"$list"
fi
start=$(date +%s)
xargs -d '\n' -n 50 "$ehasm" check --notes <"$list" >"$out" 2>"$out.failed"
awk -v seconds=$(($(date +%s) - start)) '
/ instructions?, .* % checked: / {
	files++
	match($0, /[0-9,]+ instruction/); n = substr($0, RSTART, RLENGTH); gsub(/[^0-9]/, "", n)
	match($0, /[0-9.]+ % checked/); p = substr($0, RSTART) + 0
	all += n
	if (n >= 1000 && p < 99.9) low++
	next
}
/^  not judged: / { k = $3 + 0; sub(/^  not judged: [0-9]+, /, ""); why[$0] += k; lost += k; next }
/: (error|warning|note): / {
	s = /: error: / ? "error" : /: warning: / ? "warning" : "note"
	k = /CFA is / ? "CFA" : /return address is/ ? "return address" : /: ret where|ret where rsp/ ? "ret" : /a row begins/ ? "border" : /no row covers/ ? "no row" : "register"
	c = /a Go function/ ? "Go" : /private calling/ ? "private convention" : /change of context/ ? "change of context" : /off by one/ ? "off by one instruction" : "table"
	found[s ", " k ", " c]++
	match($0, /^[^:]*/); name = s substr($0, RSTART, RLENGTH)
	if (!(name in seen)) { seen[name] = 1; objects[s]++ }
}
END {
	printf "%d files, %d instructions, %.4f %% judged, %d s\n", files, all, 100 - 100 * lost / all, seconds
	printf "of files with 1,000 instructions and more: %d less than 99.9 %% judged\n", low
	for (k in why) print "not judged:", why[k], k
	for (k in found) print "found:", found[k], k
	for (k in objects) print "names of files with:", objects[k], k
}' "$out" | sort
echo "failed: $(wc -l <"$out.failed")"
