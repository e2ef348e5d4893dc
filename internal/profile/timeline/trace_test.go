package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type decodedTrace struct {
	TraceEvents []struct {
		Ph, Name string
		PID, TID int
		Args     struct{ Name string }
	}
	StackFrames map[string]struct{ Category, Name, Parent string }
	Samples     []struct {
		Name     string
		PID, TID int
		CPU      *int
		Ts       float64
		Sf       string
		Weight   int
	}
}

// stack returns the frames of a stack, outermost first, with their categories.
func (d *decodedTrace) stack(t *testing.T, at string) string {
	var names []string
	for at != "" {
		f, ok := d.StackFrames[at]
		require.True(t, ok, "frame %q", at)
		require.Less(t, len(names), len(d.StackFrames), "no loop")
		names = append([]string{f.Name + "/" + f.Category}, names...)
		at = f.Parent
	}
	return strings.Join(names, " ")
}

// TestTrace: samples of all threads and events are there in the order of time, and each of their stacks has all its callers.
func TestTrace(t *testing.T) {
	clock := &stackfmt.Event{Name: "cpu-clock", Unit: "nanoseconds", Kind: "cpu", CPU: true}
	off := &stackfmt.Event{Name: "off-cpu", Unit: "nanoseconds", Kind: "blocked"}
	f := TraceSpec().New(stackfmt.Options{})
	w := []stackfmt.Worker{f.Worker(), f.Worker()}
	main := &stackfmt.Frame{Name: "main", DSO: "/a"}
	work := &stackfmt.Frame{Name: "<work>", DSO: "/a", Source: stackfmt.Source{File: "/src/a.c", Line: 3}, Inlined: []stackfmt.Inlined{{Name: "in"}}}
	kernel := &stackfmt.Frame{Name: "read", Kernel: true}
	add := func(i int, tid int32, at uint64, e *stackfmt.Event, end unwind.Cause, guessed []int, frames ...*stackfmt.Frame) {
		w[i].Add(nil, &stackfmt.Sample{Comm: fmt.Sprint("t", tid), PID: 7, TID: tid, CPU: 2, Time: at, Event: e, Frames: frames, Guessed: guessed, End: end, Period: 7e6})
	}
	add(0, 8, 5001, clock, unwind.Outermost, nil, work, main)
	add(1, 7, 3000, clock, unwind.NoInfo, []int{1}, kernel, main)
	add(1, 7, 4000, off, unwind.Outermost, nil, kernel, main)
	add(1, 8, 2000, off, stackfmt.NoUserStack, nil)
	var out bytes.Buffer
	require.NoError(t, f.Finish(&out, &stackfmt.Recording{Events: []*stackfmt.Event{clock, off}}))
	var d decodedTrace
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	var names, samples []string
	for _, e := range d.TraceEvents {
		names = append(names, fmt.Sprint(e.Ph, " ", e.Name, " ", e.PID, " ", e.TID, " ", e.Args.Name))
	}
	assert.Equal(t, []string{"M process_name 7 7 t7", "M thread_name 7 7 t7", "M thread_name 7 8 t8"}, names)
	for _, s := range d.Samples {
		cpu := "-"
		if s.CPU != nil {
			cpu = fmt.Sprint(*s.CPU)
		}
		samples = append(samples, fmt.Sprint(s.Ts, " ", s.PID, " ", s.TID, " ", cpu, " ", s.Name, " ", s.Weight, " ", d.stack(t, s.Sf)))
	}
	assert.Equal(t, []string{
		"2 7 8 - off-cpu 7000 [no stack]/Other",
		"3 7 7 2 cpu-clock 1 [truncated]/Other main/Guessed read/Kernel",
		"4 7 7 - off-cpu 7000 main/Off-CPU read/Off-CPU",
		"5.001 7 8 2 cpu-clock 1 main/User <work> (a.c:3)/User in/User",
	}, samples)
	assert.Equal(t, "trace", stackfmt.ByPath("x.trace.json", Spec(), TraceSpec()).Name)
	assert.Equal(t, "json", stackfmt.ByPath("trace.json", Spec(), TraceSpec()).Name)
	require.NoError(t, f.Finish(&out, &stackfmt.Recording{}))
}

// TestTraceEmpty: without samples it is a trace, too.
func TestTraceEmpty(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, TraceSpec().New(stackfmt.Options{}).Finish(&out, &stackfmt.Recording{}))
	var d decodedTrace
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	assert.Empty(t, d.Samples)
}
