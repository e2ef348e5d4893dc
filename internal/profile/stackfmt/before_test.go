package stackfmt

import (
	"bytes"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBefore compares two recordings, of programs with different names; events that record --raw adds are not in the
// title.
func TestBefore(t *testing.T) {
	add := func(f Format, program string, names ...string) {
		w := f.Worker()
		for _, name := range names {
			one := &frame.Frame{Name: name, DSO: "/bin/" + program}
			w.Render(one)
			w.Add(nil, &Sample{Comm: "prog", Frames: []*frame.Frame{one}, End: unwind.Outermost})
		}
	}
	before := svgSpec().New(Options{})
	add(before, "v1", "parse", "write", "write", "write")
	after := svgSpec().New(Options{Graph: GraphOptions{Before: before}})
	add(after, "v2", "parse", "parse", "write", "write")
	var svg bytes.Buffer
	require.NoError(t, after.Finish(&svg,
		&Recording{Command: []string{"v2"}, Events: []*Event{{Name: "cycles"}, {Name: "dummy"}, {Name: "cycles"}}}))
	assert.Contains(t, svg.String(), "<title>parse (2 samples, 50.00 %, before 25.00 %)</title>")
	assert.Contains(t, svg.String(), "<title>v2 (cycles)</title>")

	alone := svgSpec().New(Options{})
	add(alone, "v2", "parse")
	svg.Reset()
	require.NoError(t, alone.Finish(&svg, &Recording{}))
	assert.Contains(t, svg.String(), "<title>parse\nv2 (1 samples, 100.00 %)</title>")
}
