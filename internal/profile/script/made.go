package script

import (
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
)

// madeCode knows the code that processes have made at run time, and written to jitdump files: the file's mapping in a
// recording, which perf inject --jit goes by, too, says that there is one. Only the reading goroutine uses it.
type madeCode struct {
	of     map[int32]*jit.Code // by PID; of processes that have mapped a jitdump file
	limits *jit.Limits         // what all of them may take together
}

// mostDumps is how many jitdump files may be open: far below the usual limit of 1,024 descriptors, of which each
// object that is being read takes one, too.
const mostDumps = 128

// add says that a process has mapped a jitdump file, and returns its code.
func (m *madeCode) add(w symbols.Written) *jit.Code {
	pid := w.PID
	code := m.of[pid]
	if code == nil {
		code = &jit.Code{Limits: m.limits}
		m.of[pid] = code
	}
	code.AddDump(w)
	return code
}

// fork says that a process begins with the code of another, and returns it; nil: there is none.
func (m *madeCode) fork(pid, parent int32) *jit.Code {
	m.forget(pid)
	from := m.of[parent]
	if from == nil {
		return nil
	}
	m.of[pid] = from.Fork(nil)
	return m.of[pid]
}

// forget says that a process has no code, or not that from before.
func (m *madeCode) forget(pid int32) {
	m.of[pid].Close()
	delete(m.of, pid)
}

// task takes the beginning or end of a thread: PERF_RECORD_FORK and PERF_RECORD_EXIT. A new thread of a process shares
// its code; a new process has a copy, which may be written on separately.
func (run *runner) task(r *perfdata.Task) {
	if r.Type != perfdata.TypeFork {
		run.procs.Exit(r.PID, r.TID)
		return
	}
	run.procs.Fork(r.PID, r.TID, r.PPID, r.PTID)
	if r.PID == r.PPID {
		return
	}
	if code := run.made.fork(r.PID, r.PPID); code != nil {
		run.procs.Space(r.PID).SetGenerated(code)
	}
}
