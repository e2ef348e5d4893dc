package perfdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrNoSeek says that the output cannot seek. A recording in file mode needs that:
// its header has sizes that are known only at the end.
var ErrNoSeek = errors.New("only a recording in pipe mode can be written to a pipe")

// ChainWriter writes the recording of a Reader again, with call chains in place of
// users' registers and copies of stacks. Everything else stays: other fields of samples,
// other records, attributes, features. Only three features are left out: COMPRESSED and
// DIR_FORMAT, since the result is neither compressed nor a folder, and AUXTRACE_INDEX,
// whose offsets no longer hold and which readers do not need.
//
// The Reader must have Options.Own. Write the records in the order of Take, which is
// the order of time; a PERF_RECORD_FINISHED_ROUND follows every few thousand. The result has
// the mode of the recording: file or pipe.
//
// One goroutine may call Take while another calls Write.
type ChainWriter struct {
	r     *Reader
	out   io.Writer
	seek  io.Seeker // nil in pipe mode
	head  int64     // bytes before the data section
	data  int64     // bytes of it written
	taken uint64
}

// roundRecords is how many records a round has. Readers hold two rounds in memory.
const roundRecords = 4096

// NewChainWriter begins the output. In file mode w must be an io.Seeker, or the error is
// ErrNoSeek. r stays open until Close.
func NewChainWriter(w io.Writer, r *Reader) (*ChainWriter, error) {
	c := &ChainWriter{r: r, out: w}
	begin := binary.LittleEndian.AppendUint64([]byte("PERFILE2"), pipeHeader)
	if !r.pipe {
		seek, ok := w.(io.Seeker)
		if !ok {
			return nil, ErrNoSeek
		}
		if _, err := seek.Seek(0, io.SeekCurrent); err != nil {
			return nil, ErrNoSeek
		}
		c.seek = seek
		begin = c.fileHead(0)
	}
	c.head = int64(len(begin))
	_, err := w.Write(begin)
	return c, err
}

// fileHead returns struct perf_file_header for data bytes of records, and the ids and the
// attributes that follow it.
func (c *ChainWriter) fileHead(data uint64) []byte {
	le := binary.LittleEndian
	var ids, attrs []byte
	entry := 0
	for _, e := range c.r.events {
		if e.raw == nil {
			continue
		}
		attrs = append(attrs, ChainAttr(e.raw)...)
		attrs = le.AppendUint64(attrs, uint64(fileHeader+len(ids)))
		attrs = le.AppendUint64(attrs, uint64(8*len(e.IDs)))
		entry = len(e.raw) + sectionSize
		for _, id := range e.IDs {
			ids = le.AppendUint64(ids, id)
		}
	}
	attrsOff := uint64(fileHeader + len(ids))
	b := append(make([]byte, 0, fileHeader+len(ids)+len(attrs)), "PERFILE2"...)
	for _, v := range []uint64{fileHeader, uint64(entry), attrsOff, uint64(len(attrs)), attrsOff + uint64(len(attrs)), data,
		0, 0} {
		b = le.AppendUint64(b, v)
	}
	for word, set := range c.r.features.flags {
		for bit := range 64 {
			if !keepsFeature(uint64(64*word + bit)) {
				set &^= 1 << bit
			}
		}
		b = le.AppendUint64(b, set)
	}
	return append(append(b, ids...), attrs...)
}

// Entry is a record of the result that may lack a call chain.
type Entry struct {
	bytes []byte // without the chain's user part
	nrAt  int    // where a sample's number of entries is; 0: the record is whole
	after int    // where user entries belong
}

