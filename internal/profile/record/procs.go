//go:build linux && amd64

package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// process is an address space, with what the table of stacks needs from it.
// Addresses mean the same code as long as space is the same.
type process struct {
	unwind.Space
	space       uint32
	main        *thread      // the first one; nil: no sample of this process yet
	sampledMaps *unwind.Maps // of the last sample; nil: no sample of this space yet
	known       bool         // its mappings are: it was seen to begin, or they were read
	exited      bool
	// lingers says that the process has not ended yet, though its first thread has.
	lingers bool
	parent  int32
	code    *jit.Code        // what lies in no file; nil: there is none
	texts   []unwind.Mapping // executable mappings of files so far
	view    uint32           // what the kernel was told of its code, see inKernel; 0: nothing
	listed  int              // mappings that were there when they were last read because there were too many
}

// thread is a thread of a process.
type thread struct {
	comm  string
	outer outer
	off   away
}

// tracker tracks what processes map, fork and execute, in the order of time.
type tracker struct {
	files     mappedFiles
	exits     exits
	processes map[int32]*process
	threads   map[int32]*thread
	spaces    uint32
	onMap     func(pid int32, m procfs.Mapping, buildID []byte) // called for mappings read from /proc; may be nil
	onComm    func(pid, tid int32, comm string)
	stacks    stacks // is told of forks, and of what the number of a process no longer means; copies need not be told
}

// exits holds what has ended.
type exits struct {
	gone  []int32 // threads and processes, in the order of their exits
	ended int     // how many of gone the last bury has seen
}

// mappedFiles holds what is known of the files that processes have mapped.
type mappedFiles struct {
	*mapped.Files
	most       int                          // of Known, at which unused ones are dropped
	unmapped   map[*unwind.Object]time.Time // of those of which something is kept, since when no process has them mapped
	released   int                          // objects released since unused ones were last dropped
	frameAddrs map[*unwind.Object][]uint64  // link-time addresses in the frames of earlier tables, and of released objects
	root       uint64                       // device of the root file system
	limits     *jit.Limits                  // of code made at run time
	places     *jit.Places                  // of its names
}

func newMappedFiles(objects *unwind.Objects) mappedFiles {
	return mappedFiles{Files: mapped.NewFiles(objects, MostFiles()), most: manyObjects,
		frameAddrs: make(map[*unwind.Object][]uint64),
		root:       rootDevice(), limits: jit.NewLimits(mostDumps), places: jit.NewPlaces(true)}
}

// keepGone is how many threads are remembered after their exit, since samples may
// still follow.
const keepGone = 4096

// The kernel does not tell what is unmapped, and a program may map any number of files, so from time to time
// mappings are read again and files forgotten. Both happen only if there are at least this number, and
// twice as many as were left the last time.
const (
	manyMappings = 1024 // of a process; the kernel allows 65530
	manyObjects  = 8192
	mostDumps    = 32 // jitdump files that are read at a time
)

func newTracker(objects *unwind.Objects) *tracker {
	return &tracker{files: newMappedFiles(objects), processes: make(map[int32]*process),
		threads: make(map[int32]*thread), stacks: new(copies)}
}

func (t *tracker) newSpace() uint32 {
	t.spaces++
	return t.spaces
}

func (t *tracker) process(pid int32) *process {
	p := t.processes[pid]
	if p == nil {
		p = &process{space: t.newSpace()}
		t.processes[pid] = p
	}
	return p
}

// thread returns a thread, and looks up its name if no record has given it.
func (t *tracker) thread(pid, tid int32) *thread {
	th := t.threads[tid]
	if th == nil {
		comm, ok := procfs.Comm(pid, tid)
		switch {
		case tid == 0:
			comm = "swapper"
		case !ok:
			comm = ":" + fmt.Sprint(tid) // as perf has it
		case t.onComm != nil:
			t.onComm(pid, tid, comm)
		}
		th = &thread{comm: comm}
		t.threads[tid] = th
	}
	return th
}

// sampledThread returns a thread, and its process with what it has mapped at this moment in sampledMaps.
func (t *tracker) sampledThread(pid, tid int32) (*thread, *process) {
	th := t.thread(pid, tid)
	p := t.process(pid)
	if !p.known {
		t.readProcess(pid)
		p.known = true // or not to be had
	}
	p.main, p.sampledMaps = t.thread(pid, pid), p.Maps()
	return th, p
}

// comm is PERF_RECORD_COMM.
func (t *tracker) comm(r *perfdata.Comm) {
	name := string(r.Name)
	th := t.threads[r.TID]
	if th == nil {
		th = new(thread)
		t.threads[r.TID] = th
	}
	th.comm = name
	if !r.Exec {
		return
	}
	th.outer = outer{}
	t.end(r.PID, false)
	t.processes[r.PID] = &process{space: t.newSpace(), known: true, parent: t.process(r.PID).parent}
}

