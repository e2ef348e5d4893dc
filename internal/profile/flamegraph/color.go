package flamegraph

import (
	"fmt"
	"hash/fnv"
	"math"
)

// This file chooses colours: by the kind of a frame, and in a difference of two recordings by how much a box's share
// has changed.

// palette is the range of a kind's colours: hue in degrees, saturation and lightness in percent.
// Hues go from hue to hue+hues, lightness from light to light+lights. All are light enough for
// black text.
type palette struct{ hue, hues, saturation, light, lights float64 }

// palette returns the colours of a kind.
func (k Kind) palette() palette {
	return [numKinds]palette{
		User:      {15, 35, 90, 62, 12},
		Inlined:   {95, 45, 50, 62, 12},
		Kernel:    {200, 25, 70, 66, 12},
		JIT:       {158, 20, 55, 60, 12},
		Unknown:   {0, 0, 0, 68, 12},
		Truncated: {262, 16, 45, 76, 6},
		Base:      {42, 12, 25, 76, 8},
	}[k]
}

// color depends on the frame alone, so that a function has the same colour in
// all graphs.
func (f Frame) color() string {
	h := fnv.New32a()
	h.Write([]byte(f.Name))
	// FNV's low bits mix well, the high ones do not for short names.
	v := h.Sum32()
	p := f.Kind.palette()
	const most = 255 // of a byte of the hash
	return hsl(p.hue+p.hues*float64(v&most)/most, p.saturation, p.light+p.lights*float64(v>>8&most)/most)
}

// changed returns the colour of a box whose share differs from the share before: red for more, blue for less, and
// stronger for larger differences. largest, of the whole graph, has the strongest colour; 0: there is none.
func changed(difference, largest float64) string {
	const red, blue, saturation, none, most = 8, 216, 88, 92, 58 // hues in degrees, the rest in percent
	strength := 0.0
	if largest > 0 {
		strength = math.Sqrt(math.Abs(difference) / largest) // the root makes small differences visible
	}
	hue := float64(red)
	if difference < 0 {
		hue = blue
	}
	return hsl(hue, saturation*strength, none-(none-most)*strength)
}

// hsl returns the #rrggbb of a colour: CSS Color Module Level 3, 4.2.4.
func hsl(hue, saturation, light float64) string {
	const percent, most, turn = 100, 255, 12
	s, l := saturation/percent, light/percent
	channel := func(n float64) int {
		k := math.Mod(n+hue/30, turn)
		return int(math.Round(most * (l - s*min(l, 1-l)*max(-1, min(k-3, 9-k, 1)))))
	}
	return fmt.Sprintf("#%02x%02x%02x", channel(0), channel(8), channel(4))
}
