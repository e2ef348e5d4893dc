//go:build linux && amd64

package crash

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stacks"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// This file makes reports, in the reporter. All that it writes was chosen by the crashed process, so each part has a
// bound, and a report has one in all.

// crashed holds the contents of a report.
type crashed struct {
	target *stack.Target
	time   time.Time // of the handler's start, UTC
	user   int       // real user of the crashed thread
	regs   abi.Regs
	code   []byte // around the pc; empty if nothing is mapped there
	start  uint64 // run-time address of code
}

// How many bytes of code a report has before the pc, and from the pc on.
const (
	codeBefore = 32
	codeAfter  = 32
)

// describe collects what a report says besides stacks. The process must still be held by the kernel.
func describe(t *stack.Target, user int, core *stack.Core, live *stack.Live) *crashed {
	c := &crashed{target: t, time: time.Now().UTC(), user: user, regs: core.Registers()}
	pc := c.regs.Reg[abi.RIP]
	c.start = pc - min(pc, codeBefore)
	b := make([]byte, pc-c.start+codeAfter)
	if n := live.Memory(b, c.start); n > 0 {
		c.code = b[:n]
		return c
	}
	c.start = pc // the page before is not mapped
	c.code = b[:live.Memory(b[:codeAfter], pc)]
	return c
}

// userOf returns the real user of a thread, or -1.
func userOf(tid int32) int {
	n := -1
	fmt.Sscan(procfs.Status(tid)["Uid"], &n) // the first of four: real, effective, saved, file system
	return n
}

// name returns the name of a report's file. It must match reportName. when has microseconds, and the PID is there, so
// two crashes have different names.
func (opt *Options) name(when time.Time, user int) string {
	suffix := "txt"
	if opt.JSON {
		suffix = "json"
	}
	return fmt.Sprintf("crash-%s-user%d-pid%d.%s", timeText(when), user, opt.PID, suffix)
}

// registerNames are in the order of abi.Regs: DWARF's.
var registerNames = [abi.NumRegs]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10",
	"r11", "r12", "r13", "r14", "r15", "rip"}

// plain returns what the report without names holds.
func (c *crashed) plain() *crashed {
	plain, target := *c, *c.target
	note := fmt.Sprintf("names of functions are left out: they take longer than %v or more than %d MB", namesPatience,
		mostData>>20)
	target.Notes = append(slices.Clone(target.Notes), note)
	plain.target = &target
	return &plain
}

// write writes the report, and behind it the mark that ends it.
func (c *crashed) write(out io.Writer, json bool, names symbolize.Options) error {
	namer := symbolize.New(names)
	defer namer.Close()
	cache := namer.NewCache(shorten)
	text, err := []byte(nil), error(nil)
	if json {
		text, err = c.json(cache)
	} else {
		text = c.text(cache)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, reportEnd))
	return err
}

// text returns the report as text of at most MostBytes.
func (c *crashed) text(cache *symbolize.Cache) []byte {
	const manyThreads = 20 // above which equal stacks are written once, as by ehasm stack
	t := c.target
	b := fmt.Appendf(nil, "%s user %d\n", c.time.Format("2006-01-02T15:04:05Z"), c.user)
	groups := stacks.NewGroups(cache, len(t.Threads) > manyThreads)
	groups.Add(t)
	shown := groups.Text(nil, t, false)
	head, rest, _ := bytes.Cut(shown, []byte("\n"))
	// The first line names the process; registers and code come before the stacks.
	b = append(append(b, head...), '\n', '\n')
	for i, name := range registerNames {
		end := " "
		if i%4 == 3 || i == len(registerNames)-1 {
			end = "\n"
		}
		b = fmt.Appendf(b, "%-3s %016x%s", name, c.regs.Reg[i], end)
	}
	offset := min(int(c.regs.Reg[abi.RIP]-c.start), len(c.code))
	// The pc stands after the mark >.
	b = fmt.Appendf(b, "code at %#x: %x > %x\n", c.start, c.code[:offset], c.code[offset:])
	// Objects and notes come last, within a quarter of the bound.
	tail := []byte("\nobjects:\n")
	for _, o := range c.objects() {
		tail = fmt.Appendf(tail, "%s-%s offset %s %s %s\n", o.Start, o.End, o.Offset, o.BuildID, output.Text(o.Name))
	}
	for _, note := range t.Notes {
		tail = fmt.Appendf(tail, "note: %s\n", output.Text(note))
	}
	return append(append(b, cut(rest, MostBytes-len(b)-min(len(tail), MostBytes/4))...), cut(tail, MostBytes/4)...)
}

// cut shortens text to at most size bytes, at the end of a line, and says so. size must have room for that.
func cut(text []byte, size int) []byte {
	const end = "... cut: the report has a bound\n"
	if len(text) <= size {
		return text
	}
	text = text[:size-len(end)]
	// Whole lines only.
	return append(text[:bytes.LastIndexByte(text, '\n')+1], end...)
}

