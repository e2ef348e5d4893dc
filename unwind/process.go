package unwind

// Processes tracks what processes map, fork and execute, as a recording tells it. Events must come in the order of
// time. One goroutine at a time may use it and its address spaces.
type Processes struct {
	byPID  map[int32]*process // also those that have exited, for a while
	byTID  map[int32]string   // comms of threads
	exited []int32            // in the order of their exits
}

// keepExited is how many processes are remembered after their exit, since samples may still follow: rings of CPUs are
// not in step. A build has thousands of processes.
const keepExited = 4096

// process is a process of a recording.
type process struct {
	space  Space
	exited bool // samples may still follow
}

// NewProcesses returns an empty set.
func NewProcesses() *Processes {
	return &Processes{byPID: make(map[int32]*process), byTID: make(map[int32]string)}
}

// Space returns the address space of the process pid, and creates it if it is new.
func (ps *Processes) Space(pid int32) *Space {
	p := ps.byPID[pid]
	if p == nil {
		p = new(process)
		ps.byPID[pid] = p
	}
	return &p.space
}

// Comm returns the name of a thread, or "" if it is not known.
func (ps *Processes) Comm(tid int32) string { return ps.byTID[tid] }

// SetComm records the name of a thread. With exec, the process gets a new,
// empty address space.
func (ps *Processes) SetComm(pid, tid int32, comm string, exec bool) {
	ps.byTID[tid] = comm
	if exec {
		*ps.Space(pid) = Space{}
	}
}

// Fork records that the thread ptid of ppid made the thread tid of process
// pid. A new process starts with the mappings of its parent.
func (ps *Processes) Fork(pid, tid, ppid, ptid int32) {
	ps.byTID[tid] = ps.byTID[ptid] // "" too: the number may have been another thread's
	if pid != ppid {
		ps.byPID[pid] = &process{space: ps.Space(ppid).Fork()}
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
