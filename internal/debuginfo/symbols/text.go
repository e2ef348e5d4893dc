package symbols

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/ehasm/ehasm/internal/files/input"
)

// maxText bounds what is read of a file.
const maxText = 512 << 20 // bytes of a text file of symbols

// PerfMap reads the symbols that a run-time compiler has written for perf in a process:
// tools/perf/Documentation/jit-interface.txt. The file must belong to root or
// to the user, as for perf: anyone may write to the folder it lies in. To root it may
// also belong to the user whose process it is. Its symbols count towards a budget.
func PerfMap(w Written, budget *Budget) (*Table, error) {
	f, _, err := w.open()
	if errors.Is(err, input.ErrEmpty) {
		return newTable(nil, nil), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := parsePerfMap(io.LimitReader(f, maxText), mostSymbols, budget)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	return newTable(list, nil), nil
}

// parsePerfMap returns the symbols of a text, at most the given number. Of lines of more than longestLine bytes the
// rest is left out, and lines of another form are skipped: some programs write notes there. The last line may be
// incomplete, as the program may be writing it.
func parsePerfMap(r io.Reader, most int, budget *Budget) (list []Symbol, err error) {
	const longestLine = 2 * longestName // bytes: room for two addresses before the longest name
	in := bufio.NewReaderSize(r, longestLine)
	taken := budget.account()
	for err == nil {
		var line []byte
		line, err = in.ReadSlice('\n') // the slice is valid until the next read
		s, ok := parseLine(line)
		// The rest of a line that does not fit the buffer.
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if !ok {
			continue
		}
		if len(list) == most || !taken.add(&s) {
			taken.giveBack()
			return nil, errManySymbols
		}
		list = append(list, s)
	}
	if !errors.Is(err, io.EOF) {
		taken.giveBack()
		return nil, err
	}
	return list, nil
}

// parseLine parses a line of a map: start, size and name, numbers in hexadecimal, with or without 0x.
func parseLine(line []byte) (s Symbol, ok bool) {
	start, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	size, name, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return s, false
	}
	from, err1 := strconv.ParseUint(string(bytes.TrimPrefix(start, []byte("0x"))), 16, 64)
	n, err2 := strconv.ParseUint(string(bytes.TrimPrefix(size, []byte("0x"))), 16, 64)
	if err1 != nil || err2 != nil || from+n < from {
		return s, false
	}
	return Symbol{Start: from, End: from + n, Name: string(name)}, true
}

// mostSymbols is how many a run-time compiler may name.
const mostSymbols = 1 << 22

// errManySymbols is about the file of a run-time compiler.
var errManySymbols = errors.New("too many symbols")

// ErrNotOwn is wrapped by errors about files that another user may have put there.
var ErrNotOwn = errors.New("not a file of this user, nor of root, nor of the user whose process it is, if that still runs: ignored")

// Written is a file that a process has written for profilers.
type Written struct {
	// Path of the file. If Root is not "", Path is below that folder, and no part of it may be a symbolic link.
	Root, Path string
	File       *os.File  // the file, which another one may have the path of; nil: see Path
	Name       string    // for messages: as the process has it
	PID        int32     // of the process, in this namespace
	User       uint32    // whose process it was when it ran; 0: not known
	After      time.Time // when the process began: one from before is another's; zero: not known
}

// open opens the file, and returns its size, if it is no symbolic link and comes from the process as isOf has it. The
// checks are of the open file, which a rename cannot exchange.
func (w *Written) open() (f *os.File, size int64, err error) {
	var seen os.FileInfo
	if w.File != nil {
		// opened anew, for an offset that nothing else moves
		f, err = input.Open(fmt.Sprintf("/proc/self/fd/%d", w.File.Fd()))
	} else if w.Root != "" {
		f, err = input.OpenBelow(w.Root, w.Path)
	} else if seen, err = os.Lstat(w.Path); err == nil {
		f, err = input.Open(w.Path)
	}
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && (seen != nil && !os.SameFile(st, seen) || !isOf(st, w)) {
		err = fmt.Errorf("%s: %w", w.Name, ErrNotOwn)
	}
	const tolerance = 10 * time.Second // clocks are set
	if err == nil && st.ModTime().Add(tolerance).Before(w.After) {
		err = fmt.Errorf("%s, of an earlier process: %w", w.Name, os.ErrNotExist)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
