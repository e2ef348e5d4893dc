package stackfmt

import (
	"bytes"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSpecs wants each name and suffix to mean one format.
func TestSpecs(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range Specs() {
		got, err := ByName(s.Name)
		require.NoError(t, err)
		assert.Equal(t, s.Name, got.Name)
		for _, suffix := range s.Suffixes {
			assert.False(t, seen[suffix], suffix)
			seen[suffix] = true
			require.NotNil(t, ByPath("/x.y/a"+suffix))
			assert.Equal(t, s.Name, ByPath("/x.y/a"+suffix).Name)
		}
	}
	assert.Nil(t, ByPath("/x.svg/a"))
	assert.Nil(t, ByPath(""))
	_, err := ByName("xml")
	assert.ErrorContains(t, err, "want one of perf, folded, json, pprof, svg")
}

// TestHowToLook names the file in one piece, whatever it is called.
func TestHowToLook(t *testing.T) {
	assert.Equal(t, "look at it with: go tool pprof -http=: FILE.pb.gz", ByPath("x.pb.gz").HowToLook("FILE.pb.gz"))
	assert.Equal(t, "a flame graph: open it in a browser", ByPath("x.svg").HowToLook("x.svg"))
	assert.Equal(t, "written", ByPath("x.json").HowToLook("x.json"))
}

// TestAggregated has samples that stand for several, and a frame that is of no code, as
// what records without perf has them.
func TestAggregated(t *testing.T) {
	event := &Event{Name: "off-cpu", Kind: "off-cpu", Unit: "nanoseconds"}
	for format, want := range map[string]string{"folded": "a_b;[lost] 7\n",
		"svg":  "<title>[lost] (7 samples, 100.00 %)</title>",
		"json": `"count":7,"end":"outermost frame","frames":[{"ip":"0x0","sym":"[lost]","dso":""}]}`} {
		spec, err := ByName(format)
		require.NoError(t, err)
		f := spec.New(Options{})
		w := f.Worker()
		lost := &frame.Frame{Name: "[lost]"}
		w.Render(lost)
		out := bytes.NewBuffer(w.Add(nil, &Sample{Comm: "a b", Count: 7, Period: 700, Event: event,
			Frames: []*frame.Frame{lost}, End: unwind.Outermost}))
		require.NoError(t, f.Finish(out, &Recording{Events: []*Event{event}}))
		assert.Contains(t, out.String(), want)
	}
}

// TestNumber: one of a thing is no plural.
func TestNumber(t *testing.T) {
	assert.Equal(t, "1 sample", Number(1, "sample"))
	assert.Equal(t, "0 samples", Number(0, "sample"))
	assert.Equal(t, "1 process", Number(1, "process"))
	assert.Equal(t, "2 processes", Number(2, "process"))
}
