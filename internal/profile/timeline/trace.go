package timeline

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"
)

// TraceSpec describes Chrome's Trace Event Format, in which samples refer to a dictionary of frames with their callers.
func TraceSpec() *stackfmt.Spec {
	return &stackfmt.Spec{Name: "trace", Suffixes: []string{".trace.json"}, Samples: true, Settings: []string{"lines"},
		View: "a timeline: open FILE at https://www.speedscope.app",
		New:  func(stackfmt.Options) stackfmt.Format { return &timeline{write: writeTrace} }}
}

// The types have the names of the format's description, "Trace Event Format", section "JSON Object Format".
// traceName is an event that names a process or thread.
type traceName struct {
	Phase string            `json:"ph"` // M: metadata
	Name  string            `json:"name"`
	PID   int32             `json:"pid"`
	TID   int32             `json:"tid"`
	Time  int               `json:"ts"`
	Args  map[string]string `json:"args"`
}

// traceFrame is an entry of stackFrames.
type traceFrame struct {
	Category string `json:"category"`
	Name     string `json:"name"`
	Parent   string `json:"parent,omitempty"` // number of the caller's entry; "": outermost
}

// traceSample is an entry of samples.
type traceSample struct {
	Name   string      `json:"name"` // of the event
	PID    int32       `json:"pid"`
	TID    int32       `json:"tid"`
	CPU    *uint32     `json:"cpu,omitempty"`
	Time   json.Number `json:"ts"`     // us, of the recording's clock
	Frame  string      `json:"sf"`     // number of an entry of stackFrames
	Weight uint64      `json:"weight"` // samples, or us of a blocked thread
}

// noFrame is the number of the frame of samples without any.
const noFrame = "none"

// writeTrace writes the trace. Its samples are in the order of time.
func writeTrace(out io.Writer, r *stackfmt.Recording, all *stacks, order []thread, tracks map[thread]*track) error {
	w := &traceWriter{out: bufio.NewWriter(out)}
	// Times are shown in ms.
	w.text(`{"displayTimeUnit":"ms","traceEvents":[`)
	w.names(mainNames(r, order, tracks), order, tracks)
	w.text("\n],\n\"stackFrames\":{")
	w.frame(noFrame, traceFrame{categories()[other].Name, "[no stack]", ""})
	// A stack's number is its entry's; its caller has a smaller one.
	for i, c := range all.list {
		n := &all.nodes[c.node]
		f := traceFrame{categories()[n.category].Name, n.name, ""}
		if n.source.File != "" {
			f.Name = fmt.Sprintf("%s (%s:%d)", n.name, filepath.Base(n.source.File), n.source.Line)
		}
		if c.caller >= 0 {
			f.Parent = strconv.Itoa(int(c.caller))
		}
		w.frame(strconv.Itoa(i), f)
	}
	w.text("\n},\n\"samples\":[")
	// Viewers expect samples by time, over all threads.
	for _, at := range inOrder(order, tracks) {
		w.item(traceSampleOf(at.key, &tracks[at.key].samples[at.index]))
	}
	w.text("\n]}\n")
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

// traceSampleOf returns a sample as the trace has it. Times are us with three decimals, exact to
// the ns.
func traceSampleOf(key thread, s *sample) traceSample {
	const us = 1000
	t := traceSample{key.event.Name, key.pid, key.tid, nil, json.Number(fmt.Sprintf("%d.%03d", s.time/us, s.time%us)), noFrame, s.count}
	if key.event.CPU {
		t.CPU = &s.cpu
	}
	if isBlocked(key.event) {
		t.Weight = s.spent / us
	}
	if s.stack >= 0 {
		t.Frame = strconv.Itoa(int(s.stack))
	}
	return t
}

// place is a sample of a track.
type place struct {
	key   thread
	index int
	time  uint64
}

// inOrder returns the samples of all tracks by time.
func inOrder(order []thread, tracks map[thread]*track) (list []place) {
	for _, key := range order {
		for i, s := range tracks[key].samples {
			list = append(list, place{key, i, s.time})
		}
	}
	// Stable: samples at one time keep the order of tracks.
	slices.SortStableFunc(list, func(a, b place) int { return cmp.Compare(a.time, b.time) })
	return list
}

// traceWriter writes JSON, an item a line.
type traceWriter struct {
	out   *bufio.Writer
	first bool // the next item is the first of its list
	err   error
}

// text writes punctuation; a list begins after it.
func (w *traceWriter) text(s string) {
	w.out.WriteString(s) // Flush returns the error
	w.first = true
}

// names writes the names of processes and threads. A thread has a track for each event, which follow each other.
func (w *traceWriter) names(mains map[int32]string, order []thread, tracks map[thread]*track) {
	for i, key := range order {
		// order has the threads of a process next to each other.
		if i == 0 || order[i-1].pid != key.pid {
			w.item(traceName{"M", "process_name", key.pid, key.pid, 0, map[string]string{"name": mains[key.pid]}})
		}
		if i == 0 || order[i-1].pid != key.pid || order[i-1].tid != key.tid {
			w.item(traceName{"M", "thread_name", key.pid, key.tid, 0, map[string]string{"name": tracks[key].comm}})
		}
	}
}

// item writes an entry of a list.
func (w *traceWriter) item(v any) { w.named("", v) }

// frame writes an entry of the dictionary of frames.
func (w *traceWriter) frame(number string, f traceFrame) { w.named(strconv.Quote(number)+":", f) }

// named writes an entry, after a comma if it is not the first.
func (w *traceWriter) named(name string, v any) {
	if !w.first {
		w.out.WriteByte(',')
	}
	w.first = false
	b, err := json.Marshal(v)
	w.err = cmp.Or(w.err, err)
	w.out.WriteString("\n" + name)
	w.out.Write(b)
}
