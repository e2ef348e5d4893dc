package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Options are settings of a Reader; the zero value gives the defaults.
type Options struct {
	// QueueBytes bounds the bytes of records that wait to be sorted; 0 means 64
	// MB. If a file needs more, the earlier half is delivered, and Stats.Forced
	// counts that.
	QueueBytes int64
	// Map makes the Reader map files, if possible, instead of reading them, which
	// takes a third of the time. Next, and code that reads the memory of a record,
	// then fault if the file is truncated meanwhile: see debug.SetPanicOnFault.
	Map bool
	// Own makes Next deliver the records that perf itself makes, too, as *Other, in the
	// place where the file has them; all but marks of rounds and compressed ones, whose
	// contents are delivered. Data that follow a record come as *Other of TypeData.
	Own bool
}

// Options.QueueBytes, if 0.
const defaultQueueBytes = 64 << 20

// Stats counts what a Reader has met.
type Stats struct {
	Records      uint64 // delivered
	Rounds       uint64 // marks of rounds
	Forced       uint64 // times the queue ran full: the order may be wrong there
	OutOfOrder   uint64 // records earlier than one delivered before
	BadRecords   uint64 // left out; the first of them is FirstBad
	FirstBad     error  // of BadRecords; nil: none
	Compressed   uint64 // bytes of compressed payloads
	Uncompressed uint64 // bytes of records decompressed from them
}

// Reader reads a perf.data file, or a folder of them. It may be used by one goroutine at a
// time.
type Reader struct {
	opt      Options     // as given, with defaults set
	closers  []io.Closer // files that Open has opened
	pipe     bool        // the file is in pipe mode: its attributes are records
	info     Info
	features featureTable
	events   []*Event          // in the order of the file
	byID     map[uint64]*Event // events by each of their ids
	in       *input            // that is being read
	inputs   []*input          // one, or those of a folder
	until    uint64            // the time up to which to read it before another
	pool     pool
	queue    queue
	current  item    // that rec is of
	rec      Record  // what Record returns: decoded into recs
	recs     records // reused for each record
	stats    Stats
	err      error  // first error; see Err
	done     bool   // no more is read; the queue may hold records
	lastOut  uint64 // time of the last record delivered, ns
}

// Open opens the file at path, or the folder that perf record --threads has made
// there.
func Open(path string, opt Options) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return openFolder(path, opt)
	}
	r, err := NewReader(f, opt)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.closers = append(r.closers, f)
	return r, nil
}

// section is struct perf_file_section.
type section struct{ off, size uint64 }

// Sizes in bytes.
const (
	sectionSize = 16  // struct perf_file_section
	pipeHeader  = 16  // struct perf_pipe_file_header
	fileHeader  = 104 // struct perf_file_header
)

// NewReader reads the headers of a perf.data file. A file in pipe mode is read
// from one end to the other; any other kind needs an io.ReaderAt as well.
func NewReader(in io.Reader, opt Options) (*Reader, error) {
	if opt.QueueBytes <= 0 {
		opt.QueueBytes = defaultQueueBytes
	}
	r := &Reader{opt: opt, byID: make(map[uint64]*Event)}
	r.addInput("", in)
	r.in = r.inputs[0]
	// Magic numbers: this version, the same of the other byte order, and version 1.
	const (
		magic     = "PERFILE2"
		magicSwap = "2ELIFREP"
		magic1    = "PERFFILE"
	)
	var b [fileHeader]byte
	// The first 16 bytes tell the kinds of file apart.
	n, err := io.ReadFull(in, b[:pipeHeader])
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	case errors.Is(err, io.ErrUnexpectedEOF) && string(b[:min(n, len(magic))]) != magic[:min(n, len(magic))]:
		return nil, fmt.Errorf("%w: no magic number", ErrFormat)
	default:
		return nil, headerError(int64(n), err)
	}
	switch string(b[:8]) {
	case magic:
	case magicSwap:
		return nil, &Error{0, "header", fmt.Errorf("%w: of a big-endian machine", ErrFormat)}
	case magic1:
		return nil, &Error{0, "header", fmt.Errorf("%w: version 1", ErrFormat)}
	default:
		return nil, fmt.Errorf("%w: no magic number", ErrFormat)
	}
	// The size says which header it is.
	switch size := binary.LittleEndian.Uint64(b[8:]); size {
	case pipeHeader:
		r.pipe = true
		r.in.src.off = pipeHeader
		return r, nil
	case fileHeader:
	default:
		return nil, &Error{8, "header", fmt.Errorf("%w: header of %d bytes", ErrFormat, size)}
	}
	if n, err := io.ReadFull(in, b[pipeHeader:]); err != nil {
		return nil, headerError(int64(pipeHeader+n), err)
	}
	// Sections lie anywhere, so the input must seek.
	file, ok := in.(io.ReaderAt)
	if !ok {
		return nil, fmt.Errorf("%w: not in pipe mode, and the input cannot seek", ErrFormat)
	}
	return r, r.readFile(file, b[:])
}

