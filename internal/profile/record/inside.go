//go:build linux && amd64

package record

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// InsideOptions are the settings of an Inside.
type InsideOptions struct {
	Period   uint64 // bytes of allocations between two samples, on average
	MaxStack int
	Objects  *unwind.Objects
}

// Inside is a recording of allocations that libehunwind-record makes inside the programs. It holds the memory
// that the processes share with this one; runtime/record/record.h has its layout. While they run, only the build-ids of their mappings need to be read, which are gone when a process
// is.
type Inside struct {
	opt     InsideOptions
	file    *os.File
	token   uint64
	began   time.Time
	tracker *tracker
	spaces  *unwind.Processes
	known   map[spaceKey]*unwind.Maps
	seen    uint64 // chunks up to here have been looked at
	waiting []uint64
	text    map[spaceKey][]byte // of mappings, in the order of chunks
}

// spaceKey is what a process has mapped at some time.
type spaceKey struct{ process, generation uint64 }

// Layout of the shared memory: runtime/record/record.h.
const (
	insideMagic   = 0x6365726d73616865
	insideVersion = 1
	insideHead    = 4096
	insideChunk   = 1 << 18
	insideChunks  = 1 << 16
	insideLine    = 64
	insideUnit    = 1 << 16 // of objects

	insideNext    = 48 // offsets of ehr_region
	insideRefused = 56
	insideStop    = 64
)

type insideKind uint32

const (
	insideProcess insideKind = iota + 1
	insideStacks
	insideMaps
)

// insideHeader is struct ehr_region up to what changes.
type insideHeader struct {
	Magic, Version, Token, Period, MaxFrames, Chunks uint64
}

// insideChunkHeader is struct ehr_chunk.
type insideChunkHeader struct {
	Ready      uint64
	Kind       insideKind
	PID        uint32
	Process    uint64
	Used       uint64
	Generation uint64
	_          [3]uint64
}

// insideProcessHeader is struct ehr_process after its ehr_chunk.
type insideProcessHeader struct {
	Comm                             [16]byte
	OwnMalloc, Taken, NoRoom, NoLive uint64
	Objects, EhElfs                  uint64
	_                                [8]uint64
}

// insideStack is struct ehr_stack up to the addresses.
type insideStack struct {
	Ready        uint64
	Frames       uint32
	End          int16
	Guessed      uint8
	_            uint8
	Generation   uint64
	Objects      uint64
	Bytes        uint64
	FreedObjects uint64
	FreedBytes   uint64
	Hash         uint64
}

// NewInside makes the shared memory. It is a file without a name, which is gone when this process is.
func NewInside(opt InsideOptions) (*Inside, error) {
	fd, err := unix.MemfdCreate("ehasm-record", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	in := &Inside{opt: opt, file: os.NewFile(uintptr(fd), "memfd"), began: time.Now(), tracker: newTracker(opt.Objects), spaces: unwind.NewProcesses(),
		known: make(map[spaceKey]*unwind.Maps), text: make(map[spaceKey][]byte)}
	var random [8]byte
	rand.Read(random[:])
	in.token = binary.LittleEndian.Uint64(random[:]) | 1
	if err := in.file.Truncate(insideHead + insideChunks*insideChunk); err != nil {
		in.file.Close()
		return nil, err
	}
	var head bytes.Buffer
	binary.Write(&head, binary.LittleEndian, insideHeader{insideMagic, insideVersion, in.token, opt.Period, uint64(opt.MaxStack), insideChunks})
	if _, err := in.file.WriteAt(head.Bytes(), 0); err != nil {
		in.file.Close()
		return nil, err
	}
	return in, nil
}

// Environ returns the environment variable that tells the library in a program where
// the memory is.
func (in *Inside) Environ() string {
	return fmt.Sprintf("EHASM_RECORD=/proc/%d/fd/%d:%x", os.Getpid(), in.file.Fd(), in.token)
}

// Stop makes the programs take no more samples. They still count when sampled objects are
// freed.
func (in *Inside) Stop() error {
	_, err := in.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1), insideStop)
	return err
}

// Close forgets all.
func (in *Inside) Close() {
	in.file.Close()
	in.tracker.Close()
}

func (in *Inside) word(offset int64) (uint64, error) {
	var b [8]byte
	_, err := in.file.ReadAt(b[:], offset)
	return binary.LittleEndian.Uint64(b[:]), err
}

// head reads a chunk's header; false: it is not ready.
func (in *Inside) head(i uint64) (h insideChunkHeader, ok bool) {
	b := make([]byte, insideLine)
	if _, err := in.file.ReadAt(b, int64(insideHead+i*insideChunk)); err != nil {
		return h, false
	}
	binary.Read(bytes.NewReader(b), binary.LittleEndian, &h)
	return h, h.Ready == in.token && h.Used >= insideLine && h.Used <= insideChunk
}

// body reads a chunk after its header.
func (in *Inside) body(i uint64, h *insideChunkHeader) ([]byte, error) {
	b := make([]byte, h.Used-insideLine)
	_, err := in.file.ReadAt(b, int64(insideHead+i*insideChunk+insideLine))
	return b, err
}

