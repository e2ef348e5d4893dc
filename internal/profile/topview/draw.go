package topview

import (
	"fmt"
	"strings"

	"github.com/gdamore/tcell/v2"
)

// help is the last line.
const help = "q quit  tab functions/tree  o order  space pause  arrows move  enter fold"

// Draw draws the view on all of a screen. The first two lines are the title and the column heads,
// the last is the help.
func (v *View) Draw(s tcell.Screen) {
	s.Clear()
	width, height := s.Size()
	const head = 2
	rows := height - head - 1
	put(s, 0, width, v.Title, tcell.StyleDefault.Bold(true))
	put(s, height-1, width, help, tcell.StyleDefault.Reverse(true))
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
		put(s, 1, width, "  total", tcell.StyleDefault.Underline(true))
		for _, l := range v.lines() {
			mark := " "
			if v.closed[l.path] {
				mark = "+"
			}
			list = append(list, v.percent(l.node.total)+" "+strings.Repeat(" ", l.depth)+mark+l.node.name)
		}
	} else {
		put(s, 1, width, "   self   total  function", tcell.StyleDefault.Underline(true))
		for i := range v.functions {
			f := &v.functions[i]
			list = append(list, v.percent(f.self)+" "+v.percent(f.total)+"  "+f.name)
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

// percent writes a weight as its share of all samples, seven characters wide.
func (v *View) percent(n uint64) string {
	return fmt.Sprintf("%6.1f%%", 100*float64(n)/float64(max(v.sum, 1)))
}

// put writes a line, cut at the right. The program chooses its names, so control
// characters are shown as dots.
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
