//go:build linux && amd64

package recorder

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/topview"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/term"
)

// This file connects a recording with package topview. Three goroutines take part: one records and ends a profile each
// second, one finds names for the last five, one draws. Each drops what comes too fast for the next.

// top shows the recording on the terminal.
type top struct {
	r      *run
	screen tcell.Screen
	todo   chan []*record.Profile   // to name; one waits at most
	tick   chan func(*topview.View) // changes of the view, which only its goroutine may make
	stop   chan struct{}            // closed when the recording has ended
	done   sync.WaitGroup

	// Of the goroutine that records.
	begun time.Time
	last  []*record.Profile // of topWindow
	all   []*record.Profile // of the whole time, if it will be written
}

// Each topEvery the screen shows the last topWindow.
const (
	topEvery  = time.Second
	topWindow = 5 * time.Second
)

// errNoTerminal says why nothing can be shown.
var errNoTerminal = errors.New("there is no terminal here; 'ehasm record -d 10 -o flame.svg' makes a picture instead")

// openTop finds the terminal, and leaves it unchanged until showTop: errors of the recording's start must be readable.
func openTop() (tcell.Screen, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, errNoTerminal
	}
	tty.Close()
	s, err := tcell.NewScreen()
	if err != nil {
		return nil, fmt.Errorf("terminal %s: %w", output.Name(os.Getenv("TERM")), err)
	}
	return s, nil
}

// showTop takes over the terminal. If the user quits, it sends SIGTERM to signals, as to a recorder without a
// terminal; the command gets it, too.
func (r *run) showTop(screen tcell.Screen, signals chan<- os.Signal) error {
	if err := screen.Init(); err != nil {
		return err
	}
	t := &top{r: r, screen: screen, todo: make(chan []*record.Profile, 1), tick: make(chan func(*topview.View)),
		stop: make(chan struct{}), begun: time.Now()}
	r.top = t
	t.done.Go(t.name)
	t.done.Go(func() {
		view := &topview.View{Title: "waiting for samples"}
		view.Draw(screen)
		view.Run(screen, t.tick, t.stop)
		select {
		case <-t.stop:
			return
		default:
		}
		select {
		case <-t.stop:
		case signals <- syscall.SIGTERM: // ^C does not come from a terminal in this state
		}
	})
	return nil
}

// close restores the terminal, and waits for the goroutines. t may be nil: nothing is shown.
func (t *top) close() {
	if t == nil {
		return
	}
	close(t.stop)
	close(t.todo)
	t.done.Wait()
	t.screen.Fini()
}

// each is called by the goroutine that records.
func (t *top) each() {
	if time.Since(t.begun) < topEvery {
		return
	}
	t.begun = time.Now()
	p := t.r.session.Take()
	p.Command = t.r.title()
	if t.r.opt.Output.Named {
		t.all = append(t.all, p)
	}
	t.last = append(t.last, p)
	if n := len(t.last) - int(topWindow/topEvery); n > 0 {
		t.last = slices.Delete(t.last, 0, n)
	}
	select {
	case t.todo <- slices.Clone(t.last):
	default: // naming takes longer than a second: skip this one
	}
}

// name names stacks while the recording goes on, until todo is closed.
func (t *top) name() {
	for parts := range t.todo {
		p := record.Join(parts)
		stacks := topStacks(p, t.r)
		title := fmt.Sprintf("%s: %s in the last %.0f s", t.r.target(), stackfmt.Number(p.Counts.Samples, "sample"),
			p.Duration.Seconds())
		if p.Counts.Lost > 0 {
			title += fmt.Sprintf(", %d lost", p.Counts.Lost)
		}
		if p.Counts.Unwound > 0 {
			title += fmt.Sprintf(", %.1f %% of stacks whole", 100*p.Counts.Whole())
		}
		select {
		case t.tick <- func(v *topview.View) { v.Title = title; v.Set(stacks) }:
		case <-t.stop:
		}
	}
}

// topStacks returns the stacks of a profile by names, outermost frame first, under the thread's name. A frame without
// a name is its library. Values are periods: nanoseconds for clocks.
func topStacks(p *record.Profile, r *run) (list []topview.Stack) {
	r.names.ForgetJIT()
	p.Each(r.names, func(s *stackfmt.Sample, period uint64) {
		frames := []topview.Frame{{Name: s.Comm}}
		for _, f := range slices.Backward(s.Frames) {
			library := strings.Trim(filepath.Base(f.DSO), "[]")
			frames = append(frames, topview.Frame{Name: cmp.Or(f.Shown(), "["+library+"]"), Library: library})
		}
		list = append(list, topview.Stack{Frames: frames, Value: period})
	})
	return list
}

// apart detaches a command from the terminal in use: what it wrote would spoil the view, and it would take keys from
// it. A nil file is /dev/null for exec.Cmd.
func apart(cmd *exec.Cmd) {
	for _, f := range []struct {
		file *os.File
		drop func()
	}{{os.Stdin, func() { cmd.Stdin = nil }}, {os.Stdout, func() { cmd.Stdout = nil }},
		{os.Stderr, func() { cmd.Stderr = nil }}} {
		if term.IsTerminal(int(f.file.Fd())) {
			f.drop()
		}
	}
}
