package flamegraph

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file")

// drawn is a box as it is in a file.
type drawn struct {
	Title string `xml:"title"`
	Rect  struct {
		X      string `xml:"x,attr"`
		Y      int    `xml:"y,attr"`
		Width  string `xml:"width,attr"`
		Height int    `xml:"height,attr"`
		Fill   string `xml:"fill,attr"`
	} `xml:"rect"`
	Text  string `xml:"text"`
	depth int
}

type group struct {
	ID    string   `xml:"id,attr"`
	Boxes []drawn  `xml:"g"`
	Text  []string `xml:"text"`
}

type picture struct {
	XMLName xml.Name
	Width   int     `xml:"width,attr"`
	Height  int     `xml:"height,attr"`
	Title   string  `xml:"title"`
	Groups  []group `xml:"g"`
	Script  string  `xml:"script"`
}

// millionths reads a percentage in units of 1e-6 %.
func millionths(t *testing.T, s string) int {
	t.Helper()
	number, ok := strings.CutSuffix(s, "%")
	require.True(t, ok, s)
	whole, fraction, _ := strings.Cut(number, ".")
	n, err := strconv.Atoi(whole + (fraction + "000000")[:6])
	require.NoError(t, err)
	require.LessOrEqual(t, len(fraction), 6)
	return n
}

func (d *drawn) span(t *testing.T) (from, to int) {
	from = millionths(t, d.Rect.X)
	return from, from + millionths(t, d.Rect.Width)
}

// parse reads a drawing and checks what holds for all: one box of full width at
// the bottom, and each other one on a box that it does not jut out from, beside
// its siblings.
func parse(t *testing.T, svg []byte) picture {
	t.Helper()
	require.True(t, utf8.Valid(svg))
	var p picture
	require.NoError(t, xml.Unmarshal(svg, &p))
	require.Equal(t, xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}, p.XMLName)
	require.Len(t, p.Groups, 2)
	require.Equal(t, "frames", p.Groups[0].ID)
	require.Equal(t, "head", p.Groups[1].ID)
	require.Equal(t, script, strings.TrimPrefix(p.Script, "\n"))
	boxes := p.Groups[0].Boxes
	type edge struct{ from, to, used int }
	var open []edge
	for i := range boxes {
		b := &boxes[i]
		require.Zero(t, (boxes[0].Rect.Y-b.Rect.Y)%rowHeight)
		b.depth = (boxes[0].Rect.Y - b.Rect.Y) / rowHeight
		if boxes[0].Rect.Y == headSize { // inverted, or no more than this
			b.depth = -b.depth
		}
		require.LessOrEqual(t, b.depth, len(open), "a box in the air")
		require.GreaterOrEqual(t, b.Rect.Y, headSize)
		open = open[:b.depth]
		from, to := b.span(t)
		if i == 0 {
			require.Equal(t, [2]int{0, 100e6}, [2]int{from, to})
		} else {
			parent := &open[b.depth-1]
			require.GreaterOrEqual(t, from, parent.used, b.Title)
			require.LessOrEqual(t, to, parent.to, b.Title)
			parent.used = to
		}
		open = append(open, edge{from, to, from})
	}
	return p
}

func draw(t *testing.T, g *Graph, opt Options) ([]byte, Left) {
	t.Helper()
	var b bytes.Buffer
	left, err := g.Write(&b, opt)
	require.NoError(t, err)
	return b.Bytes(), left
}

func small() *Graph {
	g := New([]Frame{{Name: "prog", Kind: Base}, {Name: "_start", Kind: User}, {Name: "main", Kind: User},
		{Name: "std::vector<int>::push_back(int const&)", Kind: Inlined},
		{Name: "[libx.so]", Kind: Unknown}, {Name: "do_syscall_64", Kind: Kernel}, {Name: "[truncated]", Kind: Truncated},
		{Name: "main", Kind: User}, {Name: "sh", Kind: Base}})
	g.Add([]uint32{0, 1, 2, 3}, 30)
	g.Add([]uint32{0, 1, 7}, 10) // 7 is 2 again
	g.Add([]uint32{0, 1, 2, 5}, 900)
	g.Add([]uint32{0, 6, 4, 4}, 59)
	g.Add([]uint32{8}, 1)
	g.Add([]uint32{8, 2}, 0)
	g.Add([]uint32{0, 1, 2, 5}, 100)
	return g
}

