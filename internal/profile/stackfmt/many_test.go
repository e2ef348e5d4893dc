package stackfmt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyStacks adds many stacks to the formats that add up, through two workers that have
// frames in common, that most are in compressed runs, and wants the right sums.
func TestManyStacks(t *testing.T) {
	event := &Event{Name: "cpu-clock", Kind: "cpu", Unit: "nanoseconds"}
	const depth = 50
	count := testtool.Few(40000, 4000)
	names := []string{"a", "a+b", "a b", "operator;", "f", "f(int)", "~z", "漢字"} // "+" and " " are before ";"
	for _, name := range []string{"folded", "pprof", "svg"} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			spec, err := ByName(name)
			require.NoError(t, err)
			f := spec.New(Options{})
			workers := []Worker{f.Worker(), f.Worker()}
			var frames [2][]*frame.Frame
			for i := range frames {
				for j := range 400 {
					one := &frame.Frame{IP: uint64(j), Name: fmt.Sprint(names[j%len(names)], j/len(names)), DSO: "/lib"}
					if j%7 == 0 {
						one.Inlined = []frame.Inlined{{Name: "in;lined"}}
					}
					workers[i].Render(one)
					frames[i] = append(frames[i], one)
				}
			}
			want := make(map[string]uint64) // by lines of folded
			samples := uint64(0)
			chosen := make([]int, depth)
			for i := range count {
				s := Sample{Comm: "a thread", Count: uint64(1 + i%3), Period: uint64(i), Event: event,
					End: unwind.Outermost}
				if i%5 == 0 {
					s.End = unwind.NoInfo
				}
				n := depth
				if i%100 == 1 {
					n = rnd.IntN(3) // some stacks again and again
				}
				for k := rnd.IntN(depth); k < depth; k++ { // the rest is as before
					chosen[k] = rnd.IntN(len(frames[0]))
				}
				for k := n - 1; k >= 0; k-- {
					s.Frames = append(s.Frames, frames[i%2][chosen[k]])
				}
				workers[i%2].Add(nil, &s)
				samples += s.Count
				if name == "folded" && i < count/10 || name == "pprof" && n < depth {
					want[line(&s)] += s.Count
				}
			}
			var out bytes.Buffer
			require.NoError(t, f.Finish(&out, &Recording{Events: []*Event{event}}))
			switch name {
			case "folded":
				checkFolded(t, out.String(), want, samples)
			case "pprof":
				checkPprof(t, &out, want, samples)
			default:
				assert.Contains(t, out.String(), fmt.Sprintf("<title>all (%d,%03d samples, 100.00 %%)</title>",
					samples/1000, samples%1000))
			}
		})
	}
}

// line returns the line of a sample without its count, made without numbers.
func line(s *Sample) string {
	words := []string{"a_thread"}
	if s.Cut() {
		words = append(words, "[truncated]")
	}
	for _, f := range slices.Backward(s.Frames) {
		words = append(words, strings.ReplaceAll(f.Name, ";", ":"))
		if f.Inlined != nil {
			words = append(words, "in:lined_[i]")
		}
	}
	return strings.Join(words, ";")
}

func checkFolded(t *testing.T, out string, want map[string]uint64, samples uint64) {
	last, sum := "", uint64(0)
	for l := range strings.Lines(out) {
		i := strings.LastIndexByte(l, ' ')
		var n uint64
		_, err := fmt.Sscan(l[i+1:], &n)
		require.NoError(t, err)
		require.True(t, last < l[:i], "in order, each once")
		if last = l[:i]; want[last] > 0 {
			require.LessOrEqual(t, want[last], n) // the rest is of later ones
			delete(want, last)
		}
		sum += n
	}
	assert.Equal(t, samples, sum)
	assert.Empty(t, want)
}

func checkPprof(t *testing.T, out *bytes.Buffer, want map[string]uint64, samples uint64) {
	p, err := profile.Parse(out)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	got, sum := make(map[string]uint64), uint64(0)
	for _, s := range p.Sample {
		words := []string{"a_thread"}
		if s.Label["end"] != nil {
			words = append(words, "[truncated]")
		}
		for _, l := range slices.Backward(s.Location) {
			for _, in := range slices.Backward(l.Line) {
				word := strings.ReplaceAll(in.Function.Name, ";", ":")
				if word == "in:lined" {
					word += "_[i]"
				}
				words = append(words, word)
			}
		}
		got[strings.Join(words, ";")] += uint64(s.Value[0])
		sum += uint64(s.Value[0])
	}
	assert.Equal(t, samples, sum)
	for l, n := range want {
		require.Equal(t, n, got[l], l)
	}
}

// TestReplacedFile: pprof gets two mappings, and locations of each, if a file was replaced by another under its path.
func TestReplacedFile(t *testing.T) {
	event := &Event{Name: "cpu-clock", Kind: "cpu", Unit: "nanoseconds"}
	spec, err := ByName("pprof")
	require.NoError(t, err)
	f := spec.New(Options{Lines: true})
	w := f.Worker()
	objects := unwind.NewObjects(unwind.Options{})
	const path = "/no/such/lib.so"
	for _, id := range []string{"", "\x0a", "\x0b", "\x0a"} {
		o := objects.Object(path, []byte(id))
		one := &frame.Frame{IP: 16, Name: "f", DSO: path, Object: o,
			Source: frame.Source{File: "f.c", Line: 10 + map[string]int{"": 0, "\x0a": 1, "\x0b": 2}[id]}}
		w.Render(one)
		w.Add(nil, &Sample{Event: event, Period: 1, Frames: []*frame.Frame{one}, End: unwind.Outermost})
	}
	var out bytes.Buffer
	require.NoError(t, f.Finish(&out, &Recording{Events: []*Event{event}, Objects: objects.All()}))
	p, err := profile.ParseData(out.Bytes())
	require.NoError(t, err)
	got := make(map[string]int64)
	for _, s := range p.Sample {
		got[fmt.Sprint(s.Location[0].Mapping.BuildID, ":", s.Location[0].Line[0].Line)] += s.Value[0]
	}
	assert.Equal(t, map[string]int64{":10": 1, "0a:11": 2, "0b:12": 1}, got)
	assert.Len(t, p.Mapping, 3)
}
