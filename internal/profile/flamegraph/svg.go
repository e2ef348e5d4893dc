package flamegraph

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ehasm/ehasm/internal/frame"
)

//go:embed flamegraph.js
var script string

//go:embed flamegraph.css
var style string

// Sizes in CSS pixels. The script knows rowHeight and pad as well.
const (
	width     = 1200 // until the script fits it to the window, unless Options.Width is given
	headSize  = 66   // title, legend, details
	rowHeight = 16
	pad       = 3   // between a box and its text
	charWidth = 7.3 // upper bound of usual fixed-width fonts at 12 pixels
	foot      = 4
	usualRows = 64 // rows behind them that take less than 1 % show only when zoomed in: rare stacks made white pictures
)

// boxBytes is roughly the size of a box in the file, without its name.
const boxBytes = 140

// DefaultBytes is the default of Options.MaxBytes.
const DefaultBytes = 4 << 20

// Options are the settings of Write.
type Options struct {
	Title    string
	Unit     string // of weights, plural
	MaxBytes int    // approximate limit on the file's size, by which lighter boxes are left out; 0: DefaultBytes
	Width    int    // in CSS pixels; 0: the window's width
	Inverted bool   // boxes hang below their callers
	Note     string // after the number of weights in the line of details; may be empty
}

// Write draws the graph as SVG and returns what it left out. The graph stays as it is.
func (g *Graph) Write(w io.Writer, opt Options) (Left, error) {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultBytes
	}
	left := g.choose(opt.MaxBytes)
	all := g.boxes(&left)
	d := &drawing{Writer: bufio.NewWriter(w), g: g, opt: opt, total: all[0].weight(), before: all[0].before,
		width: cmp.Or(opt.Width, width)}
	// First pass: what the whole picture needs to know before the first box is written.
	var levels []uint64 // weight by depth
	for _, b := range all {
		levels = append(levels, make([]uint64, max(0, int(b.depth)+1-len(levels)))...)
		levels[b.depth] += b.weight()
		d.kinds[g.frame(b.frame).Kind] = true
		d.largest = max(d.largest, math.Abs(d.difference(&b)))
	}
	rows := len(levels)
	for rows > usualRows && levels[rows-1] < d.total/100 {
		rows--
	}
	d.rare = len(levels) - rows
	height := headSize + rows*rowHeight + foot
	fixed := "" // the script does not fit a graph of fixed width to the window
	if opt.Width > 0 {
		fixed = ` data-fixed="1"`
	}
	fmt.Fprintf(d, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"%s font-size="12" font-family="Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace">
<title>%s</title>
<style>
%s</style>
<rect class="paper" width="100%%" height="100%%"/>
<g id="frames">
`, d.width, height, fixed, text(opt.Title), style)
	for i := range all {
		y := height - foot - (int(all[i].depth)+1)*rowHeight
		if opt.Inverted {
			y = headSize + int(all[i].depth)*rowHeight
		}
		d.box(&all[i], y)
	}
	d.WriteString("</g>\n")
	d.head(left)
	fmt.Fprintf(d, "<script><![CDATA[\n%s]]></script>\n</svg>\n", script)
	return left, d.Flush()
}

// frame returns the frame of this number, or the one of the box of all stacks.
func (g *Graph) frame(i uint32) Frame {
	if i == rootFrame {
		return Frame{Name: "all", Kind: Base}
	}
	return g.frames[i]
}

// drawing is one call of Write. The bufio.Writer keeps the first error.
type drawing struct {
	*bufio.Writer
	g      *Graph
	opt    Options
	total  uint64         // weight of all stacks
	before uint64         // in all
	width  int            // in CSS pixels
	kinds  [numKinds]bool // that occur
	rare   int            // rows that do not show
	// largest is the largest difference between a box's share and its share before.
	largest float64
}

// difference returns a box's share minus its share before, -1 to 1; 0 without a recording to compare with.
func (d *drawing) difference(b *box) float64 {
	if !d.g.compared || d.total == 0 {
		return 0
	}
	before := 0.0
	if d.before > 0 {
		before = float64(b.before) / float64(d.before)
	}
	return float64(b.weight())/float64(d.total) - before
}

// color returns a box's fill: by the change of its share if there is a recording to compare with,
// otherwise by its frame.
func (d *drawing) color(f Frame, b *box) string {
	if d.g.compared {
		return changed(d.difference(b), d.largest)
	}
	return f.color()
}

// box writes a box whose upper edge is at y.
func (d *drawing) box(b *box, y int) {
	f := d.g.frame(b.frame)
	from, to := d.position(b.start), d.position(b.end) // of the edges, in millionths of a percent
	if d.total == 0 {                                  // an empty graph is one full box
		to = whole
	}
	left, short, object := percent(from), f.Name, f.Object
	d.WriteString("<g")
	if f.Kind != Base {
		if short = frame.Short(f.Name); short != f.Name {
			fmt.Fprintf(d, ` data-short="%s"`, text(short))
		}
	}
	if object != "" {
		object = "\n" + text(object)
	}
	fmt.Fprintf(d, `><title>%s%s (%s)</title><rect x="%s" y="%d" width="%s" height="%d" fill="%s"/>`,
		text(f.Name), object, d.amount(b), left, y, percent(to-from), rowHeight-1, d.color(f, b))
	if t := label(clean(short), float64(to-from)/whole*float64(d.width)-2*pad); t != "" {
		fmt.Fprintf(d, `<text x="%s" dx="%d" y="%d">%s</text>`, left, pad, y+rowHeight-4, text(t))
	}
	d.WriteString("</g>\n")
}

// whole is the graph's width in the unit of position.
const whole = 100_000_000

// position returns the horizontal position of a sample. Rounding positions, and never
// widths, keeps boxes within those they stand on.
func (d *drawing) position(sample uint64) uint64 {
	if d.total == 0 {
		return 0
	}
	hi, lo := bits.Mul64(sample, whole)
	q, _ := bits.Div64(hi, lo, d.total) // sample <= total, so it fits
	return q
}

// percent writes a place as a percentage, exactly.
func percent(place uint64) string {
	const one, digits = whole / 100, 6 // a percent in the unit of place, and its digits behind the point
	s := strconv.FormatUint(place/one, 10)
	if rest := place % one; rest > 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%0*d", digits, rest), "0")
	}
	return s + "%"
}

// amount returns a box's weight with its unit and share. The script removes it from a title
// at the last " (".
func (d *drawing) amount(b *box) string {
	a := fmt.Sprintf("%s %s, %s", thousands(b.weight()), d.opt.Unit, share(b.weight(), d.total))
	if d.g.compared {
		a += ", before " + share(b.before, d.before)
	}
	return a
}

// share returns weight as a percentage of total; 0 % if total is 0.
func share(weight, total uint64) string {
	if total == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(weight)/float64(total))
}

// head writes title, legend and the line of details, which at first describes
// the graph.
func (d *drawing) head(left Left) {
	const titleChars, line1, line2, line3 = 80, 20, 39, 58 // and the base lines of the texts, in pixels
	fmt.Fprintf(d, `<g id="head"><rect class="paper" width="100%%" height="%d"/>
<text class="ink" x="8" y="%d" font-size="14" font-weight="bold">%s</text>
`, headSize-2, line1, text(cut(clean(d.opt.Title), titleChars)))
	// A square of each kind that occurs, or the three colours of a comparison.
	x := 8.0
	legend := func(color, name string) {
		fmt.Fprintf(d, `<rect x="%.0f" y="%d" width="11" height="11" fill="%s"/><text class="ink" x="%.0f" y="%d">%s</text>`+"\n",
			x, line2-10, color, x+16, line2, name)
		x += 16 + charWidth*float64(len(name)+2)
	}
	if d.g.compared {
		legend(changed(1, 1), "larger share than before")
		legend(changed(0, 1), "the same")
		legend(changed(-1, 1), "smaller")
	}
	for k, name := range [numKinds]string{"user", "inlined", "kernel", "made at run time", "no name",
		"cut off: callers not known", ""} {
		if d.g.compared || !d.kinds[k] || name == "" {
			continue
		}
		p := Kind(k).palette()
		legend(hsl(p.hue+p.hues/2, p.saturation, p.light+p.lights/2), name)
	}
	fmt.Fprintf(d, `<text class="ink" id="details" x="8" y="%d">%s %s`, line3, thousands(d.total), text(d.opt.Unit))
	if d.g.compared {
		fmt.Fprintf(d, "; before: %s", thousands(d.before))
	}
	if d.opt.Note != "" {
		fmt.Fprintf(d, "; %s", text(d.opt.Note))
	}
	if left.Boxes > 0 {
		fmt.Fprintf(d, "; not drawn: %s boxes of fewer than %s %s, in which %s end",
			thousands(uint64(left.Boxes)), thousands(left.Below), text(d.opt.Unit), share(left.Weight, d.total))
	}
	if d.rare > 0 {
		fmt.Fprintf(d, "; %d rows of rare stacks: zoom in", d.rare)
	}
	d.WriteString("</text>\n</g>\n")
}

// thousands writes n with commas between groups of three digits.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// What label takes off: a namespace, class or package; not before what GCC and Go append to a function's name.
var (
	qualifier = regexp.MustCompile(`^(?:[^<>(){}\[\].: ]|<[^<>]*>|\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\])+(?:::|\.)`)
	appended  = regexp.MustCompile(`^(?:isra|part|constprop|cold|lto_priv|llvm|func\d|\d)`)
)

// label returns as much of a name as fits into a width in pixels, its end rather than what qualifies it, or "" if that
// is too little to be of use.
func label(name string, pixels float64) string {
	const least = 3 // characters
	chars := int(pixels / charWidth)
	if chars < least {
		return ""
	}
	for cut(name, chars) != name {
		rest := name[len(qualifier.FindString(name)):]
		if rest == name || rest == "" || appended.MatchString(rest) {
			break
		}
		name = rest
	}
	return cut(name, chars)
}

// cut shortens s, which is valid UTF-8, to a number of columns. Runes from U+1100 on
// count as wide.
func cut(s string, columns int) string {
	end, used := 0, 0 // of the part that leaves room for the ellipsis
	for i, r := range s {
		w := 1
		if r >= 0x1100 {
			w = 2
		}
		if used+w > columns {
			return s[:end] + "…"
		}
		used += w
		if used < columns {
			end = i + utf8.RuneLen(r)
		}
	}
	return s
}

// clean replaces by U+FFFD bytes that are not UTF-8, and unprintable
// characters, which could hide others.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// text escapes s for XML.
func text(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(clean(s))) // a strings.Builder never fails
	return b.String()
}
