package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/ehasm/ehasm/internal/regular"
)

const maxText = 512 << 20 // bytes of a text file of symbols

// PerfMap reads the symbols that a run-time compiler has written for perf in a process:
// tools/perf/Documentation/jit-interface.txt. The file must belong to root or
// to the user, as for perf: anyone may write to the folder it lies in. To root it may
// also belong to the user whose process it is.
func PerfMap(path string, pid int32) (*Table, error) {
	f, _, err := openOwn(path, pid)
	if errors.Is(err, regular.ErrEmpty) {
		return newTable(nil), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return nil, err
	}
	list, err := parsePerfMap(b, mostSymbols)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return newTable(list), nil
}

// parsePerfMap returns the symbols of a text, in which there may be so many.
func parsePerfMap(b []byte, most int) (list []Symbol, err error) {
	for line := range bytes.Lines(b) {
		start, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		size, name, ok := bytes.Cut(rest, []byte(" "))
		s, err1 := strconv.ParseUint(string(bytes.TrimPrefix(start, []byte("0x"))), 16, 64)
		n, err2 := strconv.ParseUint(string(bytes.TrimPrefix(size, []byte("0x"))), 16, 64)
		if !ok || err1 != nil || err2 != nil || s+n < s {
			continue
		}
		if len(list) == most {
			return nil, errManySymbols
		}
		list = append(list, Symbol{Start: s, End: s + n, Name: string(name)})
	}
	return list, nil
}

// mostSymbols is how many a run-time compiler may name.
const mostSymbols = 1 << 22

// errManySymbols is about its file.
var errManySymbols = errors.New("too many symbols")

// ErrNotOwn is wrapped by errors about files that another user may have put there.
var ErrNotOwn = errors.New("not a file of this user, nor of root, nor of the user whose process it is: ignored")

// openOwn opens a file that is not a symbolic link and comes from a process: isOf. It returns
// its size.
func openOwn(path string, pid int32) (*os.File, int64, error) {
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && (!os.SameFile(st, seen) || !isOf(st, pid)) {
		err = fmt.Errorf("%s: %w", path, ErrNotOwn)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
