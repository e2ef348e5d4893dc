package symbols

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// This file reads jitdump files for unwinding: where code is, its bytes and its .eh_frame, while the program goes on
// writing. jitdump.go reads the same files for names. Layouts are those of struct jr_code_load and others in
// tools/perf/util/jitdump.h; all numbers have the byte order of the machine that wrote the file.

// jitRecord is a record of a jitdump file that is there to its end.
type jitRecord struct {
	id             uint32
	offset, length int64  // of the whole record in the file, in bytes
	body           []byte // what follows the prefix, as far as it was read
}

// jitStart checks the header of a jitdump file, and returns the offset of the first record. The header says its own
// size, which later versions may extend.
func jitStart(r io.ReaderAt) (int64, error) {
	le := binary.LittleEndian
	var head [jitHeaderSize]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		if err == io.EOF {
			err = errNoJITDump
		}
		return 0, err
	}
	switch le.Uint32(head[:]) {
	case jitMagic:
	case 0x4454694a: // jitMagic as a processor with the other order of bytes writes it
		return 0, errOtherOrder
	default:
		return 0, errNoJITDump
	}
	offset := int64(le.Uint32(head[8:]))
	if offset < jitHeaderSize {
		return 0, errJITRecord
	}
	return offset, nil
}

// eachJITRecord calls f for the records from at on, and returns the offset of the first that is not there to its end.
// An error of f ends the walk; the offset is then the next record's.
func eachJITRecord(r io.ReaderAt, offset, size int64, f func(*jitRecord) error) (int64, error) {
	// A record's head and a name of usual length; the code is skipped.
	buf := make([]byte, 1024)
	for offset+jitPrefixSize <= size {
		n, err := r.ReadAt(buf, offset)
		if n < jitPrefixSize {
			if err == io.EOF {
				return offset, nil
			}
			return offset, err
		}
		id, length := binary.LittleEndian.Uint32(buf), int64(binary.LittleEndian.Uint32(buf[4:]))
		if length < jitPrefixSize {
			return offset, fmt.Errorf("%w at %#x", errJITRecord, offset)
		}
		if offset+length > size {
			return offset, nil // it is being written
		}
		body := buf[jitPrefixSize:max(jitPrefixSize, min(int64(n), length))]
		rec := jitRecord{id, offset, length, body}
		offset += length
		if err := f(&rec); err != nil {
			return offset, err
		}
	}
	return offset, nil
}

// JITFile is the jitdump file of a process, read for its code and unwind information while it grows. Records are read
// once; what is kept of them are offsets. It is for one goroutine at a time.
type JITFile struct {
	file    *os.File
	open    *OpenFiles
	next    int64   // offset of the first record that was not read
	pending jitRows // for the next code
}

// jitRows is where a file has unwind information, without its index.
type jitRows struct {
	offset int64
	size   int // bytes; 0: none
}

// JITCode is a piece of code in a jitdump file: [Start, End) in the process.
type JITCode struct {
	Start, End uint64
	offset     int64 // of its bytes in the file
	rows       jitRows
}

// RowsSize returns how many bytes of unwind information the code has.
func (c *JITCode) RowsSize() int { return c.rows.size }

// errOpenFiles says that OpenFiles has no room.
var errOpenFiles = errors.New("too many jitdump files")