func TestGolden(t *testing.T) {
	svg, left := draw(t, small(), Options{Title: "a <small> graph", Unit: "samples"})
	assert.Zero(t, left)
	path := filepath.Join("testdata", "small.svg")
	got := strings.NewReplacer(script, "SCRIPT\n", style, "STYLE\n").Replace(string(svg))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)

	var lines []string
	p := parse(t, svg)
	for _, b := range p.Groups[0].Boxes {
		lines = append(lines, fmt.Sprintf("%d %s %s %s", b.depth, b.Rect.X, b.Rect.Width, b.Title))
	}
	assert.Equal(t, []string{
		"0 0% 100% all (1,100 samples, 100.00 %)",
		"1 0% 99.90909% prog (1,099 samples, 99.91 %)",
		"2 0% 5.363636% [truncated] (59 samples, 5.36 %)",
		"3 0% 5.363636% [libx.so] (59 samples, 5.36 %)",
		"4 0% 5.363636% [libx.so] (59 samples, 5.36 %)",
		"2 5.363636% 94.545454% _start (1,040 samples, 94.55 %)",
		"3 5.363636% 94.545454% main (1,040 samples, 94.55 %)",
		"4 6.272727% 90.909091% do_syscall_64 (1,000 samples, 90.91 %)",
		"4 97.181818% 2.727272% std::vector<int>::push_back(int const&) (30 samples, 2.73 %)",
		"1 99.90909% 0.09091% sh (1 samples, 0.09 %)",
	}, lines)
	assert.Equal(t, "a <small> graph", p.Title)
	assert.Equal(t, "1,100 samples", p.Groups[1].Text[len(p.Groups[1].Text)-1])
}

// TestHostileNames draws names that a damaged or malicious object may have.
func TestHostileNames(t *testing.T) {
	names := []string{"", "<&\">'", "]]></script><script>alert(1)</script>", "a\x00b\x1b[31m\x7f", "\xff\xfe\xc3(",
		"\u202eevil\u200b",
		"\ufffe\uffff", "tab\tline\nend\r", strings.Repeat("漢字", 300), "f(int) (5 samples, 99.00 %)",
		"\U0010ffff", "&amp;",
		"ns::" + strings.Repeat("tuple<std::pair<int, ", 200)}
	var frames []Frame
	for _, n := range names {
		frames = append(frames, Frame{Name: n, Kind: User})
	}
	g := New(frames)
	for i := range names {
		g.Add([]uint32{uint32(i), uint32((i + 1) % len(names))}, uint64(i+1))
	}
	svg, left := draw(t, g, Options{Title: names[2] + names[3], Unit: "samples"})
	assert.Zero(t, left)
	boxes := parse(t, svg).Groups[0].Boxes
	assert.Len(t, boxes, 1+2*len(names))
	var titles []string
	for _, b := range boxes {
		name := b.Title[:strings.LastIndex(b.Title, " (")]
		titles = append(titles, name)
		assert.True(t, strings.HasPrefix(name, strings.TrimSuffix(b.Text, "…")) ||
			strings.HasPrefix(name, "ns::"+strings.TrimSuffix(b.Text, "…")), b.Text)
		from, to := b.span(t)
		columns := 0
		for _, r := range b.Text {
			columns++
			if r >= 0x1100 && r != '…' {
				columns++
			}
		}
		assert.LessOrEqual(t, float64(columns)*charWidth, max(0, width*float64(to-from)/100e6-2*pad))
	}
	for _, want := range []string{"", "<&\">'", "]]></script><script>alert(1)</script>", "a\ufffdb\ufffd[31m\ufffd",
		"\ufffdevil\ufffd", "tab\ufffdline\ufffdend\ufffd", "&amp;", "f(int) (5 samples, 99.00 %)", names[12]} {
		assert.Contains(t, titles, want)
	}
	assert.Equal(t, 1, strings.Count(string(svg), "<script>"))
	assert.NotContains(t, script, "]]>")
}

