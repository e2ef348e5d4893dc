package output

import "strings"

// Nearest returns the only one of names that begins with name, or is at most two added, removed or changed letters from
// it; "" if there is none, or more than one. A prefix wins over a small distance.
func Nearest(names []string, name string) string {
	var prefixed, close []string
	for _, known := range names {
		if strings.HasPrefix(known, name) {
			prefixed = append(prefixed, known)
		}
		// A name of one or two letters is within two changes of too many words.
		if len(name) > 2 && distance(name, known) <= 2 {
			close = append(close, known)
		}
	}
	for _, found := range [][]string{prefixed, close} {
		if len(found) == 1 {
			return found[0]
		}
	}
	return ""
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
