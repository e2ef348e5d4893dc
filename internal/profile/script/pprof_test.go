package script

import (
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPprof(t *testing.T) {
	r := newRecording(t)
	r.all()
	r.sample(10, 0x401050, nil, 0x401010)
	r.sample(10, 0x401050, nil, 0x401010)
	text, _ := r.run(t, r.options("pprof"))
	p, err := profile.Parse(strings.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, "cpu", p.DefaultSampleType)
	assert.Equal(t, profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, *p.PeriodType)
	assert.Equal(t, profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, *p.SampleType[1])
	assert.Equal(t, "/bin/prog", p.Mapping[0].File, "what pprof calls the file")
	var stacks []string
	for _, s := range p.Sample {
		line := s.Label["comm"][0]
		for _, l := range s.Location {
			name := "?"
			if len(l.Line) > 0 {
				name = l.Line[0].Function.Name
			}
			line += " " + name
		}
		stacks = append(stacks, line)
		if line == "prog main _start" {
			assert.Equal(t, []int64{2, 500000}, s.Value)
			assert.Equal(t, "/bin/prog", s.Location[0].Mapping.File)
			assert.Equal(t, "70726f67", s.Location[0].Mapping.BuildID)
			assert.Equal(t, uint64(0x1050), s.Location[0].Address)
		}
	}
	assert.Len(t, stacks, 8)
	assert.Contains(t, stacks, "prog main _start")
	assert.Contains(t, stacks, "prog vfs_read do_syscall_64 ext_read work main _start")
	assert.Contains(t, stacks, "prog work [gone.so]")
}

// TestPprofEvents has the units of events by what they are, not by how they are called.
func TestPprofEvents(t *testing.T) {
	const taskClock, freq = 1, 1 << 10
	for _, c := range []struct {
		attr       perfdatatest.Attr
		kind, unit string
		period     int64
	}{
		{perfdatatest.Attr{Name: "cpu-clock", Flags: freq, Rate: 4000}, "cpu", "nanoseconds", 250000},
		{perfdatatest.Attr{Name: "cpu-clock:pppH", Flags: freq, Rate: 999}, "cpu", "nanoseconds", 1001001},
		{perfdatatest.Attr{Name: "task-clock:u", Config: taskClock, Rate: 100000}, "cpu", "nanoseconds", 100000},
		{perfdatatest.Attr{Rate: 5}, "cpu", "nanoseconds", 5},
		{perfdatatest.Attr{Name: "cycles:ppp", Hardware: true, Flags: freq, Rate: 4000}, "cycles", "count", 0},
		{perfdatatest.Attr{Name: "branch-misses", Hardware: true, Config: 5, Rate: 1000}, "branch-misses", "count",
			1000},
	} {
		r := newRecording(t)
		a := r.Attrs[0]
		c.attr.SampleType, c.attr.RegsUser, c.attr.StackUser, c.attr.IDs = a.SampleType, a.RegsUser, a.StackUser, a.IDs
		r.Attrs[0] = c.attr
		r.start()
		r.sample(10, 0x401050, nil, 0x401010)
		text, _ := r.run(t, r.options("pprof"))
		p, err := profile.Parse(strings.NewReader(text))
		require.NoError(t, err)
		want := profile.ValueType{Type: c.kind, Unit: c.unit}
		assert.Equal(t, want, *p.SampleType[1], c.attr.Name)
		assert.Equal(t, want, *p.PeriodType, c.attr.Name)
		assert.Equal(t, c.period, p.Period, c.attr.Name)
		assert.Equal(t, c.kind, p.DefaultSampleType)
	}
}

// TestPprofNoPeriod: samples without a field for their period, as perf record -c makes them, have the event's.
func TestPprofNoPeriod(t *testing.T) {
	r := newRecording(t)
	r.Attrs[0].Name, r.Attrs[0].Rate = "page-faults", 10
	r.Attrs[0].SampleType = 1<<0 | 1<<1 | 1<<2 | 1<<5
	r.start()
	for range 3 {
		r.Add(perfdatatest.Record(9, 2, uint64(0x401050), int32(10), int32(10), r.time, uint64(2),
			uint64(perfdata.ContextUser), uint64(0x401050)))
	}
	text, _ := r.run(t, r.options("pprof"))
	p, err := profile.Parse(strings.NewReader(text))
	require.NoError(t, err)
	require.Len(t, p.Sample, 1)
	assert.Equal(t, []int64{3, 30}, p.Sample[0].Value)
}

// TestPprofTwoEvents wants each event's periods apart.
func TestPprofTwoEvents(t *testing.T) {
	r := newRecording(t)
	second := r.Attrs[0]
	second.Name, second.Config, second.IDs = "faults", 2, []uint64{2}
	r.Attrs[0].SampleType |= 1 << 16 // PERF_SAMPLE_IDENTIFIER
	second.SampleType |= 1 << 16
	r.Attrs[0].StackUser, second.StackUser = 0, 0
	r.Attrs[0].SampleType &^= 1<<12 | 1<<13
	second.SampleType &^= 1<<12 | 1<<13
	r.Attrs = append(r.Attrs, second)
	r.start()
	for _, id := range []uint64{1, 2, 2} {
		r.Add(perfdatatest.Record(9, 2, id, uint64(0x401050), int32(10), int32(10), r.time, id*100,
			uint64(3), uint64(perfdata.ContextUser), uint64(0x401050), uint64(0x401010)))
	}
	text, _ := r.run(t, r.options("pprof"))
	p, err := profile.Parse(strings.NewReader(text))
	require.NoError(t, err)
	var types []string
	for _, s := range p.SampleType {
		types = append(types, s.Type+"/"+s.Unit)
	}
	assert.Equal(t, []string{"samples of cpu-clock/count", "cpu-clock/nanoseconds", "samples of faults/count",
		"faults/count"}, types)
	require.Len(t, p.Sample, 2)
	assert.Equal(t, []int64{1, 100, 0, 0}, p.Sample[0].Value)
	assert.Equal(t, []int64{0, 0, 2, 400}, p.Sample[1].Value)
}