// The JSON of a report.
type (
	jsonReport struct {
		Time      string            `json:"time"`
		PID       int32             `json:"pid"`
		User      int               `json:"user"` // numerical
		Comm      string            `json:"comm"`
		Reason    string            `json:"reason"`
		Registers map[string]string `json:"registers"`
		CodeStart string            `json:"code_start"` // hexadecimal, as Code
		Code      string            `json:"code"`
		Threads   []jsonThread      `json:"threads"` // the one that crashed first
		LeftOut   int               `json:"threads_left_out"`
		Objects   []jsonObject      `json:"objects"`
		Notes     []string          `json:"notes,omitempty"`
	}
	jsonThread struct {
		TID     int32       `json:"tid"`
		Comm    string      `json:"comm"`
		End     string      `json:"end"` // why the stack ends
		Frames  []jsonFrame `json:"frames"`
		LeftOut int         `json:"frames_left_out,omitempty"`
	}
	jsonFrame struct {
		PC       string `json:"pc"`
		Function string `json:"function,omitempty"`
		Offset   uint64 `json:"offset"` // in the function
		Object   string `json:"object,omitempty"`
	}
	jsonObject struct {
		Start   string `json:"start"`
		End     string `json:"end"`
		Offset  string `json:"offset"` // in the file
		Name    string `json:"name"`
		BuildID string `json:"build_id,omitempty"`
	}
)

// hexText returns an address as text: JSON's numbers lose bits.
func hexText(n uint64) string { return fmt.Sprintf("%#x", n) }

// objects returns the executable mappings.
func (c *crashed) objects() (list []jsonObject) {
	for _, m := range c.target.Maps.All() {
		if m.Object != nil {
			name := m.Object.Name[:min(len(m.Object.Name), mostName)]
			list = append(list, jsonObject{hexText(m.Start), hexText(m.End), hexText(m.Offset), name,
				hex.EncodeToString(m.Object.BuildID())})
		}
	}
	return list
}

// json returns the report as JSON of at most MostBytes. It leaves out the last threads if need be.
func (c *crashed) json(cache *symbolize.Cache) ([]byte, error) {
	t := c.target
	r := jsonReport{Time: c.time.Format(time.RFC3339Nano), PID: t.PID, User: c.user, Comm: t.Comm, Reason: t.Reason,
		Registers: make(map[string]string),
		CodeStart: hexText(c.start), Code: hex.EncodeToString(c.code), Notes: t.Notes, Objects: c.objects()}
	r.Objects = r.Objects[:min(len(r.Objects), mostObjects)]
	for i, name := range registerNames {
		r.Registers[name] = hexText(c.regs.Reg[i])
	}
	for i := range t.Threads {
		r.Threads = append(r.Threads, threadJSON(cache, t, &t.Threads[i]))
	}
	for {
		// Objects are halved until the rest fits, then threads; of a last thread, its frames.
		b, err := json.Marshal(r)
		if err != nil || len(b) < MostBytes {
			return append(b, '\n'), err
		}
		if n := len(r.Objects) / 2; n > 0 {
			r.Objects = r.Objects[:n]
		} else if n := len(r.Threads) / 2; n > 0 {
			r.LeftOut += len(r.Threads) - n
			r.Threads = r.Threads[:n]
		} else {
			th := &r.Threads[0]
			th.LeftOut += len(th.Frames) - len(th.Frames)/2
			th.Frames = th.Frames[:len(th.Frames)/2]
		}
	}
}

// threadJSON returns a thread with its frames.
func threadJSON(cache *symbolize.Cache, t *stack.Target, th *stack.Thread) jsonThread {
	out := jsonThread{TID: th.TID, Comm: th.Comm, End: th.End.String()}
	for i, f := range cache.Backtrace(t.Maps, t.PID, th.PCs) {
		out.Frames = append(out.Frames, jsonFrame{hexText(th.PCs[i]), f.Name, f.OffsetOf(th.PCs[i]), f.DSO})
	}
	return out
}

// Bounds on a report of a hostile process while it is made. Its text is bounded by MostBytes.
const (
	mostThreads = 200 // of a process; the first crashed, the others show what it was doing
	mostFrames  = 256 // of a thread; those of endless recursion are alike
	mostName    = 256 // bytes of the name of a function or an object
	mostObjects = 300
)

// bound removes threads and frames that exceed a report's bounds, and adds notes about them.
func bound(t *stack.Target) {
	if n := len(t.Threads); n > mostThreads {
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d threads are left out", n-mostThreads, n))
		t.Threads = t.Threads[:mostThreads] // the thread that crashed is the first, and stays
	}
	for i := range t.Threads {
		th := &t.Threads[i]
		if n := len(th.PCs); n > mostFrames {
			t.Notes = append(t.Notes, fmt.Sprintf("%d of %d frames of thread %d are left out", n-mostFrames, n, th.TID))
			th.PCs, th.End = th.PCs[:mostFrames], unwind.Full
			th.Guessed = slices.DeleteFunc(th.Guessed, func(g int) bool { return g >= mostFrames })
		}
	}
}

// shorten bounds the names of a frame.
func shorten(f *frame.Frame) {
	f.Name, f.DSO = f.Name[:min(len(f.Name), mostName)], f.DSO[:min(len(f.DSO), mostName)]
	f.Inlined = nil
}
