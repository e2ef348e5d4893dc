package perfdata

import (
	"encoding/binary"
	"fmt"
	"io"
)

// This file takes records from an input one by one: plain ones go to the queue that sorts them,
// perf's own ones are handled here, and compressed ones feed the inflater, whose output is read the
// same way.

// pull reads one record from the file, or from a decompressed one, and queues
// or consumes it. It returns io.EOF at the regular end.
func (r *Reader) pull() error {
	// Data that follow a record, such as of AUX areas, come before the next record.
	if r.in.follows > 0 {
		return r.pullData()
	}
	// Decompressed records come first: they were written before what follows in the file.
	if r.in.inf != nil {
		b := r.in.inf.buffered()
		if len(b) >= headerSize {
			h := headerOf(b, r.in.inOff)
			if h.Size < headerSize {
				return &Error{r.in.inOff, "compressed records", fmt.Errorf("%w of %d bytes", ErrBadRecord, h.Size)}
			}
			if n := int(h.Size); len(b) >= n {
				r.in.inf.pos += n
				r.stats.Uncompressed += uint64(n)
				return r.take(h, b[:n:n], r.in.inf.blk)
			}
		}
		// The decoder has input left, and may complete the record.
		if !r.in.inf.hungry {
			if err := r.in.inf.more(); err != nil {
				return &Error{r.in.inOff, "zstd data", err}
			}
			return nil
		}
	}
	// Next comes a record of the file itself.
	off := r.in.src.off
	ok, err := r.in.src.fill(headerSize)
	if err != nil {
		return &Error{off, "reading", err}
	}
	if !ok {
		return r.end(off)
	}
	h := headerOf(r.in.src.buffered(), off)
	// A size below the header's would never move forward.
	if h.Size < headerSize {
		return &Error{off, fmt.Sprintf("record of type %d", h.Type), fmt.Errorf("%w of %d bytes", ErrBadRecord, h.Size)}
	}
	n := int(h.Size)
	if ok, err = r.in.src.fill(n); err != nil {
		return &Error{off, "reading", err}
	} else if !ok {
		return &Error{off, fmt.Sprintf("record of type %d", h.Type),
			fmt.Errorf("%w: %d bytes of %d", ErrTruncated, len(r.in.src.buffered()), n)}
	}
	// raw stays in the block, which lives as long as a queued record refers to it.
	raw, blk := r.in.src.buffered()[:n:n], r.in.src.blk
	r.in.src.advance(n)
	return r.take(h, raw, blk)
}

// end returns io.EOF if the data may end here, and otherwise an error.
func (r *Reader) end(off int64) error {
	// Data that ends inside a record, or before the section does, was cut off.
	switch {
	case len(r.in.src.buffered()) > 0:
		return &Error{off, "data", fmt.Errorf("%w in a record's header", ErrTruncated)}
	case r.in.src.left > 0:
		return &Error{off, "data", fmt.Errorf("%w: %d bytes of the data section are missing", ErrTruncated, r.in.src.left)}
	case r.in.inf != nil && len(r.in.inf.buffered()) > 0:
		return &Error{r.in.inOff, "compressed records", fmt.Errorf("%w in a record", ErrTruncated)}
	}
	return io.EOF
}

