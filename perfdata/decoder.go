package perfdata

// Decoder decodes records that lie in memory, such as in a ring of the kernel's.
// The zero value is ready. It may be used by one goroutine at a time.
type Decoder struct{ recs records }

// NewEvent returns the event of a struct perf_event_attr, given as its bytes.
func NewEvent(attr []byte) *Event {
	e := &Event{Attr: parseAttr(attr)}
	e.layout()
	return e
}

// Decode decodes a record, given with its header, that ev has written. What it returns
// is valid up to the next call, and refers to raw.
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

// Time is when a record was written that ev has written, or 0 if it does not say.
func (e *Event) Time(raw []byte) uint64 {
	if len(raw) < headerSize {
		return 0
	}
	return timeOf(headerOf(raw, 0), raw, e)
}
