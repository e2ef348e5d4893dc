//go:build linux && amd64

package record

import (
	"slices"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
)

// Lost are samples of an event that the kernel had no room for.
type Lost struct {
	Event  *stackfmt.Event
	Count  uint64
	Period uint64 // Count times what the event's recorded samples stand for on average
}

// addLost adds how many samples of each of Options.events were lost. The stacks are not packed yet.
func (p *Profile) addLost(lost []uint64, events []*Event) {
	count, period := make([]uint64, len(lost)), make([]uint64, len(lost))
	for i := range p.Table.Stacks {
		s := &p.Table.Stacks[i]
		count[s.Event] += s.Count
		period[s.Event] += s.Period
	}
	for i, n := range lost {
		if n == 0 {
			continue
		}
		each := events[i].every // if none was recorded
		if count[i] > 0 {
			each = period[i] / count[i]
		}
		p.Counts.Lost += n
		p.Lost = append(p.Lost, Lost{Event: p.event(uint8(i)), Count: n, Period: each * n})
	}
}

// joinLost returns the lost samples of two profiles of one Session.
func joinLost(list, more []Lost) []Lost {
	for _, l := range more {
		i := slices.IndexFunc(list, func(o Lost) bool { return o.Event.Name == l.Event.Name })
		if i < 0 {
			list = append(list, l)
			continue
		}
		list[i].Count += l.Count
		list[i].Period += l.Period
	}
	return list
}

// sample returns a sample that stands for the lost ones, so that the profile shows them.
func (l *Lost) sample(worker stackfmt.Worker) *stackfmt.Sample {
	f := &frame.Frame{Name: "[samples lost by the kernel]", DSO: "[lost]"}
	worker.Render(f)
	return &stackfmt.Sample{Comm: "[lost]", Count: l.Count, Period: l.Period, Event: l.Event, Frames: []*frame.Frame{f},
		End: stackfmt.NoUserStack}
}
