package script

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSVG wants a box for each beginning of a folded stack, of the same weight.
func TestSVG(t *testing.T) {
	r := newRecording(t)
	r.Attrs = append(r.Attrs, perfdatatest.Attr{Name: "page-faults", SampleType: r.Attrs[0].SampleType,
		RegsUser: regsMask, IDs: []uint64{2}})
	r.all()
	r.sample(10, 0x401050, nil, 0x401010)
	r.sample(10, 0x401050, nil, 0x401010)
	folded, _ := r.run(t, r.options("folded"))
	want := map[string]int{"all (9 samples)": 1}
	sums := make(map[string]int)
	for line := range strings.Lines(strings.NewReplacer("other_one", "other one", "_[k]", "", "_[j]",
		"").Replace(folded)) {
		i := strings.LastIndex(line, " ")
		n := 0
		_, err := fmt.Sscan(line[i:], &n)
		require.NoError(t, err)
		path := ""
		for name := range strings.SplitSeq(line[:i], ";") {
			path += ";" + name
			sums[path] += n
		}
	}
	for path, n := range sums {
		want[fmt.Sprintf("%s (%d samples)", path[strings.LastIndex(path, ";")+1:], n)]++
	}

	text, s := r.run(t, r.options("svg"))
	assert.Equal(t, uint64(9), s.Samples)
	var p struct {
		Title string `xml:"title"`
		G     []struct {
			Boxes []struct {
				Title string `xml:"title"`
			} `xml:"g"`
		} `xml:"g"`
	}
	require.NoError(t, xml.Unmarshal([]byte(text), &p))
	assert.Equal(t, "perf record (cpu-clock, page-faults)", p.Title)
	got, libraries := make(map[string]int), []string{}
	for _, b := range p.G[0].Boxes {
		i := strings.LastIndex(b.Title, ", ")
		name, amount, found := strings.Cut(b.Title[:i], "\n")
		if found {
			libraries = append(libraries, name+" in "+strings.Fields(amount)[0])
			name += amount[strings.Index(amount, " ("):]
		}
		got[name+")"]++
	}
	assert.Equal(t, want, got)
	assert.Subset(t, libraries, []string{"_start in prog", "work in lib.so", "ext_read in [ext9]"})
	assert.NotContains(t, text, "[kernel.kallsyms]")

	opt := r.options("svg")
	opt.Workers = 5
	again, _ := r.run(t, opt)
	assert.Equal(t, text, again)
}
