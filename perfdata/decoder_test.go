package perfdata

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDecoder decodes a comm record as a ring has it, whole, cut and with a wrong size.
func TestDecoder(t *testing.T) {
	le := binary.LittleEndian
	attr := make([]byte, 112)
	le.PutUint64(attr[24:], uint64(SampleTID|SampleTime|SampleIdentifier))
	le.PutUint64(attr[40:], attrFlagSampleIDAll)
	ev := NewEvent(attr)
	raw := le.AppendUint32(nil, uint32(TypeComm))
	raw = le.AppendUint16(raw, miscCommExec)
	raw = le.AppendUint16(raw, 48)
	raw = le.AppendUint32(raw, 7)
	raw = le.AppendUint32(raw, 8)
	raw = append(raw, "sh\x00\x00\x00\x00\x00\x00"...)
	raw = le.AppendUint32(raw, 7)
	raw = le.AppendUint32(raw, 8)
	raw = le.AppendUint64(raw, 12345)
	raw = le.AppendUint64(raw, 99)
	require.Len(t, raw, 48)

	var d Decoder
	rec, err := d.Decode(raw, ev)
	require.NoError(t, err)
	comm, ok := rec.(*Comm)
	require.True(t, ok, "%T", rec)
	assert.Equal(t, "sh", string(comm.Name))
	assert.True(t, comm.Exec)
	assert.Equal(t, SampleID{PID: 7, TID: 8, Time: 12345, ID: 99}, comm.SampleID)
	assert.EqualValues(t, 12345, ev.Time(raw))

	_, err = d.Decode(raw[:40], ev)
	assert.ErrorIs(t, err, ErrBadRecord)
	_, err = d.Decode(raw[:4], ev)
	assert.ErrorIs(t, err, ErrTruncated)
	assert.Zero(t, ev.Time(raw[:4]))
	short := append([]byte(nil), raw[:16]...)
	le.PutUint16(short[6:], 16)
	_, err = d.Decode(short, ev)
	assert.ErrorIs(t, err, ErrTruncated)
}

// TestGeneration decodes a mapping of a file without build-id.
func TestGeneration(t *testing.T) {
	le := binary.LittleEndian
	raw := le.AppendUint32(nil, uint32(TypeMmap2))
	raw = le.AppendUint16(raw, 0)
	raw = le.AppendUint16(raw, 80)
	raw = le.AppendUint32(raw, 7)
	raw = le.AppendUint32(raw, 8)
	for _, v := range []uint64{0x400000, 0x1000, 0x2000} {
		raw = le.AppendUint64(raw, v)
	}
	raw = le.AppendUint32(raw, 8)
	raw = le.AppendUint32(raw, 1)
	raw = le.AppendUint64(raw, 1234)
	raw = le.AppendUint64(raw, 5678)
	raw = le.AppendUint32(raw, 5)
	raw = le.AppendUint32(raw, 2)
	raw = append(raw, "/bin/sh\x00"...)
	require.Len(t, raw, 80)
	var d Decoder
	rec, err := d.Decode(raw, NewEvent(make([]byte, 112)))
	require.NoError(t, err)
	m, ok := rec.(*Mmap)
	require.True(t, ok, "%T", rec)
	assert.Equal(t, [4]uint64{8, 1, 1234, 5678}, [4]uint64{uint64(m.File.Maj), uint64(m.File.Min), m.File.Inode, m.File.Generation})
	assert.Equal(t, "/bin/sh", string(m.Name))
}
