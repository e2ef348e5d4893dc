//go:build linux && amd64

package record

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/unwind"
)

// InsideOptions are the settings of an Inside.
type InsideOptions struct {
	Period   uint64 // bytes of allocations between two samples, on average
	MaxStack int
	Objects  *unwind.Objects
}

// Inside is a recording of allocations that libehunwind-record makes inside the programs. While they run, only
// the build-ids of their mappings need to be read, which are gone when a process is.
type Inside struct {
	opt     InsideOptions
	region  *region
	began   time.Time
	tracker *tracker
	comms   comms
	known   map[spaceKey]*unwind.Maps
	text    map[spaceKey][]byte        // of mappings, in the order of chunks
	seen    map[uint64]map[uint64]bool // chunks that were looked at, by window
	polls   uint64
	refused []Refused
	kept    int    // bytes of text
	mapped  int    // mappings so far
	leftOut uint64 // of them, beyond mostMapped or mostKnown
}

// spaceKey is what processes of a window have mapped at some time.
type spaceKey struct{ window, generation uint64 }

// NewInside makes the memory that is shared with the programs.
func NewInside(opt InsideOptions) (*Inside, error) {
	r, err := newRegion(opt.Period, opt.MaxStack)
	if err != nil {
		return nil, err
	}
	return &Inside{opt: opt, region: r, began: time.Now(), tracker: newTracker(opt.Objects),
		known: make(map[spaceKey]*unwind.Maps), text: make(map[spaceKey][]byte), seen: make(map[uint64]map[uint64]bool)}, nil
}

// Environ returns the environment variable that tells the library in a program where
// the memory is.
func (in *Inside) Environ() string {
	filters, _ := strconv.ParseUint(procfs.Status(int32(os.Getpid()))["Seccomp_filters"], 10, 32)
	return fmt.Sprintf("EHASM_RECORD=%s:%x:%x", in.region.path(), in.region.token, filters)
}

// Stop makes the programs take no more samples. They still count when sampled objects are
// freed.
func (in *Inside) Stop() error { return in.region.stop() }

// Close forgets all.
func (in *Inside) Close() {
	in.region.close()
	in.tracker.files.Close()
}

// Poll looks up what processes have mapped, while they exist. Call it from time to time.
func (in *Inside) Poll() error {
	const often, seldom = 256, 16 // all but the newest windows are looked at every sixteenth time
	in.polls++
	in.takeRefusals()
	taken, err := in.region.taken()
	for w := range taken {
		if err == nil && (taken-w <= often || (w+in.polls)%seldom == 0) {
			err = in.pollWindow(w)
		}
	}
	return err
}

// takeRefusals keeps at most as many as there may be processes.
func (in *Inside) takeRefusals() {
	const most = 1 << 15
	in.refused = append(in.refused, in.region.refusals()...)
	in.refused = in.refused[:min(len(in.refused), most)]
}

// pollWindow does so for one window.
func (in *Inside) pollWindow(w uint64) error {
	seen := in.seen[w]
	if seen == nil {
		seen = make(map[uint64]bool)
		in.seen[w] = seen
	}
	head, err := in.region.window(w)
	if err != nil || uint64(len(seen)) >= head.Next {
		return err
	}
	list, err := in.region.chunksWritten(w, head.Next)
	if err != nil {
		return err
	}
	changed := make(map[spaceKey]uint32)
	for _, i := range list {
		if seen[i] {
			continue
		}
		h, text, ok := in.region.chunk(w, i)
		if ok {
			seen[i] = true
		}
		k := spaceKey{w, h.Generation}
		if ok && h.Kind == chunkMaps && len(in.text[k])+len(text) <= mostText && in.kept < mostKept {
			in.kept += len(text)
			in.text[k] = append(in.text[k], text...)
			changed[k] = h.PID
		}
	}
	for k, pid := range changed {
		in.known[k] = in.mappings(int32(pid), in.text[k])
	}
	return nil
}

// userEnd is where the address space of programs ends at the latest: with 5-level paging,
// Documentation/arch/x86/x86_64/mm.rst.
const userEnd = 1 << 56

