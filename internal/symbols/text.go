package symbols

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

const maxText = 512 << 20 // bytes of a text file of symbols

// PerfMap reads the symbols that a run-time compiler has written for perf:
// tools/perf/Documentation/jit-interface.txt. The file must belong to root or
// to the user, as for perf: anyone may write to the folder it lies in.
func PerfMap(path string) (*Table, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || !isOwn(st) {
		return nil, fmt.Errorf("%s: not a file of this user", path)
	}
	b, err := readBounded(path, maxText)
	if err != nil {
		return nil, err
	}
	var list []Symbol
	for line := range bytes.Lines(b) {
		start, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		size, name, ok := bytes.Cut(rest, []byte(" "))
		s, err1 := strconv.ParseUint(string(bytes.TrimPrefix(start, []byte("0x"))), 16, 64)
		n, err2 := strconv.ParseUint(string(bytes.TrimPrefix(size, []byte("0x"))), 16, 64)
		if !ok || err1 != nil || err2 != nil || s+n < s {
			continue
		}
		list = append(list, Symbol{Start: s, End: s + n, Name: string(name)})
	}
	return newTable(list), nil
}
