# Sums the reports of the sampler, a file per program.
function short(f) { sub(/.*\//, "", f); sub(/\.txt$/, "", f); return f }
FNR == 1 { p = short(FILENAME); order[++n] = p }
$1 == "frames" { frames[p] += $2 }
$1 == "samples" { count[p, $2] += $3; total[p] += $3; all[$2] += $3; sum += $3; if (!($2 in known)) { known[$2] = 1; classes[++k] = $2 } }
$1 == "differ" { place = p " " $2 " " $4; places[place] += $3; if (!(place in example)) example[place] = $0 }
END {
	printf "%-10s %9s %10s", "program", "samples", "frames"
	for (i = 1; i <= k; i++) printf " %s", classes[i]
	print ""
	for (j = 1; j <= n; j++) {
		p = order[j]
		printf "%-10s %9d %10d", p, total[p], frames[p]
		for (i = 1; i <= k; i++) printf " %*d", length(classes[i]), count[p, classes[i]]
		print ""
	}
	printf "%-10s %9d %10s", "all", sum, ""
	for (i = 1; i <= k; i++) printf " %*d", length(classes[i]), all[classes[i]]
	print ""
	if (sum > 0) printf "identical over the full depth: %.4f %%\n", 100 * (all["identical"] + all["identical-guessed"]) / sum
	print "where they differ, the most frequent places:"
	for (i = 0; i < 30; i++) {
		best = ""
		for (place in places) if (best == "" || places[place] > places[best]) best = place
		if (best == "") break
		printf "%7d %s\n        %s\n", places[best], best, example[best]
		delete places[best]
	}
}
