package timeline

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decoded is a profile as a viewer reads it: tables are checked by their users.
type decoded struct {
	Meta   map[string]any
	Libs   []map[string]any
	Shared struct {
		StackTable struct {
			Frame  []int
			Prefix []*int
			Length int
		}
		FrameTable    map[string]json.RawMessage
		FuncTable     map[string]json.RawMessage
		ResourceTable map[string]json.RawMessage
		Sources       map[string]json.RawMessage
		StringArray   []string
	}
	Threads []struct {
		Name, ProcessName, PID string
		TID                    int
		IsMainThread           bool
		Samples                struct {
			Stack          []*int
			Time           []float64
			Weight         []float64
			WeightType     string
			ThreadCPUDelta []int
			Length         int
		}
	}
}

func decode(t *testing.T, compressed io.Reader) (d decoded) {
	t.Helper()
	zip, err := gzip.NewReader(compressed)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(zip).Decode(&d))
	for _, table := range []map[string]json.RawMessage{d.Shared.FrameTable, d.Shared.FuncTable, d.Shared.ResourceTable,
		d.Shared.Sources} {
		for name, text := range table {
			if name != "length" {
				assert.Len(t, column[any](t, table, name), length(t, table), "%s: %s", name, text)
			}
		}
	}
	return d
}

func length(t *testing.T, table map[string]json.RawMessage) (n int) {
	require.NoError(t, json.Unmarshal(table["length"], &n))
	return n
}

func column[T any](t *testing.T, table map[string]json.RawMessage, name string) (list []T) {
	require.NoError(t, json.Unmarshal(table[name], &list), name)
	return list
}

// stack returns the names of a stack, outermost first, and the category of its innermost frame.
func (d *decoded) stack(t *testing.T, index *int) (names []string, category int) {
	funcs, categories := column[int](t, d.Shared.FrameTable, "func"), column[int](t, d.Shared.FrameTable, "category")
	name := column[int](t, d.Shared.FuncTable, "name")
	for i := index; i != nil; i = d.Shared.StackTable.Prefix[*i] {
		if parent := d.Shared.StackTable.Prefix[*i]; parent != nil {
			require.Less(t, *parent, *i, "parents come first")
		}
		f := d.Shared.StackTable.Frame[*i]
		if names == nil {
			category = categories[f]
		}
		names = append([]string{d.Shared.StringArray[name[funcs[f]]]}, names...)
	}
	return names, category
}

// TestTimeline: each sample of each thread is there at its time, with the stack that the folded text has.
func TestTimeline(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	clock := &stackfmt.Event{Name: "cpu-clock", Unit: "nanoseconds", Kind: "cpu", Every: 2e6, TID: true, Time: true,
		Callchain: true}
	folded, err := stackfmt.ByName("folded")
	require.NoError(t, err)
	formats := []stackfmt.Format{Spec().New(stackfmt.Options{}), folded.New(stackfmt.Options{})}
	var workers [2][2]stackfmt.Worker // by goroutine and format
	var frames [2][2][]*frame.Frame
	for i := range workers {
		for j, f := range formats {
			workers[i][j] = f.Worker()
			for k := range 30 {
				one := &frame.Frame{Name: fmt.Sprintf("f%d", k), DSO: fmt.Sprintf("/lib/%d.so", k%3), IP: uint64(k),
					Kernel: k%7 == 3, JIT: k%7 == 4}
				if k%5 == 0 {
					one.Inlined = []frame.Inlined{{Name: "inner", Source: frame.Source{File: "a.c", Line: 7}}, {Name: "middle"}}
				}
				workers[i][j].Render(one)
				frames[i][j] = append(frames[i][j], one)
			}
		}
	}
	for i := range 500 {
		w := i / 32 % 2
		var stack [2][]*frame.Frame
		for range 1 + rnd.IntN(6) {
			k := rnd.IntN(30)
			for j := range stack {
				stack[j] = append(stack[j], frames[w][j][k])
			}
		}
		for j := range formats {
			s := stackfmt.Sample{Comm: "prog", PID: 7, TID: int32(7 + i%3), Time: uint64(1e9 + i*1000), Period: 2e6,
				Event: clock,
				End:   unwind.Outermost, Frames: stack[j]}
			if i%9 == 0 {
				s.End = unwind.NoInfo
			}
			workers[w][j].Add(nil, &s)
		}
	}
	recording := &stackfmt.Recording{Command: []string{"/bin/prog", "x"}, Events: []*stackfmt.Event{clock}}
	var out, text bytes.Buffer
	require.NoError(t, formats[0].Finish(&out, recording))
	require.NoError(t, formats[1].Finish(&text, recording))
	again := out.String()
	d := decode(t, &out)
	require.Len(t, d.Threads, 3)
	lines := make(map[string]int)
	for i, th := range d.Threads {
		assert.Equal(t, []any{"prog", "prog", "7", 7 + i, i == 0}, []any{th.Name, th.ProcessName, th.PID, th.TID,
			th.IsMainThread})
		for k, index := range th.Samples.Stack {
			assert.InDelta(t, float64(3*k+i)/1000, th.Samples.Time[k], 1e-9, "ms since the first sample")
			assert.Equal(t, []int{1, 2e6}, []int{int(th.Samples.Weight[k]), th.Samples.ThreadCPUDelta[k]})
			names, _ := d.stack(t, index)
			lines["prog;"+strings.Join(names, ";")]++
		}
	}
	var got []string
	for line, n := range lines {
		got = append(got, fmt.Sprintf("%s %d", line, n))
	}
	sort.Strings(got)
	want := strings.NewReplacer("_[k]", "", "_[j]", "", "_[i]", "").Replace(strings.TrimSpace(text.String()))
	wanted := strings.Split(want, "\n")
	sort.Strings(wanted)
	assert.Equal(t, wanted, got)
	assert.Equal(t, float64(2), d.Meta["interval"])
	assert.Equal(t, "prog", d.Meta["product"])
	assert.Len(t, d.Libs, 3)
	var other bytes.Buffer
	require.NoError(t, formats[0].Finish(&other, recording))
	assert.Equal(t, again, other.String(), "equal bytes for equal samples")
}

