//go:build linux && amd64

package record

import (
	"os"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/unwind"
)

// labeler numbers the labels that samples have besides the thread's name.
type labeler struct {
	want    labels.Set
	host    string
	origins map[origin]uint32 // since the last Take
	sets    [][]stackfmt.Label
	numbers map[labels.Origin]uint32 // of sets
}

// origin is a thread of an address space on a CPU, as far as labels depend on it.
type origin struct {
	space, cpu uint32
	tid        int32
	program    *unwind.Object // nil within execve, before it is mapped
}

func newLabeler(want labels.Set) *labeler {
	l := &labeler{want: want &^ labels.Comm}
	l.host, _ = os.Hostname() // "" if it is not to be had
	l.take()
	return l
}

// take returns the labels since the last call, by their numbers.
func (l *labeler) take() [][]stackfmt.Label {
	sets := l.sets
	l.sets, l.numbers, l.origins = nil, make(map[labels.Origin]uint32), make(map[origin]uint32)
	return sets
}

// number returns the number of the labels of a sample; without any wanted, 0.
func (l *labeler) number(t *tracker, pid, tid int32, cpu uint32, p *process) uint32 {
	if l.want == 0 {
		return 0
	}
	where := origin{space: p.space}
	if l.want.Has(labels.TID) {
		where.tid = tid
	}
	if l.want.Has(labels.CPU) {
		where.cpu = cpu
	}
	if l.want.Any(labels.Executable | labels.BuildID) {
		where.program = p.Program()
	}
	id, ok := l.origins[where]
	if !ok {
		id = l.add(t, labels.Origin{PID: pid, TID: tid, CPU: cpu, Program: p.Program(), Host: l.host})
		l.origins[where] = id
	}
	return id
}

func (l *labeler) add(t *tracker, o labels.Origin) uint32 {
	if l.want.Any(labels.Cgroup | labels.Container) {
		o.Cgroup = t.cgroup(o.PID)
	}
	o = l.want.Only(o)
	id, ok := l.numbers[o]
	if !ok {
		id = uint32(len(l.sets))
		l.sets = append(l.sets, l.want.Of(&o))
		l.numbers[o] = id
	}
	return id
}

// cgroup returns the control group of a process, or of the one that it comes from if it has ended already. "": not
// known.
func (t *tracker) cgroup(pid int32) string {
	const generations = 8
	for range generations {
		if group := procfs.Cgroup(pid); group != "" {
			return group
		}
		p := t.processes[pid]
		if p == nil || p.parent <= 0 {
			break
		}
		pid = p.parent
	}
	return ""
}