// task is PERF_RECORD_FORK or PERF_RECORD_EXIT.
func (t *tracker) task(r *perfdata.Task) {
	if r.Type == perfdata.TypeExit {
		t.exit(r.PID, r.TID)
		return
	}
	th := new(thread)
	if parent := t.threads[r.PTID]; parent != nil {
		th.comm = parent.comm
	} else {
		th.comm = t.thread(r.PPID, r.PTID).comm
	}
	t.threads[r.TID] = th
	if r.PID == r.PPID {
		return
	}
	parent := t.process(r.PPID)
	if !parent.known {
		t.readProcess(r.PPID)
		parent.known = true
	}
	t.end(r.PID, false) // the number may have been another process's
	child := &process{Space: parent.Fork(), space: t.newSpace(), known: true, parent: r.PPID,
		texts: slices.Clip(parent.texts)}
	if parent.code != nil {
		child.code = parent.code.Fork(memoryOf(r.PID))
		child.SetGenerated(child.code)
	}
	t.processes[r.PID] = child
	t.stacks.forked(r.PID, r.PPID)
}

// memoryOf returns what reads the memory of a process.
func memoryOf(pid int32) func(addr uint64, b []byte) int {
	return func(addr uint64, b []byte) int { return procfs.ReadMemory(pid, addr, b) }
}

// end forgets the code of a process, which has ended, or is another program now. A sample that comes late learns it
// anew.
func (t *tracker) end(pid int32, ended bool) {
	if p := t.processes[pid]; p != nil {
		t.stacks.changed(pid, p, ended)
		p.code.Close()
	}
}

// generate notes an executable mapping if it is no file's, or a jitdump file's.
func (t *tracker) generate(p *process, pid int32, start, size uint64, o *unwind.Object) {
	dump := jit.IsDump(o.Name)
	if !dump && !o.IsAnonymous() {
		return
	}
	if p.code == nil {
		p.code = &jit.Code{Read: memoryOf(pid), Limits: t.files.limits}
		p.SetGenerated(p.code)
		t.files.places.See(pid)
	}
	if dump {
		p.code.AddDump(t.files.places.Dump(pid, o.Name, start, start+size))
	} else {
		p.code.Changed(start, start+size)
	}
}

func (t *tracker) exit(pid, tid int32) {
	t.exits.gone = append(t.exits.gone, tid)
	if pid == tid {
		if p := t.processes[pid]; p != nil {
			p.exited = true
			p.code.Close()
		}
	}
	if len(t.exits.gone) <= keepGone {
		return
	}
	old := t.exits.gone[0]
	t.exits.gone = t.exits.gone[1:]
	t.exits.ended = max(t.exits.ended-1, 0)
	if p := t.processes[old]; p != nil && !p.exited {
		return // the number is in use again
	}
	t.drop(old)
}

// mapped is PERF_RECORD_MMAP2. It reports whether what lies there may soon be out of reach: code that is no file's, and
// files that were not known before or that have another name here.
func (t *tracker) mapped(r *perfdata.Mmap, f *mapped.Found) bool {
	if !r.Exec {
		t.putObject(r.PID, r.Addr, r.Len, r.PgOff, nil)
		return false
	}
	before := len(t.files.Known)
	m := mappingOf(r)
	o := t.object(&m, f)
	if o.IsAnonymous() {
		if text := t.process(r.PID).moved(&m, memoryOf(r.PID)); text != nil {
			o, m.Offset = text.Object, text.FileOffset(m.Start)
		}
	}
	t.putObject(r.PID, m.Start, r.Len, m.Offset, o)
	return o.IsAnonymous() || len(t.files.Known) != before || t.files.Open[o] != nil
}

// moved returns the mapping of a file whose code is now in memory that is no file's, at its place; nil: there is none.
func (p *process) moved(m *procfs.Mapping, read func(addr uint64, b []byte) int) *unwind.Mapping {
	for i := len(p.texts) - 1; i >= 0; i-- {
		text := &p.texts[i]
		if m.Start < text.Start || m.Start >= text.End {
			continue
		}
		if mapped.Holds(m, text.Object, text.FileOffset(m.Start), text.End-m.Start, read) {
			return text
		}
	}
	return nil
}

// mappingOf returns what a record says of a mapping.
func mappingOf(r *perfdata.Mmap) procfs.Mapping {
	m := procfs.Mapping{Start: r.Addr, End: r.Addr + r.Len, Offset: r.PgOff, Name: string(r.Name), Inode: r.File.Inode,
		Exec: r.Exec}
	if r.File.Maj != 0 || r.File.Min != 0 {
		m.Device = procfs.Device(r.File.Maj, r.File.Min)
	}
	return m
}

// putObject puts an object into an address space. What is there already stays as it is:
// compilers at run time change the protection of their memory all the time.
func (t *tracker) putObject(pid int32, start, size, offset uint64, o *unwind.Object) {
	p := t.process(pid)
	if o != nil {
		t.generate(p, pid, start, size, o)
		if o.IsFile() && len(p.texts) < manyMappings {
			p.texts = append(p.texts, unwind.Mapping{Start: start, End: start + size, Offset: offset, Object: o})
		}
	}
	if m := p.Find(start); m != nil && o != nil && m.Object == o && m.End >= start+size && m.FileOffset(start) == offset {
		return
	}
	p.Map(start, size, offset, o)
	defer t.trimMappings(pid, p)
	if p.sampledMaps == nil {
		return
	}
	for _, m := range p.sampledMaps.All() {
		if m.Start < start+size && start < m.End && (m.Object != o || m.FileOffset(start) != offset) {
			p.space, p.sampledMaps = t.newSpace(), nil // addresses that were met mean something else now
			return
		}
	}
}