// TestCategories: kinds of code can be told apart, as can callers that are guesses and stacks that are cut.
func TestCategories(t *testing.T) {
	event := &stackfmt.Event{Name: "faults"}
	second := &stackfmt.Event{Name: "cycles"}
	f := Spec().New(stackfmt.Options{})
	w := f.Worker()
	list := []*frame.Frame{{Name: "user", DSO: "/a"}, {Name: "kernel", DSO: "[kernel.kallsyms]", Kernel: true},
		{Name: "made", DSO: "/tmp/perf-1.map", JIT: true},
		{IP: 0x10, DSO: "/a", Source: frame.Source{File: "/src/a.c", Line: 3}}}
	for i, one := range list {
		w.Render(one)
		w.Add(nil, &stackfmt.Sample{PID: 1, TID: 1, Comm: "a", Time: uint64(i), Event: event, Frames: []*frame.Frame{one},
			End: unwind.Outermost})
	}
	w.Add(nil, &stackfmt.Sample{PID: 1, TID: 1, Time: 5, Event: event, Frames: list[:1], Guessed: []int{0},
		End: unwind.Outermost})
	w.Add(nil, &stackfmt.Sample{PID: 1, TID: 1, Comm: "a", Time: 6, Event: event, End: unwind.NoInfo})
	w.Add(nil, &stackfmt.Sample{PID: 1, TID: 1, Comm: "a", Time: 7, Event: second, End: stackfmt.NoUserStack})
	var out bytes.Buffer
	require.NoError(t, f.Finish(&out, &stackfmt.Recording{Events: []*stackfmt.Event{event, second}}))
	d := decode(t, &out)
	require.Len(t, d.Threads, 2)
	assert.Equal(t, []string{"a (faults)", "a (cycles)"}, []string{d.Threads[0].Name, d.Threads[1].Name})
	assert.Nil(t, d.Threads[1].Samples.Stack[0], "no frame")
	assert.Nil(t, d.Threads[0].Samples.ThreadCPUDelta, "faults are not time")
	var got []string
	for _, stack := range d.Threads[0].Samples.Stack {
		names, category := d.stack(t, stack)
		got = append(got, fmt.Sprint(names, " ", categories()[category].Name))
	}
	assert.Equal(t, []string{"[user] User", "[kernel] Kernel", "[made] Compiled at run time", "[0x10] User",
		"[user] Guessed", "[[truncated]] Other"}, got)
	assert.Equal(t, 1, length(t, d.Shared.Sources))
}

// TestProcessNames: a process has the name of its main thread, also where that has no sample.
func TestProcessNames(t *testing.T) {
	event := &stackfmt.Event{Name: "cycles"}
	f := Spec().New(stackfmt.Options{})
	w := f.Worker()
	for _, id := range [][2]int32{{1, 3}, {1, 2}, {5, 6}, {7, 8}, {7, 7}} {
		w.Add(nil, &stackfmt.Sample{PID: id[0], TID: id[1], Comm: fmt.Sprintf("worker-%d", id[1]), Event: event,
			End: stackfmt.NoUserStack})
	}
	var out bytes.Buffer
	require.NoError(t, f.Finish(&out, &stackfmt.Recording{Events: []*stackfmt.Event{event},
		Process: func(pid int32) string { return map[int32]string{1: "server", 7: "earlier"}[pid] }}))
	names := make(map[string]string) // of processes, by their numbers
	for _, th := range decode(t, &out).Threads {
		names[th.PID] = th.ProcessName
	}
	assert.Equal(t, map[string]string{"1": "server", "5": "worker-6", "7": "worker-7"}, names)
}

// TestBlocked: samples of blocked threads weigh their time, which is no processor time.
func TestBlocked(t *testing.T) {
	off := &stackfmt.Event{Name: "off-cpu", Kind: "blocked", Unit: "nanoseconds"}
	f := Spec().New(stackfmt.Options{})
	one := &frame.Frame{Name: "read", Kernel: true}
	f.Worker().Add(nil, &stackfmt.Sample{PID: 1, TID: 1, Period: 25e5, Event: off, Frames: []*frame.Frame{one},
		End: unwind.Outermost})
	var out bytes.Buffer
	require.NoError(t, f.Finish(&out, &stackfmt.Recording{Events: []*stackfmt.Event{off}}))
	d := decode(t, &out)
	s := d.Threads[0].Samples
	assert.Equal(t, []any{[]float64{2.5}, "tracing-ms", []int(nil)}, []any{s.Weight, s.WeightType, s.ThreadCPUDelta})
	_, category := d.stack(t, s.Stack[0])
	assert.Equal(t, "Off-CPU", categories()[category].Name)
}
