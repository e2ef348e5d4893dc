// Package perfdatatest writes small perf.data files for tests: what perf would write, and what no perf writes. It
// shares nothing with package perfdata, which reads them; layouts are those of perf.data-file-format.txt in
// tools/perf/Documentation and of include/uapi/linux/perf_event.h.
package perfdatatest

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

// Attr is an event to put into a file.
type Attr struct {
	Name       string
	Hardware   bool // of PERF_TYPE_HARDWARE, else of PERF_TYPE_SOFTWARE
	Config     uint64
	Rate       uint64 // sample_period, or with flag 1<<10 of Flags sample_freq
	Flags      uint64 // more bits of struct perf_event_attr after read_format
	SampleType uint64
	ReadFormat uint64
	BranchType uint64
	RegsUser   uint64
	StackUser  uint32
	RegsIntr   uint64
	IDs        []uint64
}

const (
	attrSize        = 128     // PERF_ATTR_SIZE_VER7
	flagSampleIDAll = 1 << 18 // perf_event_attr.sample_id_all: other records end with the fields of an ID
)

// bytes returns a struct perf_event_attr.
func (a *Attr) bytes() []byte {
	b := make([]byte, attrSize)
	le := binary.LittleEndian
	if !a.Hardware {
		le.PutUint32(b[0:], 1)
	}
	le.PutUint32(b[4:], attrSize)
	le.PutUint64(b[8:], a.Config)
	le.PutUint64(b[16:], a.Rate)
	le.PutUint64(b[24:], a.SampleType)
	le.PutUint64(b[32:], a.ReadFormat)
	le.PutUint64(b[40:], flagSampleIDAll|a.Flags)
	le.PutUint64(b[72:], a.BranchType)
	le.PutUint64(b[80:], a.RegsUser)
	le.PutUint32(b[88:], a.StackUser)
	le.PutUint64(b[96:], a.RegsIntr)
	return b
}

// ID is what sample_id says: the fields that sample_id_all adds to records that are no samples.
type ID struct {
	PID, TID int32
	Time     uint64
	ID       uint64
	CPU      uint32
}

// Builder collects records. The first of Attrs says what sample_id has.
type Builder struct {
	Attrs    []Attr
	BuildIDs []BuildID
	Data     []byte
	encoder  *zstd.Encoder
	zout     bytes.Buffer
}

// BuildID is an entry of HEADER_BUILD_ID.
type BuildID struct {
	Name   string
	ID     []byte
	Kernel bool // of the kernel, not of a user's file
}

// Bytes joins fields: integers little-endian, strings as they are.
func Bytes(fields ...any) []byte {
	var b bytes.Buffer
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b.WriteString(f)
		case []byte:
			b.Write(f)
		default:
			if err := binary.Write(&b, binary.LittleEndian, f); err != nil {
				panic(err)
			}
		}
	}
	return b.Bytes()
}

// Name returns a string with its zero, padded to 8 bytes.
func Name(s string) []byte {
	return append([]byte(s), make([]byte, 8-len(s)%8)...)
}

// Record returns a record of a type with misc and body.
func Record(typ uint32, misc uint16, body ...any) []byte {
	b := Bytes(body...)
	return append(Bytes(typ, misc, uint16(8+len(b))), b...)
}

// Add appends records.
func (b *Builder) Add(records ...[]byte) {
	for _, r := range records {
		b.Data = append(b.Data, r...)
	}
}

// SampleID returns the struct sample_id of the first event.
func (b *Builder) SampleID(id ID) []byte {
	t := b.Attrs[0].SampleType
	var out []byte
	add := func(bit uint64, v ...any) {
		if t&bit != 0 {
			out = append(out, Bytes(v...)...)
		}
	}
	add(1<<1, id.PID, id.TID)
	add(1<<2, id.Time)
	add(1<<6, id.ID)
	add(1<<9, uint64(0))
	add(1<<7, id.CPU, uint32(0))
	add(1<<16, id.ID)
	return out
}

// Mmap2 adds a PERF_RECORD_MMAP2 of an executable mapping.
func (b *Builder) Mmap2(id ID, addr, length, pgoff uint64, name string) {
	b.Add(Record(10, 2, id.PID, id.TID, addr, length, pgoff, uint32(8), uint32(1), uint64(77), uint64(0),
		uint32(5), uint32(2), Name(name), b.SampleID(id)))
}

// Comm adds a PERF_RECORD_COMM.
func (b *Builder) Comm(id ID, name string, exec bool) {
	misc := uint16(2)
	if exec {
		misc |= 1 << 13
	}
	b.Add(Record(3, misc, id.PID, id.TID, Name(name), b.SampleID(id)))
}