func TestEmpty(t *testing.T) {
	svg, _ := draw(t, New(nil), Options{Title: "nothing", Unit: "samples"})
	boxes := parse(t, svg).Groups[0].Boxes
	assert.Len(t, boxes, 1)
	assert.Equal(t, "all (0 samples, 0 %)", boxes[0].Title)
}

// randomStacks has one number per frame, 200 frames of which some are equal.
func randomStacks(seed uint64) ([]Frame, map[string]uint64) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	var frames []Frame
	for i := range 200 {
		frames = append(frames, Frame{Name: fmt.Sprintf("f%d", i%150), Kind: Kind(i % 150 % 5)})
	}
	stacks := make(map[string]uint64)
	for range 400 {
		s := make([]byte, rnd.IntN(12))
		for i := range s {
			s[i] = byte(rnd.IntN(1 + rnd.IntN(200)))
		}
		stacks[string(s)] = 1 + rnd.Uint64N(1000)
	}
	return frames, stacks
}

func graphOf(frames []Frame, stacks map[string]uint64) *Graph {
	g := New(frames)
	for s, n := range stacks { // in any order
		ids := make([]uint32, len(s))
		for i := range s {
			ids[i] = uint32(s[i])
		}
		g.Add(ids, n)
	}
	return g
}

// TestLabel: the end of a name stays longest.
func TestLabel(t *testing.T) {
	for _, c := range []struct {
		name    string
		columns int
		want    string
	}{
		{"std::map<...>::operator[]", 25, "std::map<...>::operator[]"},
		{"std::map<...>::operator[]", 24, "map<...>::operator[]"},
		{"std::map<...>::operator[]", 19, "operator[]"},
		{"std::map<...>::operator[]", 9, "operator…"},
		{"asmgen.(*T).f", 12, "(*T).f"},
		{"asmgen.(*T).f", 5, "f"},
		{"main.run.func1", 10, "run.func1"},
		{"main.run.func1", 8, "run.fun…"},
		{"finish_task_switch.isra.0", 20, "finish_task_switch.…"},
		{"__libc_start_main@@GLIBC_2.34", 20, "__libc_start_main@@…"},
		{"py::fib:/home/fib.py", 10, "fib:/home…"},
		{"+0x24ebd0 libruby", 12, "+0x24ebd0 l…"},
		{"a::b", 2, ""},
	} {
		assert.Equal(t, c.want, label(c.name, charWidth*(float64(c.columns)+.5)), "%s %d", c.name, c.columns)
	}
	// The script's expressions are the same.
	for _, expression := range []string{qualifier.String(), appended.String()} {
		assert.Contains(t, script, "/"+expression+"/")
	}
}

// TestRare: a stack of one sample in a thousand does not set the picture's height.
func TestRare(t *testing.T) {
	for _, c := range []struct {
		depth  int
		weight uint64
		rows   int
	}{{60, 1, 61}, {500, 1, usualRows}, {500, 50, 501}} {
		frames := make([]uint32, c.depth)
		g := New([]Frame{{Name: "deep"}})
		g.Add(frames, c.weight)
		g.Add(frames[:10], 1000-c.weight)
		svg, _ := draw(t, g, Options{Unit: "samples"})
		assert.Contains(t, string(svg), fmt.Sprintf(` height="%d"`, headSize+c.rows*rowHeight+foot))
		assert.Equal(t, c.rows == usualRows, strings.Contains(string(svg), "437 rows of rare stacks: zoom in</text>"))
		assert.Equal(t, 2+c.depth, strings.Count(string(svg), "<title>"), "zooming shows them")
	}
}

// TestObject: a tooltip has the library; of a name alone the box has the short form.
func TestObject(t *testing.T) {
	g := New([]Frame{{Name: "std::map<int, long>::find", Object: "liba.so"}, {Name: "jit", Kind: JIT}})
	g.Add([]uint32{0, 1}, 1)
	svg, _ := draw(t, g, Options{Unit: "samples"})
	assert.Contains(t, string(svg),
		`<g data-short="std::map&lt;...&gt;::find"><title>std::map&lt;int, long&gt;::find`+"\nliba.so (1 samples, 100.00 %)</title>")
	assert.Contains(t, string(svg), ">made at run time</text>")
}

