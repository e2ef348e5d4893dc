package perfdata

// Decoder decodes records in memory, such as in a ring buffer of the kernel. The
// zero value is ready. It may be used by one goroutine at a time.
type Decoder struct{ recs records }

// NewEvent returns the event of a struct perf_event_attr, given as its bytes.
func NewEvent(attr []byte) *Event {
	e := &Event{Attr: parseAttr(attr)}
	e.layout()
	return e
}

// Decode decodes a record of ev, including its header. The result refers to raw, and
// is valid until the next call.
func (d *Decoder) Decode(raw []byte, ev *Event) (Record, error) {
	if len(raw) < headerSize {
		return nil, ErrTruncated
	}
	h := headerOf(raw, 0)
	if int(h.Size) != len(raw) {
		return nil, ErrBadRecord
	}
	return d.recs.decode(h, raw, ev)
}

// Time returns when the record raw of ev was written, in nanoseconds of the
// event's clock, or 0 if the record does not say.
func (e *Event) Time(raw []byte) uint64 {
	if len(raw) < headerSize {
		return 0
	}
	return timeOf(headerOf(raw, 0), raw, e)
}
