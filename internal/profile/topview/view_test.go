package topview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// calls returns a stack of functions of libx.so, outermost first.
func calls(value uint64, names ...string) Stack {
	s := Stack{Value: value}
	for _, name := range names {
		s.Frames = append(s.Frames, Frame{name, "libx.so"})
	}
	return s
}

var stacks = []Stack{
	calls(30, "main", "parse", "malloc"),
	calls(20, "main", "parse", "parse", "malloc"),
	calls(45, "main", "run"),
	calls(5, "main", "write\x1b[31m"),
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
	s, text := screen(t, 80, 8)
	v.Draw(s)
	line := func(self, total, name string) string {
		return fmt.Sprintf("%7s %% %7s %%  %-16s  %s", self, total, "libx.so", name)
	}
	assert.Equal(t, []string{"100 samples", "     self    total  library           function",
		line("50.0", "50.0", "malloc"), line("45.0", "45.0", "run"), line("5.0", "5.0", "write.[31m"),
		line("0.0", "100.0", "main"),
		line("0.0", "50.0", "parse"), help}, text())
	v.order()
	v.Draw(s)
	assert.Equal(t, line("0.0", "100.0", "main"), text()[2])
	assert.Equal(t, line("50.0", "50.0", "malloc"), text()[3])
	v.Set([]Stack{calls(1, "std::map<std::basic_string<char>, long>::operator[]")})
	v.Draw(s)
	assert.Equal(t, line("100.0", "100.0", "std::map<...>::operator[]"), text()[2], "there is no room for more")
}

func TestTree(t *testing.T) {
	v := new(View)
	v.Set(stacks)
	v.Next()
	s, text := screen(t, 30, 12)
	v.Draw(s)
	assert.Equal(t, []string{"", "    total", "  100.0 %  main", "   50.0 %   parse", "   30.0 %    malloc",
		"   20.0 %    parse", "   20.0 %     malloc", "   45.0 %   run", "    5.0 %   write.[31m"}, text()[:9])
	v.move(1)
	v.enter()
	v.Draw(s)
	assert.Equal(t, []string{"  100.0 %  main", "   50.0 %  +parse", "   45.0 %   run"}, text()[2:5])
	v.Set(stacks[:2]) // what is folded stays so
	v.Draw(s)
	assert.Equal(t, []string{"  100.0 %  main", "  100.0 %  +parse", ""}, text()[2:5])
}

// TestCallers: enter on a function shows who calls it; each stack counts once.
func TestCallers(t *testing.T) {
	v := new(View)
	v.Set(append([]Stack{calls(10, "main", "run", "parse")}, stacks...))
	s, text := screen(t, 40, 12)
	v.search = "PARSE"
	v.show(Functions, nil)
	assert.Empty(t, v.functions, "capital letters are meant")
	v.search = "pars"
	v.show(Functions, nil)
	require.Len(t, v.functions, 1)
	v.enter()
	v.Draw(s)
	assert.Equal(t, []string{"    total  callers of parse", "   54.5 %  parse", "   27.3 %   main", "   18.2 %   parse",
		"   18.2 %    main",
		"    9.1 %   run", "    9.1 %    main", ""}, text()[1:9])
	v.Next()
	v.Next()
	v.Draw(s)
	assert.Equal(t, "    total", text()[1], "all stacks again")
	assert.Equal(t, "   54.5 %  main", text()[2], "of those that have what is searched for")
}

// TestScroll: the cursor stays in sight, and within the lines.
func TestScroll(t *testing.T) {
	var many []Stack
	for i := range 50 {
		many = append(many, calls(uint64(100-i), string(rune('A'+i%26))+string(rune('a'+i/26))))
	}
	v := new(View)
	v.Set(many)
	s, text := screen(t, 50, 8)
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
	s, text := screen(t, 60, 8)
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
	shown("    total\n  100.0 %  main")
	s.InjectKey(tcell.KeyRune, ' ', 0)
	shown("PAUSED  first")
	s.InjectKey(tcell.KeyTab, 0, 0)
	shown("     self    total  library")
	tick <- func(v *View) { v.Title = "not while paused" }
	s.InjectKey(tcell.KeyRune, ' ', 0)
	s.InjectKey(tcell.KeyTab, 0, 0)
	shown("    total\n  100.0 %  main")
	tick <- func(v *View) { v.Title = "second" }
	shown("second")
	s.InjectKey(tcell.KeyTab, 0, 0)
	for _, r := range "/ruq" {
		s.InjectKey(tcell.KeyRune, r, 0)
	}
	shown("\n/ruq")
	s.InjectKey(tcell.KeyBackspace2, 0, 0)
	s.InjectKey(tcell.KeyEnter, 0, 0)
	shown("function\n   45.0 %    45.0 %  libx.so           run\n\n")
	s.InjectKey(tcell.KeyEnter, 0, 0)
	shown("callers of run\n   45.0 %  run\n   45.0 %   main")
	s.InjectKey(tcell.KeyEscape, 0, 0) // to the functions
	s.InjectKey(tcell.KeyEscape, 0, 0) // to all of them
	shown("malloc")
	s.InjectKey(tcell.KeyRune, 'q', 0)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		require.Fail(t, "it does not quit")
	}
}
