//go:build linux && amd64

package recorder

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/profile/record"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// talk is a console that keeps what it is told.
type talk struct {
	mu    sync.Mutex
	lines []string
}

func (c *talk) Fail(name string, err error) { c.Note(name, err) }

func (c *talk) Note(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, name+": "+err.Error())
}

func (c *talk) Stdout() io.Writer             { return io.Discard }
func (c *talk) Stderr() io.Writer             { return io.Discard }
func (c *talk) Filling(bool) builder.Progress { return nil }

func (c *talk) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

// TestStuck: a profile that cannot be written does not hold up those after it; when as many as may be are stuck,
// others are dropped until one is written.
func TestStuck(t *testing.T) {
	var out talk
	s := &parts{r: &run{opt: &Options{}, c: &out}, todo: make(chan *record.Profile)}
	written, release, ended := make(chan int), make(chan struct{}), make(chan struct{})
	stuck := make(chan struct{}, mostStuck)
	go func() {
		s.writeAll(func(p *record.Profile) {
			if p.Weigh == 0 {
				stuck <- struct{}{}
				<-release
			}
			written <- int(p.Weigh)
		}, time.Millisecond)
		close(ended)
	}()
	s.todo <- &record.Profile{}
	s.todo <- &record.Profile{Weigh: 1}
	assert.Equal(t, 1, <-written)
	dropped := 1 - mostStuck
	for ; len(stuck) < mostStuck; dropped++ { // also one for which the last written made no room yet
		s.todo <- &record.Profile{}
	}
	s.todo <- &record.Profile{Weigh: 2}
	dropped++
	require.Eventually(t, func() bool {
		return dropped == strings.Count(out.text(), "a profile is dropped: 4 before it are still not written")
	}, time.Minute, time.Millisecond)
	close(release)
	for range mostStuck {
		assert.Zero(t, <-written)
	}
	assert.Eventually(t, func() bool { // until those have made room
		s.todo <- &record.Profile{Weigh: 3}
		select {
		case w := <-written:
			return w == 3
		case <-time.After(10 * time.Millisecond):
			return false
		}
	}, time.Minute, time.Millisecond)
	close(s.todo)
	<-ended
	assert.Contains(t, out.text(), "is not written after 1ms: going on with the next")
}

// TestUsage: a status has what the process takes.
func TestUsage(t *testing.T) {
	u := newUsage()
	for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
	}
	assert.Regexp(t, `^recorder: [0-9]+\.[0-9] % of a CPU, [1-9][0-9]* MB$`, u.text())
	assert.NotContains(t, newUsage().text(), "NaN")
}