// OpenJITFile opens a jitdump file, which must belong to root or to the user, as for JITDump. open bounds the files; it
// may be nil.
func OpenJITFile(w Written, open *OpenFiles) (*JITFile, error) {
	if !open.take() {
		return nil, fmt.Errorf("%s: %w", w.Name, errOpenFiles)
	}
	f, _, err := w.open()
	if err != nil {
		open.give()
		return nil, err
	}
	j := &JITFile{file: f, open: open}
	if j.next, err = jitStart(f); err != nil {
		j.Close()
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	return j, nil
}

// Close closes the file.
func (j *JITFile) Close() error {
	j.open.give()
	return j.file.Close()
}

// Bounds on what is read of a jitdump file.
const (
	mostJITRecords = 1 << 16 // at a time: the reader of samples waits meanwhile
	mostJITRows    = 1 << 16 // bytes of unwind information of a piece of code
)

// errPause ends a walk over records for now.
var errPause = errors.New("many records")

// Update adds the code of records that were written since the last call to a list, in which later code replaces
// earlier code at its place, and returns it, ascending. It keeps at most the given number of pieces. There may be more
// records to read after it, for the next call. With an error, the file is damaged, and the list has what comes before.
func (j *JITFile) Update(list []JITCode, most int) ([]JITCode, error) {
	st, err := j.file.Stat()
	if err != nil || st.Size() <= j.next {
		return list, err
	}
	before, records := len(list), 0
	j.next, err = eachJITRecord(j.file, j.next, st.Size(), func(rec *jitRecord) error {
		list = j.take(list, rec)
		if records++; records == mostJITRecords || len(list) >= most {
			return errPause
		}
		return nil
	})
	if errors.Is(err, errPause) {
		err = nil
	}
	if len(list) > before {
		list = lastOf(list, func(c *JITCode) (start, end uint64) { return c.Start, c.End })
	}
	return list, err
}

// take adds the code of a record, if it has some. Code that is larger than its record is damage or an attack, and left
// out.
func (j *JITFile) take(list []JITCode, rec *jitRecord) []JITCode {
	le, body := binary.LittleEndian, rec.body
	switch {
	// JIT_CODE_UNWINDING_INFO, for the next code: unwinding_size, eh_frame_hdr_size, mapped_size; then
	// .eh_frame and .eh_frame_hdr, which together have unwinding_size.
	case rec.id == jitCodeUnwind && len(body) >= jitUnwindSize:
		all, index := le.Uint64(body), le.Uint64(body[8:])
		j.pending = jitRows{}
		if all <= uint64(rec.length-jitPrefixSize-jitUnwindSize) && index < all && all-index <= mostJITRows {
			j.pending = jitRows{rec.offset + jitPrefixSize + jitUnwindSize, int(all - index)}
		}
	// JIT_CODE_LOAD: pid, tid, vma, code_addr, code_size, code_index, then the name and the code.
	case rec.id == jitCodeLoad && len(body) > jitLoadSize:
		start, size := le.Uint64(body[16:]), le.Uint64(body[24:])
		c := JITCode{Start: start, End: start + size, offset: rec.offset + rec.length - int64(size), rows: j.pending}
		j.pending = jitRows{}
		if size > 0 && size <= uint64(rec.length-jitPrefixSize-jitLoadSize) && c.End > c.Start {
			return append(list, c)
		}
	}
	return list
}

// Rows returns the code's .eh_frame; nil: it cannot be read.
func (j *JITFile) Rows(c *JITCode) []byte {
	b := make([]byte, c.rows.size)
	if n, _ := j.file.ReadAt(b, c.rows.offset); n < len(b) {
		return nil
	}
	return b
}

// ReadCode reads the code's bytes at an address in the process, and returns their number.
func (j *JITFile) ReadCode(c *JITCode, addr uint64, b []byte) int {
	if addr < c.Start || addr >= c.End {
		return 0
	}
	n, _ := j.file.ReadAt(b[:min(uint64(len(b)), c.End-addr)], c.offset+int64(addr-c.Start))
	return n
}

// FindJITCode returns the code that holds an address, or nil.
func FindJITCode(list []JITCode, addr uint64) *JITCode {
	if c := NextJITCode(list, addr); c != nil && c.Start <= addr {
		return c
	}
	return nil
}

// NextJITCode returns the first code that ends behind an address, or nil.
func NextJITCode(list []JITCode, addr uint64) *JITCode {
	i, _ := slices.BinarySearchFunc(list, addr, func(c JITCode, addr uint64) int {
		if c.End <= addr {
			return -1
		}
		return 1
	})
	if i < len(list) {
		return &list[i]
	}
	return nil
}
