package topview

import (
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var stacks = []Stack{
	{[]string{"main", "parse", "malloc"}, 30},
	{[]string{"main", "parse", "parse", "malloc"}, 20},
	{[]string{"main", "run"}, 45},
	{[]string{"main", "write\x1b[31m"}, 5},
}

// screen returns what a simulated terminal of some lines shows.
func screen(t *testing.T, width, height int) (tcell.SimulationScreen, func() []string) {
	s := tcell.NewSimulationScreen("UTF-8")
	require.NoError(t, s.Init())
	t.Cleanup(s.Fini)
	s.SetSize(width, height)
	return s, func() []string {
		cells, w, h := s.GetContents()
		lines := make([]string, h)
		for y := range lines {
			var b strings.Builder
			for _, c := range cells[y*w : (y+1)*w] {
				b.WriteString(string(c.Runes))
			}
			lines[y] = strings.TrimRight(b.String(), " ")
		}
		return lines
	}
}

func TestFunctions(t *testing.T) {
	v := &View{Title: "100 samples"}
	v.Set(stacks)
	s, text := screen(t, 40, 8)
	v.Draw(s)
	assert.Equal(t, []string{"100 samples", "   self   total  function",
		"  50.0%   50.0%  malloc", "  45.0%   45.0%  run", "   5.0%    5.0%  write.[31m", "   0.0%  100.0%  main",
		"   0.0%   50.0%  parse",
		help[:40]}, text())
	v.order()
	v.Draw(s)
	assert.Equal(t, "   0.0%  100.0%  main", text()[2])
	assert.Equal(t, "  50.0%   50.0%  malloc", text()[3])
}

func TestTree(t *testing.T) {
	v := new(View)
	v.Set(stacks)
	v.Next()
	s, text := screen(t, 30, 12)
	v.Draw(s)
	assert.Equal(t, []string{"", "  total", " 100.0%  main", "  50.0%   parse", "  30.0%    malloc",
		"  20.0%    parse", "  20.0%     malloc", "  45.0%   run", "   5.0%   write.[31m"}, text()[:9])
	v.move(1)
	v.fold()
	v.Draw(s)
	assert.Equal(t, []string{" 100.0%  main", "  50.0%  +parse", "  45.0%   run"}, text()[2:5])
	v.Set(stacks[:2]) // what is folded stays so
	v.Draw(s)
	assert.Equal(t, []string{" 100.0%  main", " 100.0%  +parse", ""}, text()[2:5])
}

// TestScroll: the cursor stays in sight, and within the lines.
func TestScroll(t *testing.T) {
	var many []Stack
	for i := range 50 {
		many = append(many, Stack{[]string{string(rune('A'+i%26)) + string(rune('a'+i/26))}, uint64(100 - i)})
	}
	v := new(View)
	v.Set(many)
	s, text := screen(t, 30, 8)
	v.move(20)
	v.Draw(s)
	assert.Contains(t, text()[6], "Ua")
	v.move(1000)
	v.Draw(s)
	assert.Contains(t, text()[6], "Xb")
	v.move(-1000)
	v.Draw(s)
	assert.Contains(t, text()[2], "Aa")
	v.Set(nil)
	v.Draw(s)
	assert.Empty(t, text()[2])
	s.SetSize(3, 2) // too small for anything
	v.Draw(s)
}

func TestKeys(t *testing.T) {
	s, text := screen(t, 40, 8)
	v, tick, done := new(View), make(chan func(*View)), make(chan struct{})
	go func() {
		v.Run(s, tick, make(chan struct{}))
		close(done)
	}()
	shown := func(want string) {
		require.Eventually(t, func() bool { return strings.Contains(strings.Join(text(), "\n"), want) },
			10*time.Second, time.Millisecond, want)
	}
	tick <- func(v *View) { v.Title = "first"; v.Set(stacks) }
	shown("first")
	s.InjectKey(tcell.KeyTab, 0, 0)
	shown("  total\n 100.0%  main")
	s.InjectKey(tcell.KeyRune, ' ', 0)
	s.InjectKey(tcell.KeyTab, 0, 0)
	shown("   self   total  function")
	tick <- func(v *View) { v.Title = "not while paused" }
	s.InjectKey(tcell.KeyRune, ' ', 0)
	s.InjectKey(tcell.KeyTab, 0, 0)
	shown("  total\n 100.0%  main")
	tick <- func(v *View) { v.Title = "second" }
	shown("second")
	s.InjectKey(tcell.KeyRune, 'q', 0)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "it does not quit")
	}
}
