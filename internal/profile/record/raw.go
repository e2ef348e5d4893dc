//go:build linux && amd64

package record

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"

	"golang.org/x/sys/unix"
)

// RawWriter writes the records of a Session as a perf.data file, for ehasm script and
// perf script.
type RawWriter struct {
	// Chains replaces registers and copies of stacks by the call chains that the Session has found. Set it before Open.
	Chains bool

	file    io.WriteSeeker
	out     *bufio.Writer
	command []string
	start0  int64 // of the data section
	size    uint64
	events  int
	descs   []byte // struct perf_event_desc of the events: feature EVENT_DESC
	first   uint64 // id of an event, for records that are made up
	time    uint64
	chain   []byte // see chained
	err     error
}

// NewRawWriter writes to a file; command is what is recorded.
func NewRawWriter(file io.WriteSeeker, command []string) *RawWriter {
	return &RawWriter{file: file, out: bufio.NewWriterSize(file, 1<<20), command: command}
}

// Sizes of the file format: struct perf_file_header and struct perf_file_section of
// tools/perf/util/header.h.
const (
	fileHeaderSize  = 104
	fileSectionSize = 16
	featureRelease  = 4  // HEADER_OSRELEASE
	featureCmdline  = 11 // HEADER_CMDLINE
	featureEvents   = 12 // HEADER_EVENT_DESC
)

// start writes all that comes before the records.
func (w *RawWriter) start(op *opened, events []*Event) error {
	streams := []*stream{&op.samples, &op.side}
	names := []string{events[0].Name, "dummy"}
	if op.long.attr != nil {
		streams, names = append(streams, &op.long), append(names, events[0].Name)
	}
	for i := range op.more {
		streams, names = append(streams, &op.more[i]), append(names, events[i+1].Name)
	}
	w.events = len(streams)
	var attrs, ids []byte
	attrSize := len(attrBytes(op.samples.attr))
	idsAt := fileHeaderSize + len(streams)*(attrSize+fileSectionSize)
	w.descs = binary.LittleEndian.AppendUint32(w.descs, uint32(len(streams)))
	w.descs = binary.LittleEndian.AppendUint32(w.descs, uint32(attrSize))
	for i, s := range streams {
		begin, attr := len(ids), *s.attr
		if s.source != nil && (s.source.probe != nil || s.source.typ == unix.PERF_TYPE_TRACEPOINT) {
			// perf reads no tracepoints without the formats of their fields
			attr.Type, attr.Ext1, attr.Ext2 = unix.PERF_TYPE_RAW, 0, 0
		}
		if s == &op.side {
			attr.Bits |= perfevent.BitBuildID // see rawWithBuildID
		}
		for _, e := range s.all {
			id, err := e.ID()
			if err != nil {
				return err
			}
			if w.first == 0 {
				w.first = id
			}
			ids = binary.LittleEndian.AppendUint64(ids, id)
		}
		bytes := attrBytes(&attr)
		if w.Chains {
			perfdata.ChainAttr(bytes)
		}
		w.descs = append(w.descs, bytes...)
		w.descs = binary.LittleEndian.AppendUint32(w.descs, uint32(len(ids)-begin)/8)
		w.descs = append(headerString(w.descs, names[i]), ids[begin:]...)
		attrs = append(attrs, bytes...)
		attrs = binary.LittleEndian.AppendUint64(attrs, uint64(idsAt+begin))
		attrs = binary.LittleEndian.AppendUint64(attrs, uint64(len(ids)-begin))
	}
	w.start0 = int64(idsAt + len(ids))
	w.put(w.header(uint64(attrSize+fileSectionSize), uint64(len(attrs)), 0))
	w.put(attrs)
	w.put(ids)
	w.kernel()
	return w.err
}

