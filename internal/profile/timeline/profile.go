package timeline

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"
)

// profile is the whole file. The types have the names and the order of src/types/profile.ts. A table has a list for
// each column; a row is the same index in all of them. A null where the viewer wants a list makes it fail, so lists
// are made empty.
type profile struct {
	Meta    meta            `json:"meta"`
	Libs    []lib           `json:"libs"`
	Shared  shared          `json:"shared"`
	Threads []profileThread `json:"threads"`
}

// meta says how the samples were taken, and how viewers should show them.
type meta struct {
	Interval    float64 `json:"interval"`  // ms, as all times
	StartTime   float64 `json:"startTime"` // ms since 1970; 0: not known
	ProcessType int     `json:"processType"`
	// Colours of frames; frameTable refers to them.
	Categories                 []category `json:"categories"`
	Product                    string     `json:"product"`
	Stackwalk                  int        `json:"stackwalk"` // 1: stacks are walked
	Version                    int        `json:"version"`
	PreprocessedProfileVersion int        `json:"preprocessedProfileVersion"`
	Arguments                  string     `json:"arguments,omitempty"` // command of the recording
	// Names are in the file: viewers need not ask for symbols.
	Symbolicated               bool   `json:"symbolicated"`
	MarkerSchema               []int  `json:"markerSchema"` // of markers, which are not used
	ImportedFrom               string `json:"importedFrom"`
	UsesOnlyOneStackType       bool   `json:"usesOnlyOneStackType"`
	SourceCodeIsNotOnSearchfox bool   `json:"sourceCodeIsNotOnSearchfox"`
	SampleUnits                units  `json:"sampleUnits"`
}

// units are those of samples' times and CPU deltas.
type units struct {
	Time           string `json:"time"`
	EventDelay     string `json:"eventDelay"`
	ThreadCPUDelta string `json:"threadCPUDelta"`
}

// lib is an object file.
type lib struct {
	Arch       string `json:"arch"`
	Name       string `json:"name"`
	Path       string `json:"path"`
	DebugName  string `json:"debugName"`
	DebugPath  string `json:"debugPath"`
	BreakpadID string `json:"breakpadId"` // empty: Breakpad's id is not known
	CodeID     string `json:"codeId"`     // build-id, hexadecimal
}

// shared holds the tables that all threads use.
type shared struct {
	StackTable    stackTable    `json:"stackTable"`
	FrameTable    frameTable    `json:"frameTable"`
	FuncTable     funcTable     `json:"funcTable"`
	ResourceTable resourceTable `json:"resourceTable"`
	NativeSymbols nativeSymbols `json:"nativeSymbols"`
	StringArray   []string      `json:"stringArray"` // all texts; other tables refer to them by index
	Sources       sources       `json:"sources"`
}

// stackTable has a row for each stack: a frame, and the stack below it.
type stackTable struct {
	Frame []int `json:"frame"`
	// Index of the caller's stack, which is a smaller one.
	Prefix []*int `json:"prefix"` // null: none
	Length int    `json:"length"`
}

// frameTable has a row for each function at a place.
type frameTable struct {
	Address       []int  `json:"address"`     // -1: no address is given
	InlineDepth   []int  `json:"inlineDepth"` // 0: not inlined
	Category      []int  `json:"category"`
	Subcategory   []int  `json:"subcategory"`
	Func          []int  `json:"func"`
	NativeSymbol  []*int `json:"nativeSymbol"`
	InnerWindowID []*int `json:"innerWindowID"`
	Line          []*int `json:"line"` // null: not known
	Column        []*int `json:"column"`
	Length        int    `json:"length"`
}

// funcTable has a row for each function of a library and source file.
type funcTable struct {
	Name          []int  `json:"name"` // index in stringArray
	IsJS          []bool `json:"isJS"`
	RelevantForJS []bool `json:"relevantForJS"`
	Resource      []int  `json:"resource"` // -1: none
	Source        []*int `json:"source"`   // index in sources
	LineNumber    []*int `json:"lineNumber"`
	ColumnNumber  []*int `json:"columnNumber"`
	Length        int    `json:"length"`
}

// resourceTable has a row for each object that functions come from.
type resourceTable struct {
	Length int    `json:"length"`
	Lib    []int  `json:"lib"`
	Name   []int  `json:"name"`
	Host   []*int `json:"host"`
	Type   []int  `json:"type"` // 1: a library
}

// nativeSymbols would hold symbols of machine code; it stays empty.
type nativeSymbols struct {
	LibIndex     []int `json:"libIndex"`
	Address      []int `json:"address"`
	Name         []int `json:"name"`
	FunctionSize []int `json:"functionSize"`
	Length       int   `json:"length"`
}

// sources has a row for each source file.
type sources struct {
	Length   int    `json:"length"`
	UUID     []*int `json:"uuid"`
	Filename []int  `json:"filename"` // index in stringArray
}