// headerError says at which offset the file ends, or could not be read.
func headerError(off int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrTruncated
	}
	return &Error{off, "header", err}
}

// readFile reads the sections that struct perf_file_header refers to.
func (r *Reader) readFile(file io.ReaderAt, header []byte) error {
	// The fields of struct perf_file_header after magic and size.
	c := cursor{data: header[16:]}
	attrSize := c.u64()
	attrs := section{c.u64(), c.u64()}
	data := section{c.u64(), c.u64()}
	c.bytes(16) // event_types
	var flags [4]uint64
	for i := range flags {
		flags[i] = c.u64()
	}
	if err := r.readAttrs(file, attrs, attrSize); err != nil {
		return err
	}
	// Offsets are signed: larger ones would wrap.
	if data.off > 1<<62 || data.size > 1<<62 {
		return &Error{40, "header", fmt.Errorf("%w: data section at %#x of %#x bytes", ErrFormat, data.off, data.size)}
	}
	r.in.src.off, r.in.src.left = int64(data.off), int64(data.size)
	if data.size == 0 { // perf record was killed: there are no features either
		r.in.src.left = -1
		r.info.warn(&Error{48, "header", fmt.Errorf("%w: the data section has no size; reading up to the end of the file",
			ErrTruncated)})
	} else {
		// Behind the data, a table has a section for each feature.
		r.features = featureTable{file, int64(data.off + data.size), flags}
		r.readFeatures()
	}
	r.in.src.r = io.NewSectionReader(file, int64(data.off), 1<<62)
	return nil
}

// readAttrs reads the attributes and their ids.
func (r *Reader) readAttrs(file io.ReaderAt, attrs section, size uint64) error {
	const maxAttrs = 1 << 16
	// Each attribute is followed by the section of its ids.
	if size < attrSizeVer0+sectionSize || size > maxAttrSize || attrs.size/size > maxAttrs {
		return &Error{16, "header", fmt.Errorf("%w: attributes of %d bytes, %d bytes in all", ErrFormat, size, attrs.size)}
	}
	b := make([]byte, size)
	for i := range attrs.size / size {
		off := int64(attrs.off + i*size)
		if _, err := file.ReadAt(b, off); err != nil {
			return headerError(off, err)
		}
		body := b[:size-sectionSize]
		c := cursor{data: b[size-sectionSize:]}
		ids := section{c.u64(), c.u64()}
		e := &Event{Attr: parseAttr(body), raw: bytes.Clone(body)}
		// A count that no machine has is damage.
		if ids.size/8 > 1<<20 {
			return &Error{off, "attribute", fmt.Errorf("%w: %d ids", ErrFormat, ids.size/8)}
		}
		idBytes, err := readSection(file, ids)
		if err != nil {
			return &Error{int64(ids.off), "ids of an attribute", err}
		}
		e.IDs = (&cursor{data: idBytes}).words(nil, ids.size/8)
		r.addEvent(e)
	}
	return nil
}