// Poll looks up what processes have mapped, while they exist. Call it from time to time.
func (in *Inside) Poll() error {
	next, err := in.word(insideNext)
	if err != nil {
		return err
	}
	for ; in.seen < min(next, insideChunks); in.seen++ {
		in.waiting = append(in.waiting, in.seen)
	}
	changed := make(map[spaceKey]uint32)
	rest := in.waiting[:0]
	for _, i := range in.waiting {
		h, ok := in.head(i)
		switch {
		case !ok:
			rest = append(rest, i)
		case h.Kind == insideMaps:
			b, err := in.body(i, &h)
			if err != nil {
				return err
			}
			k := spaceKey{h.Process, h.Generation}
			in.text[k] = append(in.text[k], b...)
			changed[k] = h.PID
		}
	}
	in.waiting = rest
	for k, pid := range changed {
		in.known[k] = in.mappings(int32(pid), in.text[k])
	}
	return nil
}

// mappings makes an address space of the text of /proc/PID/maps.
func (in *Inside) mappings(pid int32, text []byte) *unwind.Maps {
	space := int32(in.tracker.newSpace())
	for line := range strings.Lines(string(text)) {
		m, ok := procfs.ParseMapping(strings.TrimSuffix(line, "\n"))
		if !ok || !m.Exec {
			continue
		}
		o := in.tracker.Mapped(in.tracker.origin(pid), &m, nil)
		in.spaces.Map(space, m.Start, m.End-m.Start, m.Offset, o)
	}
	return in.spaces.Process(space).Maps()
}

// InsideCounts holds what an Inside counts besides stacks, over all processes.
type InsideCounts struct {
	Processes int     `json:"processes"`
	OwnMalloc int     `json:"processes_with_own_malloc"`
	Taken     uint64  `json:"samples_taken"`
	NoRoom    uint64  `json:"samples_without_room"`
	NoLive    uint64  `json:"samples_not_followed"`
	Refused   uint64  `json:"chunks_refused"`
	NoElf     uint64  `json:"objects_without_eh_elf"`
	Objects   float64 `json:"objects_allocated"`
	Bytes     float64 `json:"bytes_allocated"`
	LiveObj   float64 `json:"objects_live"`
	LiveBytes float64 `json:"bytes_live"`
}

// heap are the two events of allocations.
func heapEvents(period uint64) (total, live *Event) {
	return &Event{Name: "alloc", kind: "alloc_space", objects: "alloc_objects", unit: "bytes", every: period},
		&Event{Name: "inuse", kind: "inuse_space", objects: "inuse_objects", unit: "bytes", every: period}
}