// profileThread is a track: a thread's samples of one event.
type profileThread struct {
	ProcessType         string   `json:"processType"`
	ProcessStartupTime  float64  `json:"processStartupTime"`
	ProcessShutdownTime *float64 `json:"processShutdownTime"`
	RegisterTime        float64  `json:"registerTime"`
	UnregisterTime      *float64 `json:"unregisterTime"` // null: up to the end
	PausedRanges        []int    `json:"pausedRanges"`
	Name                string   `json:"name"`
	IsMainThread        bool     `json:"isMainThread"`
	ProcessName         string   `json:"processName"`
	PID                 string   `json:"pid"` // text: a PID that was used again may have a suffix
	TID                 int32    `json:"tid"`
	Samples             samples  `json:"samples"`
	Markers             markers  `json:"markers"`
}

// samples has a row for each sample, ascending in time.
type samples struct {
	Stack      []*int    `json:"stack"`  // null: without a stack
	Time       []float64 `json:"time"`   // ms from the first sample of the recording
	Weight     []float64 `json:"weight"` // samples, or ms for "tracing-ms"
	WeightType string    `json:"weightType"`
	CPU        []uint64  `json:"threadCPUDelta,omitempty"` // ns on the processor
	Length     int       `json:"length"`
}

// markers stays empty; viewers want the lists all the same.
type markers struct {
	Data      []int `json:"data"`
	Name      []int `json:"name"`
	StartTime []int `json:"startTime"`
	EndTime   []int `json:"endTime"`
	Phase     []int `json:"phase"`
	Category  []int `json:"category"`
	Length    int   `json:"length"`
}

// Versions of the formats: of Firefox's own profiles, and of processed ones.
const (
	geckoVersion     = 31
	processedVersion = 60
)

// mainNames returns the names of processes: of their main threads, or of the first that has samples. order has threads
// of a process together.
func mainNames(r *stackfmt.Recording, order []thread, tracks map[thread]*track) map[int32]string {
	mains := make(map[int32]string)
	for _, key := range order {
		name, known := mains[key.pid]
		if !known && r.Process != nil {
			name = r.Process(key.pid)
		}
		if name == "" || key.pid == key.tid {
			name = tracks[key].comm
		}
		mains[key.pid] = name
	}
	return mains
}

// writeFirefox writes the profile, compressed, as the suffix .json.gz says. Every track must have a sample.
func writeFirefox(out io.Writer, r *stackfmt.Recording, all *stacks, order []thread, tracks map[thread]*track) error {
	p := profile{Meta: metaOf(r), Libs: []lib{}, Threads: []profileThread{}}
	newTables(&p).fill(all)
	start, mains, several := ^uint64(0), mainNames(r, order, tracks), false
	// Times count from the first sample of all threads.
	for _, key := range order {
		start = min(start, tracks[key].samples[0].time)
		several = several || key.event != order[0].event
	}
	for _, key := range order {
		t := threadOf(key, tracks[key], start)
		t.ProcessName = mains[key.pid]
		// Several events give a thread several tracks, told apart by name.
		if several {
			t.Name += " (" + key.event.Name + ")"
		}
		p.Threads = append(p.Threads, t)
	}
	zip := gzip.NewWriter(out)
	if err := json.NewEncoder(zip).Encode(&p); err != nil {
		return err
	}
	return zip.Close()
}

// metaOf returns the head of the profile, with the interval of the first event that is a clock, else 1 ms: the viewer
// draws each sample as wide as that.
func metaOf(r *stackfmt.Recording) meta {
	m := meta{Interval: 1, Categories: categories(), Product: "perf", Stackwalk: 1, Version: geckoVersion,
		PreprocessedProfileVersion: processedVersion,
		Arguments:                  strings.Join(r.Command, " "), Symbolicated: true, MarkerSchema: []int{}, ImportedFrom: "ehasm",
		UsesOnlyOneStackType: true, SourceCodeIsNotOnSearchfox: true, SampleUnits: units{"ms", "ms", "ns"}}
	if len(r.Command) > 0 {
		m.Product = filepath.Base(r.Command[0])
	}
	if !r.Start.IsZero() {
		m.StartTime = float64(r.Start.UnixMilli())
	}
	for _, e := range r.Events {
		if isClock(e) && e.Every > 0 {
			m.Interval = float64(e.Every) / float64(time.Millisecond)
			break
		}
	}
	return m
}

// threadOf returns the samples of a track, their times relative to start.
func threadOf(key thread, t *track, start uint64) profileThread {
	p := profileThread{ProcessType: "default", PausedRanges: []int{}, Name: t.comm, IsMainThread: key.pid == key.tid,
		PID: strconv.Itoa(int(key.pid)), TID: key.tid,
		Markers: markers{Data: []int{}, Name: []int{}, StartTime: []int{}, EndTime: []int{}, Phase: []int{},
			Category: []int{}}}
	s := &p.Samples
	s.WeightType, s.Length = "samples", len(t.samples)
	for _, one := range t.samples {
		s.Stack = append(s.Stack, optional(one.stack))
		s.Time = append(s.Time, float64(one.time-start)/float64(time.Millisecond))
		weight := float64(one.count)
		// Time off the processor: the weight is its duration.
		if isBlocked(key.event) {
			weight, s.WeightType = float64(one.spent)/float64(time.Millisecond), "tracing-ms"
		}
		s.Weight = append(s.Weight, weight)
		if isClock(key.event) {
			s.CPU = append(s.CPU, one.spent)
		}
	}
	p.RegisterTime = s.Time[0]
	p.ProcessStartupTime = s.Time[0]
	return p
}