// trimMappings reads the mappings of a process again if there are very many: most of them have gone.
func (t *tracker) trimMappings(pid int32, p *process) {
	n := len(p.All())
	if n < max(manyMappings, 2*p.listed) {
		return
	}
	p.listed = n // also while they are placed, and if they cannot be read
	list, err := procfs.Mappings(pid)
	if err != nil || len(list) == 0 {
		return
	}
	of := t.origin(pid)
	p.Clear()
	p.space, p.sampledMaps = t.newSpace(), nil // the addresses of some may come to mean something else
	for i, m := range list {
		if m.Exec {
			o, offset := t.listed(of, list, i)
			p.Map(m.Start, m.End-m.Start, offset, o)
		}
	}
	p.listed = len(p.All())
}

// origin says where the files of a process are.
func (t *tracker) origin(pid int32) *mapped.Process {
	const generations = 3
	of := &mapped.Process{PID: pid, Read: memoryOf(pid)}
	for p := t.processes[pid]; p != nil && p.parent > 0 && len(of.Parents) < generations; p = t.processes[p.parent] {
		of.Parents = append(of.Parents, p.parent)
	}
	return of
}

// putListed puts an executable mapping of a process's list.
func (t *tracker) putListed(of *mapped.Process, list []procfs.Mapping, i int) {
	m := &list[i]
	o, offset := t.listed(of, list, i)
	t.putObject(of.PID, m.Start, m.End-m.Start, offset, o)
}

// listed returns the object of a mapping of a process's list, and the offset in its file.
func (t *tracker) listed(of *mapped.Process, list []procfs.Mapping, i int) (*unwind.Object, uint64) {
	find := func(m *procfs.Mapping) *unwind.Object {
		f := t.files.Find(of, m, time.Time{})
		return t.object(m, &f)
	}
	o := find(&list[i])
	if o.IsAnonymous() {
		if file, offset := mapped.Moved(list, i, find, of.Read); file != nil {
			return file, offset
		}
	}
	return o, list[i].Offset
}

// object returns the object of a mapping with this file.
func (t *tracker) object(m *procfs.Mapping, f *mapped.Found) *unwind.Object {
	if len(t.files.Known) >= t.files.most {
		t.files.forget(t.mappedNow())
	}
	return t.files.Object(m, f)
}

// forget drops the objects that no walk has needed and no process has mapped: those of inUse are.
func (fs *mappedFiles) forget(inUse map[*unwind.Object]bool) {
	kept := fs.Objects.Forget(func(o *unwind.Object) bool { return inUse[o] || isDump(o) || fs.Open[o] != nil })
	maps.DeleteFunc(fs.Known, func(_ mapped.Identity, o *unwind.Object) bool { return !kept[o] })
	maps.DeleteFunc(fs.frameAddrs, func(o *unwind.Object, _ []uint64) bool { return !kept[o] })
	fs.most = max(manyObjects, 2*len(fs.Known))
}

// readProcess reads the mappings and threads of a process that was there before, or of
// which records were lost. If the process is gone, what is known stays.
func (t *tracker) readProcess(pid int32) {
	list, err := procfs.Mappings(pid)
	if err != nil || len(list) == 0 {
		return
	}
	of := t.origin(pid)
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", procfs.Living(pid)))
	program := slices.IndexFunc(list, func(m procfs.Mapping) bool { return err == nil && m.Exec && m.Name == exe })
	if program >= 0 { // it is what is mapped first
		t.putListed(of, list, program)
	}
	for i, m := range list {
		if i != program && m.Exec {
			t.putListed(of, list, i)
		}
		if t.onMap != nil {
			f := t.files.Find(of, &m, time.Time{})
			t.onMap(pid, m, f.BuildID())
		}
	}
	t.process(pid).known = true
}

// readThreads reads the names of a process's threads.
func (t *tracker) readThreads(pid int32) {
	list, err := procfs.Threads(pid)
	if err != nil {
		return
	}
	for _, tid := range list {
		t.thread(pid, tid)
	}
}

// readAgain reads the mappings of all processes, after records were lost.
func (t *tracker) readAgain() {
	for pid, p := range t.processes {
		if p.exited && !p.lingers {
			continue
		}
		if errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			t.exit(pid, pid) // the record of that was lost
		} else {
			t.readProcess(pid)
		}
	}
}

// MostFiles returns how many files a recording keeps open to read code, and how many to read names. Processes may map
// any number, and other files must be opened, too.
func MostFiles() int {
	const part, fallback = 4, 64
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return fallback
	}
	return int(min(l.Cur, 1<<20)) / part
}
