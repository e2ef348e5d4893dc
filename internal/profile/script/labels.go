package script

import (
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// labeler makes the labels of samples. Few samples of a recording differ in what labels are made of, so equal ones
// share a list.
type labeler struct {
	// Paths of control groups, by the number in samples (PERF_SAMPLE_CGROUP). PERF_RECORD_CGROUP tells them, in
	// recordings of perf record --all-cgroups; others have none.
	groups map[uint64]string
	known  map[labels.Origin][]stackfmt.Label // labels by what they depend on
}

// labelsOf returns the labels of a sample of a program, which may be nil.
func (run *runner) labelsOf(s *perfdata.Sample, program *unwind.Object) []stackfmt.Label {
	set := run.opt.Labels
	if set&^labels.Comm == 0 { // the thread's name needs no label: every format has it
		return nil
	}
	key := set.Only(labels.Origin{PID: s.PID, TID: s.TID, CPU: s.CPU, Program: program,
		Cgroup: run.labeler.groups[s.Cgroup], Host: run.reader.Info().Hostname})
	list, ok := run.labeler.known[key]
	if !ok {
		list = set.Of(&key)
		run.labeler.known[key] = list
	}
	return list
}
