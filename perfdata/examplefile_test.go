package perfdata_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/perfdata"
)

var update = flag.Bool("update", false, "write the recording of the examples again")

// TestExampleFile makes the recording of the examples again.
func TestExampleFile(t *testing.T) {
	const path = "testdata/example.perf.data"
	if *update {
		require.NoError(t, os.WriteFile(path, exampleRecording(), 0o644))
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, exampleRecording(), b)
}

func exampleRecording() []byte {
	sampled := perfdata.SampleIdentifier | perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime |
		perfdata.SamplePeriod | perfdata.SampleRegsUser | perfdata.SampleStackUser
	b := &perfdatatest.Builder{Attrs: []perfdatatest.Attr{
		{Name: "cycles", SampleType: uint64(sampled), RegsUser: 1 << 8, StackUser: 16, IDs: []uint64{5}},
	}}
	id := perfdatatest.ID{PID: 10, TID: 11, Time: 100, ID: 5}
	b.Comm(id, "prog", true)
	id.Time = 110
	b.Mmap2(id, 0x400000, 0x1000, 0, "/bin/prog")
	b.Add(perfdatatest.Record(9, 2, uint64(5), uint64(0x400123), int32(10), int32(11), uint64(120), uint64(1),
		uint64(2), uint64(0x400123), // registers
		uint64(16), "stackstackstack!", uint64(8)))
	return b.File()
}