// headerString appends struct perf_header_string.
func headerString(b []byte, s string) []byte {
	const align = 64
	n := (len(s) + 1 + align - 1) &^ (align - 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return append(append(b, s...), make([]byte, n-len(s))...)
}

// kernel writes the mapping of the kernel, by which perf script finds its symbols: from
// _text up to where modules may begin.
func (w *RawWriter) kernel() {
	const symbol, end = "_text", 0xffffffffc0000000
	addr, err := symbols.KallsymsAddress("/proc/kallsyms", symbol)
	if err != nil || addr == 0 || addr >= end {
		return // not to be had without privileges
	}
	none := ^uint32(0)
	b := binary.LittleEndian.AppendUint32(nil, none)
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, v := range []uint64{addr, end - addr, addr} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(append(b, "[kernel.kallsyms]"+symbol...), 0)
	w.record(w.make(perfdata.TypeMmap, uint16(perfdata.ModeKernel), b, -1, 0))
}

// round says that all records from here on are later than those before: a
// PERF_RECORD_FINISHED_ROUND.
func (w *RawWriter) round() {
	w.record([]byte{finishedRound, 0, 0, 0, 0, 0, 8, 0})
}

// finishedRound is a number of enum perf_user_event_type.
const finishedRound = 68

func (w *RawWriter) header(attrSize, attrs, data uint64) []byte {
	b := append([]byte(nil), "PERFILE2"...)
	for _, v := range []uint64{fileHeaderSize, attrSize, fileHeaderSize, attrs, uint64(w.start0), data, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	features := uint64(0)
	if data > 0 {
		features = 1<<featureRelease | 1<<featureCmdline | 1<<featureEvents
	}
	b = binary.LittleEndian.AppendUint64(b, features)
	return append(b, make([]byte, fileHeaderSize-len(b))...)
}

func (w *RawWriter) put(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// record writes a record unchanged.
func (w *RawWriter) record(raw []byte) {
	w.put(raw)
	w.size += uint64(len(raw))
}

// chained writes the record of a sample with a call chain: user are its addresses, return addresses minus 1.
func (w *RawWriter) chained(r *perfdata.Sample, raw []byte, user []uint64) {
	w.chain = r.AppendChained(w.chain[:0], raw, user)
	w.record(w.chain)
}

// make returns a record that the kernel did not write: its header, body and struct
// sample_id.
func (w *RawWriter) make(typ perfdata.Type, misc uint16, body []byte, pid, tid int32) []byte {
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	const headerSize, sampleIDSize = 8, 32 // TID, TIME, CPU, IDENTIFIER
	b := binary.LittleEndian.AppendUint32(nil, uint32(typ))
	b = binary.LittleEndian.AppendUint16(b, misc)
	b = binary.LittleEndian.AppendUint16(b, uint16(headerSize+len(body)+sampleIDSize))
	b = append(b, body...)
	b = binary.LittleEndian.AppendUint32(b, uint32(pid))
	b = binary.LittleEndian.AppendUint32(b, uint32(tid))
	b = binary.LittleEndian.AppendUint64(b, w.time)
	b = binary.LittleEndian.AppendUint64(b, 0)
	return binary.LittleEndian.AppendUint64(b, w.first)
}

// mapping writes a mapping that was read from /proc.
func (w *RawWriter) mapping(pid int32, m procfs.Mapping, id []byte) {
	misc := uint16(perfdata.ModeUser)
	b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
	b = binary.LittleEndian.AppendUint32(b, uint32(pid))
	for _, v := range []uint64{m.Start, m.End - m.Start, m.Offset} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint64(b, m.Inode)
	b = append(b, make([]byte, 8)...)
	prot := uint32(unix.PROT_READ)
	if m.Exec {
		prot |= unix.PROT_EXEC
	} else {
		misc |= unix.PERF_RECORD_MISC_MMAP_DATA
	}
	b = binary.LittleEndian.AppendUint32(b, prot)
	b = binary.LittleEndian.AppendUint32(b, unix.MAP_PRIVATE)
	b = append(append(b, m.Name...), 0)
	w.record(rawWithBuildID(w.make(perfdata.TypeMmap2, misc, b, pid, pid), id))
}

// rawWithBuildID returns a copy of a PERF_RECORD_MMAP2 with a build-id in place of device and inode. If there is none,
// or it is longer than the record can have, the copy only says that it has none.
func rawWithBuildID(raw, id []byte) []byte {
	const miscAt, idAt, idSize = 4, 40, 20
	le := binary.LittleEndian
	raw = bytes.Clone(raw)
	misc := le.Uint16(raw[miscAt:]) &^ unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	if len(id) > 0 && len(id) <= idSize {
		misc |= unix.PERF_RECORD_MISC_MMAP_BUILD_ID
		field := raw[idAt : idAt+4+idSize]
		clear(field)
		field[0] = byte(len(id))
		copy(field[4:], id)
	}
	le.PutUint16(raw[miscAt:], misc)
	return raw
}

// comm writes the name of a thread.
func (w *RawWriter) comm(pid, tid int32, name string) {
	b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
	b = binary.LittleEndian.AppendUint32(b, uint32(tid))
	b = append(append(b, name...), 0)
	w.record(w.make(perfdata.TypeComm, 0, b, pid, tid))
}

// Finish writes the parts after the records, and the header again.
func (w *RawWriter) Finish() error {
	if w.start0 == 0 {
		return w.err
	}
	le := binary.LittleEndian
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	if n := len(release); n > 0 && release[n-1] == '\n' {
		release = release[:n-1]
	}
	cmdline := le.AppendUint32(nil, uint32(len(w.command)))
	for _, arg := range w.command {
		cmdline = headerString(cmdline, arg)
	}
	offset := uint64(w.start0) + w.size + 3*fileSectionSize
	var table, sections []byte
	for _, s := range [][]byte{headerString(nil, string(release)), cmdline, w.descs} { // by ascending feature
		table = le.AppendUint64(le.AppendUint64(table, offset+uint64(len(sections))), uint64(len(s)))
		sections = append(sections, s...)
	}
	w.put(table)
	w.put(sections)
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err == nil {
		_, w.err = w.file.Seek(0, io.SeekStart)
	}
	if w.err == nil {
		attrSize := uint64(len(attrBytes(&unix.PerfEventAttr{})) + fileSectionSize)
		_, w.err = w.file.Write(w.header(attrSize, uint64(w.events)*attrSize, w.size))
	}
	return w.err
}