// Fork adds a PERF_RECORD_FORK.
func (b *Builder) Fork(id ID, ppid, ptid int32) {
	b.Add(Record(7, 0, id.PID, ppid, id.TID, ptid, id.Time, b.SampleID(id)))
}

// Exit adds a PERF_RECORD_EXIT.
func (b *Builder) Exit(id ID, ppid, ptid int32) {
	b.Add(Record(4, 0, id.PID, ppid, id.TID, ptid, id.Time, b.SampleID(id)))
}

// Round ends a round.
func (b *Builder) Round() { b.Add(Record(68, 0)) }

// Compress replaces the records so far added since mark by compressed ones, of
// type 81 or 83, each with at most size bytes of the zstd stream.
func (b *Builder) Compress(mark int, typ uint32, size int) {
	if b.encoder == nil {
		b.encoder, _ = zstd.NewWriter(&b.zout, zstd.WithEncoderConcurrency(1))
	}
	b.encoder.Write(b.Data[mark:])
	b.encoder.Flush()
	b.Data = b.Data[:mark]
	for b.zout.Len() > 0 {
		part := b.zout.Next(size)
		if typ == 83 {
			pad := make([]byte, -len(part)&7)
			b.Add(Record(typ, 0, uint64(len(part)), part, pad))
			continue
		}
		b.Add(Record(typ, 0, part))
	}
}

// headerString is a perf_header_string: its length with padding, then the text with zeros.
func headerString(s string) []byte {
	n := Name(s)
	return append(Bytes(uint32(len(n))), n...)
}

// buildIDs is the feature HEADER_BUILD_ID: a struct perf_record_header_build_id for each file, with the length of the
// build-id, which misc announces (PERF_RECORD_MISC_BUILD_ID_SIZE).
func (b *Builder) buildIDs() []byte {
	var out []byte
	for _, id := range b.BuildIDs {
		field := make([]byte, 24)
		copy(field, id.ID)
		field[20] = byte(len(id.ID))
		mode := uint16(2)
		if id.Kernel {
			mode = 1
		}
		out = append(out, Record(0, 1<<15|mode, int32(-1), field, Name(id.Name))...)
	}
	return out
}

// eventDesc is the feature HEADER_EVENT_DESC: attributes again, with the events' names and the ids of samples.
func (b *Builder) eventDesc() []byte {
	out := Bytes(uint32(len(b.Attrs)), uint32(attrSize))
	for i := range b.Attrs {
		a := &b.Attrs[i]
		out = append(out, Bytes(a.bytes(), uint32(len(a.IDs)), headerString(a.Name), a.IDs)...)
	}
	return out
}

// File returns the file in file mode.
func (b *Builder) File() []byte {
	const header = 104
	var attrs, ids []byte
	idsAt := uint64(header)
	for i := range b.Attrs {
		ids = append(ids, Bytes(b.Attrs[i].IDs)...)
	}
	attrsAt := idsAt + uint64(len(ids))
	offset := idsAt
	for i := range b.Attrs {
		n := uint64(8 * len(b.Attrs[i].IDs))
		attrs = append(attrs, Bytes(b.Attrs[i].bytes(), offset, n)...)
		offset += n
	}
	dataAt := attrsAt + uint64(len(attrs))
	const flags = 1<<2 | 1<<3 | 1<<7 | 1<<11 | 1<<12
	features := [][]byte{
		b.buildIDs(), headerString("host"), numbersOfCPUs(), Bytes(uint32(2), headerString("perf"), headerString("record")),
		b.eventDesc(),
	}
	out := Bytes("PERFILE2", uint64(header), uint64(attrSize+16), attrsAt, uint64(len(attrs)),
		dataAt, uint64(len(b.Data)), uint64(0), uint64(0), uint64(flags), uint64(0), uint64(0), uint64(0),
		ids, attrs, b.Data)
	place := uint64(len(out) + 16*len(features))
	for _, f := range features {
		out = append(out, Bytes(place, uint64(len(f)))...)
		place += uint64(len(f))
	}
	for _, f := range features {
		out = append(out, f...)
	}
	return out
}

// numbersOfCPUs is the feature that says how many CPUs are available and how many of them online.
func numbersOfCPUs() []byte { return Bytes(uint32(8), uint32(6)) }

// Pipe returns the file in pipe mode.
func (b *Builder) Pipe() []byte {
	out := Bytes("PERFILE2", uint64(16))
	for i := range b.Attrs {
		a := &b.Attrs[i]
		out = append(out, Record(64, 0, a.bytes(), a.IDs)...)
	}
	for bit, f := range map[uint64][]byte{3: headerString("host"), 7: numbersOfCPUs(), 12: b.eventDesc(),
		2: b.buildIDs()} {
		out = append(out, Record(80, 0, bit, f)...)
	}
	return append(out, b.Data...)
}
