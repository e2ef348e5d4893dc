package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// writePlots draws what was measured, each as SVG and PNG.
// This file draws the plots with gonum: speed, bars, sizes and build times, from the same results
// as the report.

func writePlots(dir string, r *results) error {
	if r.Step != nil {
		if err := plotSpeed(dir, r.Step); err != nil {
			return err
		}
		if err := plotBars(dir, r.Step); err != nil {
			return err
		}
	}
	if len(r.Size) > 0 {
		if err := plotSize(dir, r); err != nil {
			return err
		}
	}
	if len(r.Build) > 0 {
		return plotBuild(dir, r)
	}
	return nil
}

// save writes a plot as SVG and PNG; w and h are its size.
func save(p *plot.Plot, w, h font.Length, dir, name string) error {
	for _, ext := range []string{".svg", ".png"} {
		if err := p.Save(w, h, filepath.Join(dir, name+ext)); err != nil {
			return err
		}
	}
	return nil
}

// newPlot returns an empty plot with titles of the axes.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	p.BackgroundColor = color.White
	return p
}

// margin keeps labels off the edge of the picture.
const margin = "   "

// palette is Okabe and Ito's, which colour-blind readers can tell apart.
var palette = [...]color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {90, 90, 90, 255},
}

// speedPatterns are the series of the speed plot, hot to cold, and their names.
var speedPatterns = [...][2]string{
	{"hot", "one stack"}, {"turn8", "8 in turn"}, {"turn20", "20 in turn"},
	{"bytes2000", "2,000 random"}, {"cold", "memory cold"},
}

// plotSpeed draws ns per frame: a row for each contender, a dot for each pattern,
// a line from the least to the largest.
func plotSpeed(dir string, s *stepResults) error {
	p := newPlot("Nanoseconds per frame, hot to cold", "ns per frame (median; bar: min to max over the rounds)", "")
	var names []string
	var rows []contender
	list := contenders()
	// The plot counts rows from below, the table from above.
	for i := len(list) - 1; i >= 0; i-- {
		if len(s.Samples["bytes2000"][list[i].Name]) > 0 || len(s.Samples["hot"][list[i].Name]) > 0 {
			rows = append(rows, list[i])
			names = append(names, margin+list[i].Name)
		}
	}
	p.Add(grid())
	largest := 1.0
	for k, series := range speedPatterns {
		var pts plotter.XYs
		for y, c := range rows {
			v := newSpread(s.Samples[series[0]][c.Name])
			// A logarithmic axis has no zero.
			if !v.ok() || v.Min <= 0 || math.IsInf(v.Max, 0) {
				continue
			}
			largest = math.Max(largest, v.Max)
			height := float64(y) + 0.3 - 0.15*float64(k) // the patterns of a contender lie above each other inside its row
			pts = append(pts, plotter.XY{X: v.Median, Y: height})
			bar, err := plotter.NewLine(plotter.XYs{{X: v.Min, Y: height}, {X: v.Max, Y: height}})
			if err != nil {
				return err
			}
			bar.Color, bar.Width = palette[k], vg.Points(1)
			p.Add(bar)
		}
		dots, err := plotter.NewScatter(pts)
		if err != nil {
			return err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: palette[k], Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
		p.Add(dots)
		p.Legend.Add(series[1], dots)
	}
	// Contenders differ by orders of magnitude.
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0.8, largest*1.3
	// The height grows with the contenders.
	return save(p, 18*vg.Centimeter, vg.Length(len(names))*0.9*vg.Centimeter+3*vg.Centimeter, dir, "speed")
}

// bars are what the README's chart shows, by names that its readers know.
var bars = [...][2]string{
	{"frame-pointers", "frame pointers"}, {"ehu-backtrace", "ehasm"}, {"unw-backtrace", "libunwind unw_backtrace"},
	{"libgcc", "libgcc _Unwind_Backtrace"}, {"unw-step-global", "libunwind unw_step"}, {"libdw", "elfutils"},
}

// plotBars draws the least ns per frame of a stack taken again and again: a bar for each of bars, with its value. It
// writes the SVG itself: anchors keep texts off the bars whatever font shows them, and a narrow page shows it smaller.
func plotBars(dir string, s *stepResults) error {
	const row, left, scale, width = 28, 230, 0.7, 680 // pixels; scale: for each ns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" style="max-width:100%%;height:auto" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="%[3]d" y="20" text-anchor="middle">Nanoseconds a frame, one stack again and again: least of the rounds</text>
`, width, row*(len(bars)+1)+20, width/2)
	for i, bar := range bars {
		y := row*(i+1) + 20
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-10, y, bar[1])
		v := newSpread(s.Samples["hot"][bar[0]])
		if !v.ok() {
			continue // one that did not run has no bar
		}
		fill := palette[0]
		if bar[0] == "ehu-backtrace" { // stands out
			fill = palette[1]
		}
		long := v.Min * scale
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="16" fill="#%02x%02x%02x"/><text x="%.1f" y="%d">%.3g</text>`+"\n",
			left, y-13, long, fill.R, fill.G, fill.B, left+long+8, y, v.Min)
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(dir, "bars.svg"), []byte(b.String()), 0o644)
}

