package push

import "google.golang.org/protobuf/encoding/protowire"

// message is the encoded fields of a protobuf message. Its methods append a field.
type message []byte

// number appends an integer; 0 is what a missing one means.
func (m message) number(field protowire.Number, n uint64) message {
	if n == 0 {
		return m
	}
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), n)
}

// packed appends a list of integers.
func (m message) packed(field protowire.Number, list ...uint64) message {
	if len(list) == 0 {
		return m
	}
	b := make(message, 0, 2*len(list))
	for _, n := range list {
		b = protowire.AppendVarint(b, n)
	}
	return m.part(field, b)
}

// text appends a string.
func (m message) text(field protowire.Number, s string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

// part appends bytes or a message.
func (m message) part(field protowire.Number, of message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), of)
}