// TestWeights compares all boxes with sums over prefixes of the stacks.
func TestWeights(t *testing.T) {
	frames, stacks := randomStacks(1)
	want := make(map[string]uint64)
	for s, n := range stacks {
		key := "/all"
		want[key] += n
		for _, f := range []byte(s) {
			key += fmt.Sprintf("/%s %d", frames[f].Name, frames[f].Kind)
			want[key] += n
		}
	}
	g := graphOf(frames, stacks)
	got := make(map[string]uint64)
	path := []string{}
	for _, b := range g.boxes(new(Left)) {
		name := "/all"
		if b.frame != rootFrame {
			name = fmt.Sprintf("/%s %d", g.frames[b.frame].Name, g.frames[b.frame].Kind)
		}
		path = append(path[:b.depth], name)
		key := strings.Join(path, "")
		assert.NotContains(t, got, key)
		got[key] = b.weight()
	}
	assert.Equal(t, want, got)

	svg, left := draw(t, graphOf(frames, stacks), Options{Unit: "samples", MaxBytes: 100 << 20})
	again, _ := draw(t, graphOf(frames, stacks), Options{Unit: "samples", MaxBytes: 100 << 20})
	assert.Equal(t, svg, again)
	assert.Zero(t, left)
	assert.Len(t, parse(t, svg).Groups[0].Boxes, len(want))
}

// TestPrune wants small files, and to be told what they lack.
func TestPrune(t *testing.T) {
	frames, stacks := randomStacks(2)
	g := graphOf(frames, stacks)
	all := g.boxes(new(Left))
	for _, size := range []int{1, 3000, 20_000, 100_000, 200_000} {
		svg, left := draw(t, g, Options{Unit: "samples", MaxBytes: size})
		assert.Less(t, len(svg), size+len(script)+len(style)+3000)
		p := parse(t, svg)
		boxes, light := 0, uint64(0)
		var until uint64
		for _, b := range all {
			if b.depth > 0 && b.weight() < left.Below {
				boxes++
				if b.start >= until {
					light += b.weight()
					until = b.end
				}
			}
		}
		assert.Equal(t, Left{boxes, left.Below, light}, left)
		assert.Len(t, p.Groups[0].Boxes, len(all)-boxes)
		assert.Positive(t, boxes)
		text := p.Groups[1].Text[len(p.Groups[1].Text)-1]
		assert.Contains(t, text, fmt.Sprintf("not drawn: %s boxes of fewer than %s samples", thousands(uint64(boxes)),
			thousands(left.Below)))
	}
}

// TestBigWeights has periods instead of samples.
func TestBigWeights(t *testing.T) {
	g := New([]Frame{{Name: "a", Kind: User}, {Name: "b", Kind: User}})
	g.Add([]uint32{0}, 1<<63)
	g.Add([]uint32{0, 1}, 1)
	g.Add([]uint32{1}, 1<<62)
	svg, _ := draw(t, g, Options{Unit: "cycles"})
	boxes := parse(t, svg).Groups[0].Boxes
	assert.Len(t, boxes, 4)
	assert.Equal(t, "a (9,223,372,036,854,775,809 cycles, 66.67 %)", boxes[1].Title)
	assert.Equal(t, "66.666666%", boxes[1].Rect.Width)
}

func TestColors(t *testing.T) {
	seen := make(map[string]Kind)
	for k := range numKinds {
		for i := range 500 {
			c := Frame{Name: fmt.Sprintf("function%d", i), Kind: k}.color()
			require.Regexp(t, "^#[0-9a-f]{6}$", c)
			other, ok := seen[c]
			require.True(t, !ok || other == k, "%s is of two kinds", c)
			seen[c] = k
		}
	}
	assert.Greater(t, len(seen), 500)
	for _, c := range []struct {
		h, s, l float64
		want    string
	}{{0, 100, 50, "#ff0000"}, {120, 100, 25, "#008000"}, {240, 100, 50, "#0000ff"}, {0, 0, 50, "#808080"},
		{210, 50, 40, "#336699"}} {
		assert.Equal(t, c.want, hsl(c.h, c.s, c.l))
	}
}