// Bounds on what programs say that they have mapped.
const (
	// bytes of /proc/PID/maps: a process has 65,530 mappings, if vm.max_map_count is Linux's default
	mostText   = 16 << 20
	mostKept   = 256 << 20 // the same, of all processes
	mostMapped = 1 << 18   // executable mappings of all processes
	mostKnown  = 1 << 14   // files
)

// mappings makes an address space of the text of /proc/PID/maps.
func (in *Inside) mappings(pid int32, text []byte) *unwind.Maps {
	var space unwind.Space
	for line := range strings.Lines(string(text)) {
		m, ok := procfs.ParseMapping(strings.TrimSuffix(line, "\n"))
		if !ok || !m.Exec || m.End > userEnd {
			continue
		}
		if in.mapped++; in.mapped > mostMapped || len(in.tracker.files.Known) > mostKnown {
			in.leftOut++
			continue
		}
		o := in.tracker.files.Mapped(in.tracker.origin(pid), &m, nil)
		space.Map(m.Start, m.End-m.Start, m.Offset, o)
	}
	return space.Maps()
}

// InsideCounts holds what an Inside counts besides stacks, over all processes.
type InsideCounts struct {
	Processes int     `json:"processes"`
	OwnMalloc int     `json:"processes_with_own_malloc"`
	Taken     uint64  `json:"samples_taken"`
	NoRoom    uint64  `json:"samples_without_room"`
	NoLive    uint64  `json:"samples_not_followed"`
	Refused   uint64  `json:"chunks_refused"`
	Declined  uint64  `json:"programs_with_low_limits"`
	Damaged   uint64  `json:"damaged_records"`
	NoElf     uint64  `json:"objects_without_eh_elf"`
	Objects   float64 `json:"objects_allocated"`
	Bytes     float64 `json:"bytes_allocated"`
	LiveObj   float64 `json:"objects_live"`
	LiveBytes float64 `json:"bytes_live"`

	NotRecorded []Refused `json:"not_recorded,omitempty"`
}

// heapEvents returns the two events of allocations.
func heapEvents(period uint64) (total, live *Event) {
	return &Event{Name: "alloc", kind: "alloc_space", objects: "alloc_objects", unit: "bytes", every: period},
		&Event{Name: "inuse", kind: "inuse_space", objects: "inuse_objects", unit: "bytes", every: period}
}

// Heap returns what was allocated so far, as two parts of a profile, or the part that
// view selects.
func (in *Inside) Heap(view HeapView) (*Profile, error) {
	totalEvent, liveEvent := heapEvents(in.opt.Period)
	total, live := in.newProfile(totalEvent), in.newProfile(liveEvent)
	counts, err := in.read(func(st *Stack, maps *unwind.Maps, s *stackHeader, pcs []uint64, guesses []int) bool {
		if total.full() || live.full() {
			return false
		}
		if view != HeapLive {
			total.add(st, maps, s.Objects, s.Bytes, pcs, guesses)
		}
		if view != HeapTotal {
			live.add(st, maps, s.Objects-s.FreedObjects, s.Bytes-s.FreedBytes, pcs, guesses)
		}
		return true
	}, total)
	if err != nil {
		return nil, err
	}
	live.Counts, live.Comms, live.Inside = total.Counts, total.Comms, counts
	total.Inside = counts
	switch view {
	case HeapLive:
		live.Weigh = 1
		return live, nil
	case HeapTotal:
		total.Weigh = 1
		return total, nil
	}
	live.Older = []*Profile{total}
	return live, nil
}

// HeapView selects parts of a heap profile.
type HeapView int

// The values of HeapView.
const (
	HeapBoth  HeapView = iota
	HeapLive           // what is there
	HeapTotal          // what was allocated, freed or not
)

func (in *Inside) newProfile(e *Event) *Profile {
	return &Profile{Table: newTable(), Event: e.stackfmt(0), Start: in.began, Duration: time.Since(in.began),
		Objects: in.opt.Objects}
}

// full reports whether stacks have more frames than a program has places that allocate, and callers of these.
func (p *Profile) full() bool { return len(p.Table.frames) > 1<<18 || len(p.Table.nodes) > 1<<21 }

