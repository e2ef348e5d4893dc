package topview

import (
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/internal/frame"

	"github.com/gdamore/tcell/v2"
)

// help is the last line.
const help = "q quit  tab functions/tree  enter callers, fold  / search  o order  space pause"

// Draw draws the view on all of a screen. The first two lines are the title and the column heads, the last is the
// help. It draws everything: tcell sends the terminal what has changed.
func (v *View) Draw(s tcell.Screen) {
	s.Clear()
	width, height := s.Size()
	const head = 2 // lines: title, heads of columns
	rows := height - head - 1
	title, last := v.Title, help
	if v.paused {
		title = "PAUSED  " + title
	}
	if v.typing || v.search != "" {
		last = "/" + v.search
	}
	put(s, 0, width, title, tcell.StyleDefault.Bold(true))
	put(s, height-1, width, last, tcell.StyleDefault.Reverse(true))
	if rows < 1 {
		s.Show()
		return
	}
	// The list may have become shorter since the last drawing: the cursor moves into it, and the
	// list is scrolled so that the cursor is visible.
	v.move(0)
	v.top = max(min(v.top, v.cursor), v.cursor-rows+1)
	var list []string
	if v.Mode == Tree {
		head := "    total"
		if v.of != nil {
			head += "  callers of " + v.of.Name
		}
		put(s, 1, width, head, tcell.StyleDefault.Underline(true))
		for _, l := range v.lines() {
			mark := " "
			if v.closed[l.path] {
				mark = "+"
			}
			list = append(list, v.percent(l.node.total)+" "+strings.Repeat(" ", l.depth)+mark+fit(l.node.Name, width-11-l.depth))
		}
	} else {
		put(s, 1, width, fmt.Sprintf("     self    total  %-*s  function", libraryWidth, "library"),
			tcell.StyleDefault.Underline(true))
		for i := range v.functions {
			f := &v.functions[i]
			list = append(list, fmt.Sprintf("%s %s  %-*.*s  %s", v.percent(f.self), v.percent(f.total), libraryWidth,
				libraryWidth, f.Library, fit(f.Name, width-39)))
		}
	}
	for i := v.top; i < len(list) && i < v.top+rows; i++ {
		style := tcell.StyleDefault
		if i == v.cursor {
			style = style.Reverse(true)
		}
		put(s, head+i-v.top, width, list[i], style)
	}
	s.Show()
}

// libraryWidth is the columns of a library's name.
const libraryWidth = 16

// fit returns a name, or its short form if it is wider than the columns. It counts bytes, as nearly all names are
// ASCII.
func fit(name string, columns int) string {
	if len(name) > columns {
		return frame.Short(name)
	}
	return name
}

// percent writes a weight as its share of all samples, nine characters wide.
func (v *View) percent(n uint64) string {
	return fmt.Sprintf("%7.1f %%", 100*float64(n)/float64(max(v.sum, 1)))
}

// put writes a line, cut at the right. The program chooses its names, so control characters are shown as dots: some
// would make the terminal do something.
func put(s tcell.Screen, y, width int, text string, style tcell.Style) {
	x := 0
	for _, r := range text {
		if x == width {
			return
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			r = '.'
		}
		s.SetContent(x, y, r, nil, style)
		x++
	}
}
