package unwind

// Processes tracks what processes map, fork and execute. Events must come in the order
// of time. It and its processes may be used by one goroutine at a time; the Maps that they
// return are safe for concurrent use.
type Processes struct {
	byPID  map[int32]*Process // also those that have exited, for a while
	byTID  map[int32]string   // comms of threads
	exited []int32            // in the order of their exits
	made   uint32             // Maps
}

// keepExited is how many processes are remembered after their exit, since
// samples may still follow.
const keepExited = 4096

// Process is one address space. It may be used only by the goroutine that uses its
// Processes.
type Process struct {
	maps    *Maps   // of this moment
	shared  bool    // someone else holds maps
	exited  bool    // samples may still follow
	program *Object // see Program
}

// Program returns the executable, or nil if that is not known. It is the file that was mapped first, or if that is a dynamic
// loader that was run as a command, the program that it has loaded.
func (p *Process) Program() *Object {
	if p.loads() {
		if o := p.maps.program(); o != nil {
			return o
		}
	}
	return p.program
}

// loads reports whether the process runs a loader.
func (p *Process) loads() bool {
	if p.program != nil {
		p.program.find()
	}
	return p.program != nil && p.program.loader
}

// Name is Maps.Name of the current mappings, without a look at others where the process runs no loader.
func (p *Process) Name(comm string) string {
	if p.loads() {
		return p.maps.Name(comm)
	}
	return comm
}

// Maps returns the current mappings; later events do not change the result.
func (p *Process) Maps() *Maps {
	p.shared = true
	return p.maps
}

// All returns the current mappings, ascending, which the next event may change.
func (p *Process) All() []Mapping { return p.maps.list }

// SetGenerated says what knows the process's code that lies in no file. Maps from before do not change.
func (p *Process) SetGenerated(g Generated) {
	if p.maps.made == g {
		return
	}
	p.maps, p.shared = &Maps{list: p.maps.list, id: p.maps.id, made: g}, true // Map changes the list, which the old Maps have, too
}

// Len returns the number of current mappings.
func (p *Process) Len() int { return len(p.maps.list) }

// NewProcesses returns an empty set.
func NewProcesses() *Processes {
	return &Processes{byPID: make(map[int32]*Process), byTID: make(map[int32]string)}
}

// newMaps returns Maps with a new id.
func (ps *Processes) newMaps(list []Mapping) *Maps {
	ps.made++
	return &Maps{list: list, id: ps.made}
}

// Process returns the process pid, and creates it if it is new.
func (ps *Processes) Process(pid int32) *Process {
	p := ps.byPID[pid]
	if p == nil {
		p = &Process{maps: ps.newMaps(nil)}
		ps.byPID[pid] = p
	}
	return p
}

// Clear drops all mappings of a process.
func (ps *Processes) Clear(pid int32) {
	p := ps.Process(pid)
	p.maps, p.shared = ps.newMaps(nil), false
}

// Comm returns the name of a thread, or "" if it is not known.
func (ps *Processes) Comm(tid int32) string { return ps.byTID[tid] }

// Map records a new mapping of size bytes, which replaces those it overlaps.
// If object is nil, it is not executable.
func (ps *Processes) Map(pid int32, start, size, offset uint64, object *Object) {
	p := ps.Process(pid)
	if p.program == nil && object != nil && object.IsFile() {
		p.program = object
	}
	end := start + size
	if end < start {
		end = ^uint64(0)
	}
	if object == nil && !overlaps(p.maps, start, end) { // a mapping without code changes nothing where there is no code
		return
	}
	if p.shared { // the caller of Maps keeps the old one: change a copy
		made := p.maps.made
		p.maps = ps.newMaps(append(make([]Mapping, 0, len(p.maps.list)+2), p.maps.list...))
		p.maps.made = made
		p.shared = false
	}
	var add *Mapping
	if object != nil {
		add = &Mapping{Start: start, End: end, Offset: offset, Object: object}
	}
	p.maps.list = insert(p.maps.list, start, end, add)
}

// overlaps reports whether one of the mappings has an address in [start, end).
func overlaps(m *Maps, start, end uint64) bool {
	if start >= end {
		return false
	}
	if m.Find(start) != nil {
		return true
	}
	for _, o := range m.list {
		if o.Start >= start && o.Start < end {
			return true
		}
	}
	return false
}

// SetComm records the name of a thread. With exec, the process gets a new,
// empty address space.
func (ps *Processes) SetComm(pid, tid int32, comm string, exec bool) {
	ps.byTID[tid] = comm
	if exec {
		ps.Clear(pid)
		ps.Process(pid).program = nil
	}
}

// Fork records that the thread ptid of ppid made the thread tid of process
// pid. A new process starts with the mappings of its parent.
func (ps *Processes) Fork(pid, tid, ppid, ptid int32) {
	ps.byTID[tid] = ps.byTID[ptid] // "" too: the number may have been another thread's
	if pid == ppid {
		return
	}
	parent := ps.Process(ppid)
	ps.byPID[pid] = &Process{maps: parent.Maps(), shared: true, program: parent.program}
}

// Forget drops what is known of a process that has ended.
func (ps *Processes) Forget(pid int32) {
	if p := ps.byPID[pid]; p != nil && p.exited {
		delete(ps.byPID, pid)
		delete(ps.byTID, pid)
	}
}

// Exit records the end of a thread. Its data are kept for a while, since
// samples may still follow.
func (ps *Processes) Exit(pid, tid int32) {
	if pid != tid {
		return
	}
	if p := ps.byPID[pid]; p != nil && !p.exited {
		p.exited = true
		ps.exited = append(ps.exited, pid)
	}
	if len(ps.exited) <= keepExited {
		return
	}
	old := ps.exited[0]
	ps.exited = ps.exited[1:]
	if p := ps.byPID[old]; p != nil && p.exited { // else the number is in use again
		delete(ps.byPID, old)
		delete(ps.byTID, old)
	}
}
