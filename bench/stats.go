package main

import (
	"fmt"
	"math"
	"slices"
)

// spreadOf is the least, first quartile, middle and largest of some values.
type spreadOf struct{ Min, Quartile, Median, Max float64 }

// newSpread returns the spread of values, NaN throughout if there are none.
func newSpread(v []float64) spreadOf {
	if len(v) == 0 {
		return spreadOf{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return spreadOf{s[0], s[(len(s)-1)/4], median(s), s[len(s)-1]}
}

// median of sorted values.
func median(s []float64) float64 {
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// ok reports whether there were values.
func (s spreadOf) ok() bool { return !math.IsNaN(s.Median) }

// String gives the middle and, in parentheses, the range.
func (s spreadOf) String() string {
	if !s.ok() {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", short(s.Median), short(s.Min), short(s.Max))
}

// low gives the least and the first quartile.
func (s spreadOf) low() string {
	if !s.ok() {
		return "-"
	}
	return short(s.Min) + " / " + short(s.Quartile)
}

// short writes a number with about three digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// ratios divides round by round.
func ratios(num, den []float64) []float64 {
	var r []float64
	for i := range min(len(num), len(den)) {
		r = append(r, num[i]/den[i])
	}
	return r
}

// geomean returns the geometric mean, NaN for no values. Values must be positive.
func geomean(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, x := range v {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(v)))
}