// add adds to a stack.
func (p *Profile) add(st *Stack, maps *unwind.Maps, objects, period uint64, pcs []uint64, guesses []int) {
	n := (objects + regionUnit/2) / regionUnit
	if n == 0 || period == 0 {
		return
	}
	words := append([]uint64{uint64(uintptr(unsafe.Pointer(maps))), uint64(st.Comm)<<32 | uint64(st.End),
		uint64(len(guesses))}, pcs...)
	h := p.Table.hash(words)
	id, ok := p.Table.index[h]
	if !ok {
		id = p.Table.insert(h, *st, maps, nil, pcs, guesses)
	}
	p.Table.Stacks[id].Count += n
	p.Table.Stacks[id].Period += period
}

// read reads all stacks, and counts them in p.
func (in *Inside) read(each func(*Stack, *unwind.Maps, *stackHeader, []uint64, []int) bool, p *Profile) (*InsideCounts,
	error) {
	windows, err := in.region.windowsWritten()
	if err != nil {
		return nil, err
	}
	c := &InsideCounts{}
	if c.Declined, err = in.region.word(regionDeclined); err != nil {
		return nil, err
	}
	c.Declined = min(c.Declined, mostCount)
	in.takeRefusals()
	c.NotRecorded = in.refused
	for _, w := range windows {
		if err := in.pollWindow(w); err != nil {
			return nil, err
		}
	}
	in.region.damaged = 0 // each is met again
	for _, w := range windows {
		if err := in.readWindow(w, c, p, each); err != nil {
			return nil, err
		}
	}
	c.Damaged = in.region.damaged + in.leftOut
	p.Counts.Samples = c.Taken
	p.Comms = in.comms.names
	return c, nil
}

// readWindow does so for one window.
func (in *Inside) readWindow(w uint64, c *InsideCounts, p *Profile, each func(*Stack, *unwind.Maps, *stackHeader,
	[]uint64, []int) bool) error {
	head, err := in.region.window(w)
	if err != nil {
		return err
	}
	c.Refused += min(head.Refused, mostCount)
	list, err := in.region.chunksWritten(w, head.Next)
	if err != nil {
		return err
	}
	processes := make(map[uint64]Stack) // by the number of the chunk: what its stacks have in common
	for _, i := range list {
		h, b, ok := in.region.chunk(w, i)
		if !ok || h.Kind == chunkMaps {
			continue
		}
		if h.Kind == chunkProcess {
			var ph processHeader
			ph, b = in.region.process(b)
			comm, _, _ := bytes.Cut(ph.Comm[:], []byte{0})
			processes[i] = Stack{Comm: in.comms.id(string(comm)), PID: int32(h.PID)}
			c.add(&ph)
		}
		process, ok := processes[h.Process]
		if !ok {
			in.region.damaged++
			continue
		}
		in.region.stacks(b, func(s *stackHeader, pcs []uint64) {
			if c.Bytes+float64(s.Bytes) > mostSum || c.Objects+float64(s.Objects)/regionUnit > mostSum {
				in.region.damaged++
				return
			}
			maps := in.known[spaceKey{w, s.Generation}]
			if maps == nil {
				maps = new(unwind.Maps)
			}
			st := process
			st.Comm = in.comms.id(maps.Name(in.comms.names[st.Comm]))
			st.End = insideEnd(s, maps, pcs)
			var guesses []int
			if s.Guessed != 0 {
				guesses = []int{len(pcs) - 1}
			}
			pcs[0]-- // of an allocation it is a return address, too
			if !each(&st, maps, s, pcs, guesses) {
				c.NoRoom++
				return
			}
			p.Counts.count(st.End, s)
			c.Objects += float64(s.Objects) / regionUnit
			c.Bytes += float64(s.Bytes)
			c.LiveObj += float64(s.Objects-s.FreedObjects) / regionUnit
			c.LiveBytes += float64(s.Bytes - s.FreedBytes)
		})
	}
	return nil
}

// mostSum is what all stacks may count: formats have signed numbers.
const mostSum = 1 << 62