// grid returns the lines behind a plot, in light grey.
func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Horizontal.Color = color.RGBA{235, 235, 235, 255}
	g.Vertical.Color = color.RGBA{225, 225, 225, 255}
	return g
}

// decades marks 1, 2 and 5 of each power of ten.
type decades struct{}

// Ticks implements plot.Ticker. Values a little outside of the axis are dropped.
func (decades) Ticks(lo, hi float64) []plot.Tick {
	var t []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			if v < lo*0.999 || v > hi*1.001 {
				continue
			}
			tick := plot.Tick{Value: v}
			if m == 1 || hi/lo < 5000 { // labels of 2 and 5 only where there is room
				tick.Label = tickText(v)
			}
			t = append(t, tick)
		}
	}
	return t
}

// tickText writes the value of a tick: 1k, 5M.
func tickText(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.0fM", v/1e6)
	}
	if v >= 1e3 {
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// plotSize draws size ratios by object.
func plotSize(dir string, r *results) error {
	p := newPlot("Size of eh_elfs by object", "code and data over .eh_frame + .eh_frame_hdr", "")
	var names []string
	series := make([]plotter.XYs, len(variants()))
	p.Add(grid())
	// As in plotSpeed: the first object at the top.
	for i := len(r.Size) - 1; i >= 0; i-- {
		o := r.Size[i]
		if o.Error != "" {
			continue
		}
		for v := range series {
			series[v] = append(series[v], plotter.XY{X: o.ratio(v), Y: float64(len(names))})
		}
		name := baseName(o.Path)
		if len(name) > 32 {
			name = name[:29] + "..."
		}
		names = append(names, fmt.Sprintf("%s%s (%s)", margin, name, bytesText(o.EHFrame)))
	}
	for v, pts := range series {
		dots, err := plotter.NewScatter(pts)
		if err != nil {
			return err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: palette[v], Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
		mean := geomean(r.sizeRatios(v))
		// A dashed line at the geometric mean.
		line, err := plotter.NewLine(plotter.XYs{{X: mean, Y: -0.5}, {X: mean, Y: float64(len(names)) - 0.5}})
		if err != nil {
			return err
		}
		line.Color, line.Dashes = palette[v], []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(line, dots)
		p.Legend.Add(fmt.Sprintf("%s (geometric mean %.2f)", variants()[v].Name, mean), dots)
	}
	p.X.Min, p.X.Max = 0, math.Max(p.X.Max+0.05, 1.2) // a ratio of 1 is always in view
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.7, float64(len(names))+1.2
	return save(p, 18*vg.Centimeter, vg.Length(len(names))*0.6*vg.Centimeter+4*vg.Centimeter, dir, "size")
}

// plotBuild draws build time by size of .eh_frame.
func plotBuild(dir string, r *results) error {
	p := newPlot("Build time by size of .eh_frame", ".eh_frame, bytes", "seconds")
	p.Add(grid())
	var pts plotter.XYs
	for _, o := range r.Build {
		if o.Error == "" {
			// A logarithmic axis has no zero.
			pts = append(pts, plotter.XY{X: float64(o.EHFrame), Y: math.Max(o.Wall, 1e-3)})
		}
	}
	if len(pts) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(pts)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: palette[0], Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
	p.Add(dots)
	p.Legend.Add("ehasm build", dots)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = p.X.Min*0.7, p.X.Max*1.4, p.Y.Min*0.7, p.Y.Max*1.6
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decades{}, decades{}
	p.Legend.Left = true
	return save(p, 16*vg.Centimeter, 11*vg.Centimeter, dir, "build")
}