// Heap returns what was allocated so far, as two parts of a profile, or the part that
// view selects.
func (in *Inside) Heap(view HeapView) (*Profile, error) {
	totalEvent, liveEvent := heapEvents(in.opt.Period)
	total, live := in.newProfile(totalEvent), in.newProfile(liveEvent)
	counts, err := in.read(func(st *Stack, maps *unwind.Maps, s *insideStack, pcs []uint64, guesses []int) {
		total.add(st, maps, s.Objects, s.Bytes, pcs, guesses)
		live.add(st, maps, s.Objects-min(s.Objects, s.FreedObjects), s.Bytes-min(s.Bytes, s.FreedBytes), pcs, guesses)
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
	event := e.stackfmt()
	event.Every = e.every
	return &Profile{Table: newTable(), Event: event, Start: in.began, Duration: time.Since(in.began), Objects: in.opt.Objects}
}

// add adds to a stack.
func (p *Profile) add(st *Stack, maps *unwind.Maps, objects, period uint64, pcs []uint64, guesses []int) {
	n := (objects + insideUnit/2) / insideUnit
	if n == 0 || period == 0 {
		return
	}
	words := append([]uint64{uint64(uintptr(unsafe.Pointer(maps))), uint64(st.Comm)<<32 | uint64(st.End), uint64(len(guesses))}, pcs...)
	h := p.hash(words)
	id, ok := p.index[h]
	if !ok {
		id = p.insert(h, *st, maps, nil, pcs, guesses)
	}
	p.Stacks[id].Count += n
	p.Stacks[id].Period += period
}

// read reads all stacks, and counts them in p.
func (in *Inside) read(each func(*Stack, *unwind.Maps, *insideStack, []uint64, []int), p *Profile) (*InsideCounts, error) {
	if err := in.Poll(); err != nil {
		return nil, err
	}
	c := &InsideCounts{}
	var err error
	if c.Refused, err = in.word(insideRefused); err != nil {
		return nil, err
	}
	comms := make(map[uint64]uint32)
	for i := range in.seen {
		h, ok := in.head(i)
		if !ok || h.Kind == insideMaps {
			continue
		}
		b, err := in.body(i, &h)
		if err != nil {
			return nil, err
		}
		if h.Kind == insideProcess {
			var ph insideProcessHeader
			n, err := binary.Decode(b, binary.LittleEndian, &ph)
			if err != nil {
				return nil, fmt.Errorf("process %d: %w", h.PID, err)
			}
			b = b[n:]
			comm, _, _ := bytes.Cut(ph.Comm[:], []byte{0})
			comms[i] = in.tracker.commID(string(comm))
			c.add(&ph)
		}
		in.stacks(b, func(s *insideStack, pcs []uint64) {
			c.Objects += float64(s.Objects) / insideUnit
			c.Bytes += float64(s.Bytes)
			c.LiveObj += float64(s.Objects-min(s.Objects, s.FreedObjects)) / insideUnit
			c.LiveBytes += float64(s.Bytes - min(s.Bytes, s.FreedBytes))
			maps := in.known[spaceKey{h.Process, s.Generation}]
			if maps == nil {
				maps = new(unwind.Maps)
			}
			st := &Stack{Comm: comms[h.Process], PID: int32(h.PID), End: insideEnd(s, maps, pcs)}
			p.Counts.count(st.End, s)
			var guesses []int
			if s.Guessed != 0 {
				guesses = []int{len(pcs) - 1}
			}
			pcs[0]-- // of an allocation it is a return address, too
			each(st, maps, s, pcs, guesses)
		})
	}
	p.Counts.Samples = c.Taken
	p.Comms = in.tracker.comms
	return c, nil
}

// stacks yields the stacks of a chunk. It skips records still being written; records are aligned to cache lines.
func (in *Inside) stacks(b []byte, each func(*insideStack, []uint64)) {
	for len(b) >= insideLine {
		var s insideStack
		binary.Decode(b, binary.LittleEndian, &s)
		size := (insideLine + int(s.Frames)*word + insideLine - 1) / insideLine * insideLine
		if s.Ready != in.token || s.Frames == 0 || size > len(b) {
			b = b[insideLine:]
			continue
		}
		pcs := make([]uint64, s.Frames)
		for i := range pcs {
			pcs[i] = binary.LittleEndian.Uint64(b[insideLine+i*word:])
		}
		each(&s, pcs)
		b = b[size:]
	}
}

// insideEnd returns why a walk of libehunwind ended at the last of some program counters.
func insideEnd(s *insideStack, maps *unwind.Maps, pcs []uint64) unwind.Cause {
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

func (c *InsideCounts) add(h *insideProcessHeader) {
	c.Processes++
	c.OwnMalloc += int(h.OwnMalloc)
	c.Taken += h.Taken
	c.NoRoom += h.NoRoom
	c.NoLive += h.NoLive
	c.NoElf += h.Objects - min(h.Objects, h.EhElfs)
}

// count counts a stack of a table as so many as it was met, about.
func (c *Counts) count(end unwind.Cause, s *insideStack) {
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
	for i := range p.Stacks {
		s := &p.Stacks[i]
		if s.End == unwind.Outermost || s.End == unwind.Full {
			continue
		}
		for at := s.node; at != 0; at = p.nodes[at].parent {
			if p.nodes[at].parent != 0 && s.End != unwind.OutermostGuessed {
				continue
			}
			if o := p.frames[p.nodes[at].frame].Mapping.Object; o != nil && o.IsFile() && o.Path() != "" {
				paths[o.Path()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

// ErrNothing is returned if no process has the library.
var ErrNothing = errors.New("no process took the library: programs without a dynamic loader, or of another user, cannot be recorded this way")

// insideText describes what was found.
func (p *Profile) insideText() string {
	c, n := p.Inside, &p.Counts
	var b strings.Builder
	if c.Bytes > 0 {
		fmt.Fprintf(&b, "%s allocated in %s objects; %s in %s of them live\n", amount(c.Bytes), amount0(c.Objects), amount(c.LiveBytes), amount0(c.LiveObj))
		if c.Taken < fewSamples {
			fmt.Fprintf(&b, "  these figures rest on few samples (%d) and may well be %.0f %% off; a lower --alloc-period takes more\n", c.Taken, 100/math.Sqrt(float64(c.Taken)))
		}
	}
	fmt.Fprintf(&b, "%d samples in %.1f s of %d processes, %d distinct stacks, %.1f frames each\n", c.Taken, p.Duration.Seconds(), c.Processes, n.Unwound,
		float64(n.Frames)/float64(max(n.Unwound, 1)))
	for cause := range unwind.NumCauses {
		if n.Ends[cause] > 0 {
			fmt.Fprintf(&b, "  %-32s %9d  %6.2f%% of the stacks\n", cause.String(), n.Ends[cause], 100*float64(n.Ends[cause])/float64(n.Unwound))
		}
	}
	for _, l := range []struct {
		n    uint64
		text string
	}{
		{uint64(c.OwnMalloc), "processes have their own malloc, which is not recorded"},
		{c.NoRoom + c.Refused, "samples had no room"},
		{c.NoLive, "samples could not be followed, and count as freed"},
		{c.NoElf, "objects had no eh_elf in the cache: stacks may end in them"},
	} {
		if l.n > 0 {
			fmt.Fprintf(&b, "  %d %s\n", l.n, l.text)
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
