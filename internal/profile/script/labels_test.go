package script

import (
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLabels: samples have the labels that are asked for; the program is the one of the last exec, and
// each sample has its own control group.
func TestLabels(t *testing.T) {
	r := newRecording(t)
	r.Attrs[0].RegsUser, r.Attrs[0].StackUser = 0, 0
	const cpu, cgroup = 1 << 7, 1 << 21
	r.Attrs[0].SampleType = r.Attrs[0].SampleType&^(1<<12|1<<13) | cpu | cgroup
	sample := func(pid, tid int32, cpu uint32, group uint64) {
		r.Add(perfdatatest.Record(9, 2, uint64(0x401050), pid, tid, r.time, cpu, uint32(0), uint64(100),
			uint64(2), uint64(perfdata.ContextUser), uint64(0x401050), group))
	}
	r.start()
	id := strings.Repeat("01", 32)
	r.Add(perfdatatest.Record(19, 0, uint64(77), perfdatatest.Name("/docker/"+id), r.SampleID(r.id(10, 10))))
	sample(10, 10, 0, 77)
	sample(10, 11, 3, 77)
	r.Fork(r.id(20, 20), 10, 10)
	sample(20, 20, 1, 5)
	r.Comm(r.id(20, 20), "other", true)
	sample(20, 20, 1, 5)
	opt := r.options("pprof")
	opt.Labels = labels.CPU<<1 - 1
	text, _ := r.run(t, opt)
	p, err := profile.Parse(strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, p.Sample, 4)
	var got []string
	for _, s := range p.Sample {
		line := ""
		for _, key := range []string{"comm", "process.pid", "thread.id", "process.executable.name",
			"process.executable.build_id.gnu",
			"process.linux.cgroup", "container.id", "host.name", "cpu.logical_number"} {
			line += strings.Join(s.Label[key], ",") + " "
		}
		got = append(got, line)
	}
	assert.ElementsMatch(t, []string{"prog 10 10 prog 70726f67 /docker/" + id + " " + id + " host 0 ",
		":11 10 11 prog 70726f67 /docker/" + id + " " + id + " host 3 ",
		"prog 20 20 prog 70726f67   host 1 ", "other 20 20     host 1 "}, got)
}