// optional returns null for -1.
func optional(n int32) *int {
	if n < 0 {
		return nil
	}
	i := int(n)
	return &i
}

// tables fills the shared tables of a profile.
// Keys of the maps are what makes an entry distinct.
type tables struct {
	p         *profile
	strings   map[string]int
	resources map[[2]string]int
	funcs     map[function]int
	sources   map[string]int
}

// function is the key of funcTable: indexes of name, resource and source, -1 for none.
type function struct{ name, resource, source int }

// newTables returns empty tables. Lists must not be null in JSON.
func newTables(p *profile) *tables {
	n := &p.Shared.NativeSymbols
	n.LibIndex, n.Address, n.Name, n.FunctionSize = []int{}, []int{}, []int{}, []int{}
	p.Shared.Sources = sources{UUID: []*int{}, Filename: []int{}}
	return &tables{p: p, strings: make(map[string]int), resources: make(map[[2]string]int), funcs: make(map[function]int),
		sources: make(map[string]int)}
}

// fill adds all frames and stacks.
func (t *tables) fill(all *stacks) {
	frames, list := &t.p.Shared.FrameTable, &t.p.Shared.StackTable
	for i := range all.nodes {
		n := &all.nodes[i]
		frames.Address = append(frames.Address, -1)
		frames.InlineDepth = append(frames.InlineDepth, n.depth)
		frames.Category = append(frames.Category, n.category)
		frames.Subcategory = append(frames.Subcategory, 0)
		frames.Func = append(frames.Func, t.function(n))
		frames.NativeSymbol = append(frames.NativeSymbol, nil)
		frames.InnerWindowID = append(frames.InnerWindowID, nil)
		// A line without a file would mislead.
		line := int32(n.source.Line)
		if n.source.File == "" {
			line = -1
		}
		frames.Line = append(frames.Line, optional(line))
		frames.Column = append(frames.Column, nil)
	}
	frames.Length = len(all.nodes)
	// Callers come before those they call, so their indexes exist.
	for _, c := range all.list {
		list.Frame = append(list.Frame, int(c.node))
		list.Prefix = append(list.Prefix, optional(c.caller))
	}
	list.Length = len(all.list)
}

// text returns the index of a string. JSON is UTF-8; names in files need not be.
func (t *tables) text(s string) int {
	i, ok := t.strings[s]
	if !ok {
		i = len(t.strings)
		t.strings[s] = i
		t.p.Shared.StringArray = append(t.p.Shared.StringArray, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return i
}

// function returns the index of a node's function.
func (t *tables) function(n *node) int {
	key := function{t.text(n.name), -1, -1}
	if n.library != "" {
		key.resource = t.resource(n.library, n.buildID)
	}
	if n.source.File != "" {
		key.source = t.source(n.source.File)
	}
	i, ok := t.funcs[key]
	if !ok {
		f := &t.p.Shared.FuncTable
		i = f.Length
		t.funcs[key] = i
		f.Name = append(f.Name, key.name)
		f.IsJS = append(f.IsJS, false)
		f.RelevantForJS = append(f.RelevantForJS, false)
		f.Resource = append(f.Resource, key.resource)
		f.Source = append(f.Source, optional(int32(key.source)))
		f.LineNumber = append(f.LineNumber, nil)
		f.ColumnNumber = append(f.ColumnNumber, nil)
		f.Length++
	}
	return i
}

// resource returns the number of the resource for an object: a library.
func (t *tables) resource(path, buildID string) int {
	const library = 1 // ResourceType
	key := [2]string{path, buildID}
	i, ok := t.resources[key]
	if !ok {
		r, name := &t.p.Shared.ResourceTable, filepath.Base(path)
		i = r.Length
		t.resources[key] = i
		r.Lib = append(r.Lib, len(t.p.Libs))
		r.Name = append(r.Name, t.text(name))
		r.Host = append(r.Host, nil)
		r.Type = append(r.Type, library)
		r.Length++
		// In the order of lib's fields.
		t.p.Libs = append(t.p.Libs, lib{"x86_64", name, path, name, path, "", hex.EncodeToString([]byte(buildID))})
	}
	return i
}

// source returns the index of a source file.
func (t *tables) source(file string) int {
	i, ok := t.sources[file]
	if !ok {
		s := &t.p.Shared.Sources
		i = s.Length
		t.sources[file] = i
		s.UUID = append(s.UUID, nil)
		s.Filename = append(s.Filename, t.text(file))
		s.Length++
	}
	return i
}
