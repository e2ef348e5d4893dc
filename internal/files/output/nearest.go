package output

import "strings"

// Nearest returns the only one of names that begins with name, or else the nearest that is at most two added, removed
// or changed letters from it; "" if there is none, or several are as near.
func Nearest(names []string, name string) string {
	var prefixed []string
	const most = 2            // letters: two that are exchanged are two changes
	near, least := "", most+1 // near "": none, or several that are as near
	for _, known := range names {
		if strings.HasPrefix(known, name) {
			prefixed = append(prefixed, known)
		}
		switch d := distance(name, known); {
		case d < least:
			near, least = known, d
		case d == least:
			near = ""
		}
	}
	switch {
	case len(prefixed) == 1:
		return prefixed[0]
	case len(name) <= most: // within two changes of too many words
		return ""
	}
	return near
}

// distance returns the Levenshtein distance of two strings.
func distance(a, b string) int {
	// row holds the distances of a[:i] from all prefixes of b; diagonal is the entry of the row
	// before, one to the left.
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