// Take appends the bytes of the Reader's current record to dst, without registers and copy of
// the stack. It returns the result and the record's Entry, which is empty if the result leaves
// the record out.
func (c *ChainWriter) Take(dst []byte) ([]byte, Entry) {
	start := len(dst)
	e := Entry{}
	switch rec := c.r.rec.(type) {
	case *Sample:
		dst, e.nrAt, e.after = rec.appendChained(dst, c.r.Raw())
	case *Other:
		dst = appendOther(dst, rec, c.r.Raw())
	default:
		dst = append(dst, c.r.Raw()...)
	}
	if c.taken++; c.taken%roundRecords == 0 && c.r.in.follows == 0 {
		dst = append(dst, byte(typeFinishedRound), 0, 0, 0, 0, 0, headerSize, 0)
	}
	e.bytes = dst[start:]
	return dst, e
}

// Append appends the record to dst. A sample that lacks a call chain gets user as the
// user's part of it, innermost first. Its addresses are those of instructions: pass return
// addresses minus 1, since readers do not subtract. Append leaves out addresses beyond the
// size of a record, about 8,000. Empty chains have no PERF_CONTEXT_USER.
func (e *Entry) Append(dst []byte, user []uint64) []byte {
	if e.nrAt == 0 || len(user) == 0 {
		return append(dst, e.bytes...)
	}
	le := binary.LittleEndian
	size := int(le.Uint16(e.bytes[6:])) // of the record; a round mark may follow
	user = user[:min(len(user), max(0, (maxRecord-size)/8-1))]
	start := len(dst)
	dst = append(dst, e.bytes[:e.after]...)
	dst = le.AppendUint64(dst, ContextUser)
	for _, pc := range user {
		dst = le.AppendUint64(dst, pc)
	}
	dst = append(dst, e.bytes[e.after:]...)
	added := 1 + len(user)
	le.PutUint16(dst[start+6:], uint16(size+8*added))
	le.PutUint64(dst[start+e.nrAt:], le.Uint64(dst[start+e.nrAt:])+uint64(added))
	return dst
}

// Write writes records that Append made.
func (c *ChainWriter) Write(records []byte) (int, error) {
	n, err := c.out.Write(records)
	c.data += int64(n)
	return n, err
}

// Close writes the features and completes the header. It does not close the output. The
// error is ErrTruncated if a feature lies beyond the end of the recording.
func (c *ChainWriter) Close() error {
	if c.seek == nil {
		return nil
	}
	if err := c.writeFeatures(); err != nil {
		return err
	}
	if _, err := c.seek.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := c.out.Write(c.fileHead(uint64(c.data))[:fileHeader])
	return err
}

// writeFeatures copies the sections of features behind the table of their places.
func (c *ChainWriter) writeFeatures() error {
	all, err := c.r.features.sections()
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(all, func(f feature) bool { return !keepsFeature(f.bit) })
	off := uint64(c.head+c.data) + sectionSize*uint64(len(kept))
	var table []byte
	for _, f := range kept {
		table = binary.LittleEndian.AppendUint64(table, off)
		table = binary.LittleEndian.AppendUint64(table, f.size)
		off += f.size
	}
	if _, err := c.out.Write(table); err != nil {
		return err
	}
	for _, f := range kept {
		if err := c.copyFeature(f); err != nil {
			return err
		}
	}
	return nil
}

func (c *ChainWriter) copyFeature(f feature) error {
	where := fmt.Sprintf("feature %d", f.bit)
	if f.bit == featureEventDesc && f.size > maxFeature {
		return &Error{int64(f.off), where, fmt.Errorf("%w: %d bytes", ErrFormat, f.size)}
	}
	if f.off > 1<<62 || f.size > 1<<62 {
		return &Error{int64(f.off), where, ErrTruncated}
	}
	in := io.NewSectionReader(c.r.features.in, int64(f.off), int64(f.size))
	if f.bit != featureEventDesc {
		n, err := io.Copy(c.out, in)
		if err == nil && uint64(n) < f.size {
			err = &Error{int64(f.off), where, ErrTruncated}
		}
		return err
	}
	desc, err := readSection(c.r.features.in, f.section)
	if err != nil {
		return &Error{int64(f.off), where, err}
	}
	chainEventDesc(desc)
	_, err = c.out.Write(desc)
	return err
}
