package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFilter(t *testing.T) {
	r := newRecording(t)
	r.all()
	for _, c := range []struct {
		filter Filter
		want   uint64
	}{
		{Filter{}, 7},
		{Filter{PIDs: []int{10}}, 4},
		{Filter{PIDs: []int{20, 99}}, 3},
		{Filter{TIDs: []int{20}}, 2},
		{Filter{Comms: []string{"prog"}}, 5},
		{Filter{Comms: []string{"prog"}, PIDs: []int{20}}, 1},
		{Filter{Events: []string{"cpu-clock"}}, 7},
		{Filter{Events: []string{"cycles"}}, 0},
		{Filter{From: r.time}, 1},
		{Filter{To: r.time - 1}, 6},
	} {
		opt := r.options("perf")
		opt.Filter = c.filter
		_, s := r.run(t, opt)
		assert.Equal(t, c.want, s.Samples, "%+v", c.filter)
	}
}

func TestParseTime(t *testing.T) {
	var f Filter
	assert.NoError(t, f.ParseTime("5.000129,6"))
	assert.Equal(t, Filter{From: 5_000_129_000, To: 6_000_000_000}, f)
	f = Filter{}
	assert.NoError(t, f.ParseTime(",0.5"))
	assert.Equal(t, Filter{To: 500_000_000}, f)
	for _, bad := range []string{"", ",", "5", "a,b", "2,1", "1.0000000001,", "-1,", "99999999999999,", "1.-5,"} {
		assert.Error(t, new(Filter).ParseTime(bad), bad)
	}
}
