package script

import (
	"strings"
	"testing"

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
