//go:build linux && amd64

package record

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLost: of several events whose ring is full before anything is read, each one's samples and lost samples are as
// many as the kernel has counted of it.
func TestLost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	opt := options(t)
	opt.Settings.Ring, opt.Settings.Copy = 1<<16, 4096 // room for 15 samples
	opt.Event, opt.More = named("major-faults"), []*Event{named("page-faults"), named("minor-faults")}
	s, err := Open(opt)
	require.NoError(t, err)
	defer s.Close()
	cmd := exec.Command("/bin/ls", "/usr/share/doc")
	require.NoError(t, cmd.Start())
	require.NoError(t, s.Start())
	require.NoError(t, cmd.Wait())
	done := make(chan struct{})
	close(done)
	require.NoError(t, s.Run(done, nil))
	p := s.Take()

	told, lost := make([]uint64, 3), uint64(0)
	for _, st := range p.Table.Stacks {
		told[st.Event] += st.Count
	}
	number := map[string]int{"major-faults": 0, "page-faults": 1, "minor-faults": 2}
	for _, l := range p.Lost {
		told[number[l.Event.Name]] += l.Count
		lost += l.Count
		assert.Equal(t, l.Count, l.Period)
	}
	occurred := make([]uint64, 3)
	for i, st := range []*stream{&s.open.samples, &s.open.more[0], &s.open.more[1]} {
		for _, e := range st.all {
			c, err := e.Read()
			require.NoError(t, err)
			occurred[i] += c.Value
		}
	}
	assert.Equal(t, occurred, told)
	assert.Equal(t, p.Counts.Lost, lost)
	assert.Greater(t, lost, uint64(50))
	assert.Empty(t, s.Take().Lost, "they are reported once")
}

// TestLostPeriod: lost samples stand for as much as those recorded do on average.
func TestLostPeriod(t *testing.T) {
	p := &Profile{Table: newTable(), Event: &stackfmt.Event{Name: "a"}, More: []*stackfmt.Event{{Name: "b"}, {Name: "c"}}}
	p.Table.Stacks = []Stack{{Count: 3, Period: 300}, {Count: 1, Period: 500, Event: 2}, {Count: 1, Period: 100}}
	p.addLost([]uint64{10, 0, 2}, []*Event{{}, {}, {}})
	want := []Lost{{Event: p.Event, Count: 10, Period: 1000}, {Event: p.More[1], Count: 2, Period: 1000}}
	assert.Equal(t, want, p.Lost)
	assert.EqualValues(t, 12, p.Counts.Lost)

	joined := Join([]*Profile{p, {Lost: []Lost{{Event: p.More[0], Count: 1, Period: 1},
		{Event: p.More[1], Count: 3, Period: 500}}}})
	assert.Equal(t, []Lost{want[0], {Event: p.More[1], Count: 5, Period: 1500}, {Event: p.More[0], Count: 1, Period: 1}},
		joined.Lost)
	assert.Equal(t, want, p.Lost, "a joined profile stays as it is")
}
