package stackfmt

import (
	"bytes"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWeight: where a format has one number for a stack, that is its weight, with its unit; the number of samples stays
// what it is.
func TestWeight(t *testing.T) {
	event := &Event{Name: "off-cpu", Kind: "blocked", Unit: "nanoseconds", Weight: "microseconds", Callchain: true,
		Period: true}
	write := func(name string) *bytes.Buffer {
		spec, err := ByName(name)
		require.NoError(t, err)
		format := spec.New(Options{})
		w := format.Worker()
		one := &frame.Frame{Name: "wait"}
		w.Render(one)
		w.Add(nil, &Sample{Comm: "x", Event: event, Frames: []*frame.Frame{one}, Count: 3, End: unwind.Outermost,
			Period: 7_000_000, Weight: 7000})
		var out bytes.Buffer
		require.NoError(t, format.Finish(&out, &Recording{Events: []*Event{event}}))
		return &out
	}
	assert.Contains(t, write("folded").String(), "x;wait 7000\n")
	assert.Contains(t, write("svg").String(), "7,000 microseconds")
	p, err := profile.Parse(write("pprof"))
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 7_000_000}, p.Sample[0].Value)
	assert.Equal(t, "count", p.SampleType[0].Unit)
	assert.Equal(t, "nanoseconds", p.SampleType[1].Unit)
}