// take queues a record, or processes it if it is for the reader.
func (r *Reader) take(h Header, raw []byte, blk *block) error {
	// Types from 64 on are perf's, not the kernel's.
	if h.Type >= typeUser {
		// Compressed records and rounds mean nothing to a copy: their contents are delivered.
		if r.opt.Own && h.Type != typeFinishedRound && h.Type != typeCompressed && h.Type != typeCompressed2 {
			blk.refs++
			r.queue.deliver(item{off: h.Offset, blk: blk, raw: raw})
		}
		return r.takeUser(h, raw)
	}
	ev, err := r.eventOf(h, raw)
	// One bad record is counted and left out; the rest is still good.
	if err != nil {
		r.bad(h.Offset, err)
		return nil
	}
	blk.refs++
	it := item{time: timeOf(h, raw, ev), off: h.Offset, blk: blk, raw: raw, ev: ev}
	// perf gives 0 or -1 to records without a time: they keep their place in the file.
	if it.time == 0 || it.time == ^uint64(0) {
		it.time = 0
		r.queue.deliver(it)
		return nil
	}
	r.queue.add(it)
	r.in.last = max(r.in.last, it.time)
	// The bound on memory: earlier records than those released may still come.
	if r.queue.bytes > r.opt.QueueBytes {
		if !r.folder() { // in a folder this is the only release
			r.stats.Forced++
		}
		r.queue.flushHalf()
	}
	return nil
}

// eventOf finds the event that wrote a record by the id in it. All events have
// their ids in the same place, or there is only one event.
func (r *Reader) eventOf(h Header, raw []byte) (*Event, error) {
	if len(r.events) == 0 {
		if h.Type == TypeSample {
			return nil, fmt.Errorf("%w: the file has no events", ErrUnknownEvent)
		}
		return nil, nil
	}
	first := r.events[0]
	if len(r.events) == 1 {
		return first, nil
	}
	// The id is read before the record is decoded, since the event says how to decode it.
	var id uint64
	if h.Type == TypeSample {
		off := first.idAt
		if off < 0 {
			return first, nil
		}
		if headerSize+off+8 > len(raw) {
			return nil, ErrTruncated
		}
		id = binary.LittleEndian.Uint64(raw[headerSize+off:])
	} else {
		// 0: the event has no ids in such records.
		back := first.idBack
		if back == 0 {
			return first, nil
		}
		if headerSize+back > len(raw) {
			return nil, ErrTruncated
		}
		id = binary.LittleEndian.Uint64(raw[len(raw)-back:])
	}
	if ev := r.byID[id]; ev != nil {
		return ev, nil
	}
	// Such records belong to the first event as well as to any other.
	if id == 0 || h.Type != TypeSample { // records that perf makes up have no id
		return first, nil
	}
	return nil, fmt.Errorf("%w: id %d", ErrUnknownEvent, id)
}

// timeOf reads the time of a record, or 0 if it has none.
func timeOf(h Header, raw []byte, ev *Event) uint64 {
	if ev == nil {
		return 0
	}
	// From the front in samples, from the back in others.
	off := headerSize + ev.timeAt
	if h.Type != TypeSample {
		if ev.timeBack == 0 || headerSize+ev.timeBack > len(raw) {
			return 0
		}
		off = len(raw) - ev.timeBack
	} else if ev.timeAt < 0 || off+8 > len(raw) {
		return 0
	}
	return binary.LittleEndian.Uint64(raw[off:])
}

// takeUser processes a record that perf itself made.
func (r *Reader) takeUser(h Header, raw []byte) error {
	// Fields after the header.
	c := cursor{data: raw[headerSize:]}
	switch h.Type {
	case typeFinishedRound:
		r.stats.Rounds++
		if !r.folder() { // a round of one file says nothing about the others
			r.queue.round()
		}
	case typeAttr:
		r.takeAttr(h.Offset, c)
	case typeEventUpdate:
		// The other kinds have units, scales and CPUs.
		const eventUpdateName = 2 // PERF_EVENT_UPDATE__NAME
		kind, id := c.u64(), c.u64()
		if ev := r.byID[id]; kind == eventUpdateName && ev != nil && !c.bad {
			ev.Name = string(c.text())
		}
	case typeBuildID:
		if id, ok := parseBuildID(h, c); ok {
			r.info.BuildIDs = append(r.info.BuildIDs, id)
		} else {
			r.bad(h.Offset, ErrTruncated)
		}
	case typeFeature:
		if bit := c.u64(); !c.bad {
			r.takeFeature(bit, h.Offset, c.data)
			// In pipe mode features come as records.
		}
	case typeTracingData:
		// The size is in the record; the data follow it, padded.
		const align = 8
		if size := uint64(c.u32()); !c.bad {
			return r.skip(h, (size+align-1)&^(align-1))
		}
	case typeAuxtrace:
		return r.skip(h, c.u64())
	// The payload is all of the record, or, in the later type, of a given size and then padding.
	case typeCompressed:
		return r.inflate(h, c.data)
	case typeCompressed2:
		size := c.u64()
		payload := c.bytes(size)
		if c.bad {
			return &Error{h.Offset, "compressed record", fmt.Errorf("%w: %d bytes of payload announced", ErrTruncated, size)}
		}
		return r.inflate(h, payload)
	}
	return nil
}