// readSection reads a section of a checked size, without allocating more memory
// than the file has bytes.
func readSection(file io.ReaderAt, s section) ([]byte, error) {
	if s.off > 1<<62 || s.size > 1<<62 {
		return nil, ErrTruncated
	}
	b, err := io.ReadAll(io.NewSectionReader(file, int64(s.off), int64(s.size)))
	if err == nil && uint64(len(b)) < s.size {
		err = ErrTruncated
	}
	return b, err
}

// addEvent takes an event and registers its ids.
func (r *Reader) addEvent(e *Event) {
	e.layout()
	r.events = append(r.events, e)
	r.recs.buildIDs = r.recs.buildIDs || e.hasBuildIDs() // perf makes up mappings of its first event for those of another
	for _, id := range e.IDs {
		r.byID[id] = e
	}
}

// Events returns the events met so far, in the order of the file.
func (r *Reader) Events() []*Event { return r.events }

// Info returns the header features read so far.
func (r *Reader) Info() *Info { return &r.info }

// Stats returns the counts so far.
func (r *Reader) Stats() Stats { return r.stats }

// Offset returns the number of bytes of the file read so far; for a folder, the
// sum over its files.
func (r *Reader) Offset() (sum int64) {
	for _, in := range r.inputs {
		sum += in.src.off
	}
	return sum
}

// Err returns the error that ended the records, or nil at their regular end.
// All records before it have been delivered.
func (r *Reader) Err() error { return r.err }

// Record returns the record that the last Next found. It is valid until the
// next call of Next or Close.
func (r *Reader) Record() Record { return r.rec }

// Raw returns the bytes of that record with its header, or the data of one of TypeData.
// They are valid as long.
func (r *Reader) Raw() []byte { return r.current.raw }

// Close closes the files that Open opened.
func (r *Reader) Close() error {
	r.done = true
	var errs []error
	for _, in := range r.inputs {
		in.inf.close()
	}
	r.pool.unmap()
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Next advances to the next record. It returns false at the end or on an error,
// see Err.
func (r *Reader) Next() bool {
	// The record before is not used any more.
	if r.current.blk != nil {
		r.pool.release(r.current.blk)
		r.current = item{}
	}
	for {
		it, ok := r.queue.pop()
		// Nothing may be delivered: read on.
		if !ok {
			if r.done {
				return false
			}
			if err := r.pull(); err != nil {
				r.endInput(err)
			}
			// Another file of the folder is behind: go on with that one.
			if r.in.last > r.until && r.in.follows == 0 {
				r.choose()
			}
			continue
		}
		rec, err := r.decode(&it)
		if err != nil {
			r.bad(it.off, err)
			r.pool.release(it.blk)
			continue
		}
		if it.time != 0 {
			// The queue was forced, or perf wrote out of order.
			if it.time < r.lastOut {
				r.stats.OutOfOrder++
			}
			r.lastOut = it.time
		}
		r.current, r.rec = it, rec
		r.stats.Records++
		return true
	}
}

// decode decodes a queued item, or makes a record of data.
func (r *Reader) decode(it *item) (Record, error) {
	if it.data {
		r.recs.other = Other{Header: Header{Offset: it.off, Type: TypeData}, Data: it.raw}
		return &r.recs.other, nil
	}
	return r.recs.decode(headerOf(it.raw, it.off), it.raw, it.ev)
}

// headerOf reads struct perf_event_header at the front of raw.
func headerOf(raw []byte, off int64) Header {
	return Header{
		Offset: off,
		Type:   Type(binary.LittleEndian.Uint32(raw)),
		Misc:   binary.LittleEndian.Uint16(raw[4:]),
		Size:   binary.LittleEndian.Uint16(raw[6:]),
	}
}

// bad counts a record that is left out.
func (r *Reader) bad(off int64, err error) {
	r.stats.BadRecords++
	if r.stats.FirstBad == nil {
		r.stats.FirstBad = &Error{off, "record", err}
	}
}
