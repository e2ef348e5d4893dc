package ondemand

import (
	"context"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/builder"

	"github.com/stretchr/testify/assert"
)

// TestRowStepperTook counts up to the number of steps that are worth compiling.
func TestRowStepperTook(t *testing.T) {
	noted := 0
	s := rowStepper{worth: 10, note: func() { noted++ }}
	var took []bool
	for _, steps := range []int{9, 0, 5, 1, 100} {
		took = append(took, s.Took(steps))
	}
	assert.Equal(t, []bool{false, false, true, false, false}, took)
	assert.Equal(t, 1, noted)
}

// libc is a file that takes a while to be compiled.
const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// talk is what a build has told, but for files that are done.
type talk []string

func (p *talk) Note(name string, err error) { *p = append(*p, name+": "+err.Error()) }
func (p *talk) Begin(int, int64)            {}
func (p *talk) Done(*builder.Outcome)       {}
func (p *talk) End(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

// TestFillCacheInTime: a deadline ends it at once and silently, and what is there is whole.
func TestFillCacheInTime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	d := New(Options{Keep: true})
	for _, path := range []string{"/bin/true", libc, "/usr/bin/gdb"} {
		d.wants[path] = nil
	}
	ctx, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	var told talk
	begin := time.Now()
	d.FillCache(ctx, 1, &told)
	assert.Less(t, time.Since(begin), 10*time.Second)
	assert.Empty(t, told)
	light, heavy := splitBySize([]string{"/bin/true", libc, "/nowhere"})
	assert.Equal(t, []string{"/bin/true"}, light)
	assert.Equal(t, []string{libc, "/nowhere"}, heavy)
}