// skip drops the data that follows a record.
func (r *Reader) skip(h Header, n uint64) error {
	// Data cannot follow inside of the compressed stream.
	if r.in.inf != nil && h.Offset == r.in.inOff {
		return &Error{h.Offset, "compressed records", fmt.Errorf("%w: data that follows its record", ErrBadRecord)}
	}
	if r.opt.Own {
		// With Own the data are delivered in pieces.
		r.in.follows = n
		return nil
	}
	if err := r.in.src.skip(n); err != nil {
		return &Error{h.Offset, fmt.Sprintf("the %d bytes after a record of type %d", n, h.Type), err}
	}
	return nil
}

// pullData queues a piece of the data that follow a record.
func (r *Reader) pullData() error {
	off := r.in.src.off
	if ok, err := r.in.src.fill(1); err != nil {
		return &Error{off, "reading", err}
	} else if !ok {
		n := r.in.follows
		r.in.follows = 0
		return &Error{off, fmt.Sprintf("%d bytes after a record", n), ErrTruncated}
	}
	piece := r.in.src.buffered()
	// A piece is at most as large as a record, so that callers need no larger buffer.
	piece = piece[:min(uint64(len(piece)), r.in.follows, maxRecord)]
	r.in.src.blk.refs++
	r.queue.deliver(item{off: off, blk: r.in.src.blk, raw: piece, data: true})
	r.in.src.advance(len(piece))
	r.in.follows -= uint64(len(piece))
	return nil
}

// inflate hands a compressed payload to the decoder, which pull then runs.
func (r *Reader) inflate(h Header, payload []byte) error {
	// A compressed record among decompressed ones would nest streams.
	if r.in.inf != nil && h.Offset == r.in.inOff {
		return &Error{h.Offset, "compressed records", fmt.Errorf("%w: one in another", ErrBadRecord)}
	}
	if r.in.inf == nil {
		r.in.inf = newInflater(&r.pool)
	}
	r.stats.Compressed += uint64(len(payload))
	// Errors and records name the offset of the compressed record.
	r.in.inOff = h.Offset
	r.in.inf.feed(payload)
	return nil
}

// takeAttr adds the event of PERF_RECORD_HEADER_ATTR, which pipe mode has in
// place of the attribute section.
func (r *Reader) takeAttr(off int64, c cursor) {
	const maxEvents = 1 << 12
	if len(c.data) < attrSizeVer0 || len(r.events) >= maxEvents {
		r.bad(off, ErrTruncated)
		return
	}
	// struct perf_event_attr begins with type and size; size 0 is the first version.
	size := uint64(binary.LittleEndian.Uint32(c.data[4:]))
	if size == 0 {
		size = attrSizeVer0
	}
	body := c.bytes(size)
	if c.bad || size < attrSizeVer0 {
		r.bad(off, fmt.Errorf("%w: attribute of %d bytes", ErrBadRecord, size))
		return
	}
	e := &Event{Attr: parseAttr(body)}
	// The rest of the record is ids.
	e.IDs = c.words(nil, uint64(len(c.data)/8))
	r.addEvent(e)
}