// insideEnd returns why a walk of libehunwind ended at the last of some program counters.
func insideEnd(s *stackHeader, maps *unwind.Maps, pcs []uint64) unwind.Cause {
	switch abi.Status(s.End) {
	case abi.StatusOK:
		return unwind.Full
	case abi.StatusOutermost:
		if s.Guessed != 0 {
			return unwind.OutermostGuessed
		}
		return unwind.Outermost
	case abi.StatusUnreadable:
		return unwind.Unreadable
	case abi.StatusBadRegister:
		return unwind.BadRegister
	case abi.StatusNotCompiled:
		return unwind.NotCompiled
	case abi.StatusNoInfo:
		if n := len(pcs); n > 1 && maps.StartsAt(pcs[n-1]) { // the dynamic loader's, say, which calls constructors
			return unwind.Outermost
		}
		return unwind.NoInfo
	}
	return unwind.NoMapping
}

func (c *InsideCounts) add(h *processHeader) {
	c.Processes++
	c.OwnMalloc += int(h.OwnMalloc)
	c.Taken += h.Taken
	c.NoRoom += h.NoRoom
	c.NoLive += h.NoLive
	c.NoElf += h.Objects - min(h.Objects, h.EhElfs)
}

// count adds a stack with its estimated number of occurrences.
func (c *Counts) count(end unwind.Cause, s *stackHeader) {
	c.Unwound++
	c.Frames += uint64(s.Frames)
	c.Ends[end]++
	if s.Guessed != 0 {
		c.Guessed++
	}
}

// EndedIn returns the files in which stacks ended early.
func (p *Profile) EndedIn() []string {
	paths := make(map[string]bool)
	for i := range p.Table.Stacks {
		s := &p.Table.Stacks[i]
		if s.End == unwind.Outermost || s.End == unwind.Full {
			continue
		}
		for node := s.node; node != 0; node = p.Table.nodes[node].parent {
			if p.Table.nodes[node].parent != 0 && s.End != unwind.OutermostGuessed {
				continue
			}
			if o := p.Table.frames[p.Table.nodes[node].frame].Mapping.Object; o != nil && o.IsFile() && o.Path() != "" {
				paths[o.Path()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// insideText describes what was found.
func (p *Profile) insideText() string {
	c, n := p.Inside, &p.Counts
	var b strings.Builder
	if c.Bytes > 0 {
		fmt.Fprintf(&b, "%s allocated in %s objects; %s in %s of them live\n", amount(c.Bytes), amount0(c.Objects),
			amount(c.LiveBytes), amount0(c.LiveObj))
		if c.Taken < fewSamples {
			fmt.Fprintf(&b, "  these figures rest on few samples (%d) and may well be %.0f %% off; a lower --period takes more\n", c.Taken, 100/math.Sqrt(float64(max(c.Taken, 1))))
		}
	}
	number := stackfmt.Number
	fmt.Fprintf(&b, "%s in %.1f s of %s, %s, %.1f frames each\n", number(c.Taken, "sample"), p.Duration.Seconds(),
		number(uint64(c.Processes), "process"), number(n.Unwound, "distinct stack"),
		float64(n.Frames)/float64(max(n.Unwound, 1)))
	for cause := range unwind.NumCauses {
		stackfmt.SummaryLine(&b, cause.String(), n.Ends[cause], n.Unwound, " of the stacks")
	}
	for _, l := range []struct {
		n    uint64
		text string
	}{
		{uint64(c.OwnMalloc), "processes with their own malloc, which is not recorded"},
		{c.NoRoom + c.Refused, "samples without room"},
		{c.NoLive, "samples that could not be followed, and count as freed"},
		{c.Declined, "programs that were not recorded, as their limits (ulimit -v, -d) leave no room, a seccomp filter was there first, or too many ran"},
		{c.Damaged, "damaged records that were left out, as a program has written to the recorder's memory"},
		{c.NoElf, "objects without an eh_elf in the cache (stacks that end there are whole the next time)"},
	} {
		if l.n > 0 {
			fmt.Fprintf(&b, "  %s: %d\n", l.text, l.n)
		}
	}
	return b.String()
}

// fewSamples is how many samples have a standard deviation of a tenth.
const fewSamples = 100

// amount formats a number of bytes for people.
func amount(bytes float64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	i := 0
	for ; bytes >= 1000 && i < len(units)-1; i++ {
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g %s", bytes, units[i])
}

// amount0 returns a number that is known about.
func amount0(n float64) string { return fmt.Sprintf("%.0f", math.Round(n)) }