// TestInverted wants the same boxes, the other way up.
func TestInverted(t *testing.T) {
	up, _ := draw(t, small(), Options{Title: "a", Unit: "samples"})
	down, _ := draw(t, small(), Options{Title: "a", Unit: "samples", Inverted: true, Width: 800})
	a, b := parse(t, up), parse(t, down)
	assert.Equal(t, 800, b.Width)
	assert.Contains(t, string(down[:300]), ` data-fixed="1"`)
	assert.NotContains(t, string(up[:300]), `data-fixed`)
	assert.Equal(t, a.Height, b.Height)
	assert.Len(t, b.Groups[0].Boxes, len(a.Groups[0].Boxes))
	for i := range a.Groups[0].Boxes {
		x, y := a.Groups[0].Boxes[i], b.Groups[0].Boxes[i]
		assert.Equal(t, x.depth, y.depth)
		assert.Equal(t, x.Title, y.Title)
		assert.Equal(t, x.Rect.X+x.Rect.Width+x.Rect.Fill, y.Rect.X+y.Rect.Width+y.Rect.Fill)
		assert.Equal(t, a.Height-foot-rowHeight-x.Rect.Y, y.Rect.Y-headSize)
	}
}

// TestCompared has the shares of before, and colours by the difference.
func TestCompared(t *testing.T) {
	g := New([]Frame{{Name: "main", Kind: User}, {Name: "slower", Kind: User}, {Name: "faster", Kind: User},
		{Name: "same", Kind: User}, {Name: "gone", Kind: User}, {Name: "new", Kind: User}})
	g.Add([]uint32{0, 1}, 50)
	g.Add([]uint32{0, 2}, 10)
	g.Add([]uint32{0, 3}, 30)
	g.Add([]uint32{0, 5}, 10)
	g.AddBefore([]uint32{0, 1}, 40) // twice as many samples in all
	g.AddBefore([]uint32{0, 2}, 80)
	g.AddBefore([]uint32{0, 3}, 60)
	g.AddBefore([]uint32{0, 4}, 20)
	svg, left := draw(t, g, Options{Unit: "samples"})
	assert.Zero(t, left)
	p := parse(t, svg)
	fills := make(map[string]string)
	var titles []string
	for _, b := range p.Groups[0].Boxes {
		titles = append(titles, b.Title)
		fills[strings.Fields(b.Title)[0]] = b.Rect.Fill
	}
	assert.Equal(t, []string{
		"all (100 samples, 100.00 %, before 100.00 %)", "main (100 samples, 100.00 %, before 100.00 %)",
		"faster (10 samples, 10.00 %, before 40.00 %)", "new (10 samples, 10.00 %, before 0.00 %)",
		"same (30 samples, 30.00 %, before 30.00 %)", "slower (50 samples, 50.00 %, before 20.00 %)",
	}, titles)
	assert.Equal(t, fills["all"], fills["same"])
	assert.Equal(t, changed(-0.3, 0.3), fills["faster"])
	assert.Equal(t, changed(0.3, 0.3), fills["slower"])
	assert.Equal(t, changed(0.1, 0.3), fills["new"])
	assert.Len(t, map[string]bool{fills["same"]: true, fills["faster"]: true, fills["slower"]: true,
		fills["new"]: true}, 4)
	assert.Equal(t, "100 samples; before: 200", p.Groups[1].Text[len(p.Groups[1].Text)-1])

	g = New([]Frame{{Name: "a", Kind: User}})
	g.AddBefore([]uint32{0}, 5)
	svg, _ = draw(t, g, Options{Unit: "samples"})
	assert.Equal(t, "all (0 samples, 0 %, before 100.00 %)", parse(t, svg).Groups[0].Boxes[0].Title)
}

type failing struct{}

var errFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestWriteError(t *testing.T) {
	_, err := small().Write(failing{}, Options{})
	assert.ErrorIs(t, err, errFull)
}
