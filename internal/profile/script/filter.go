package script

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/perfdata"
)

// This file chooses samples by the fields of their records, with perf script's meaning of each flag, and explains a
// choice that leaves none.

// Filter selects samples. An empty list selects all.
type Filter struct {
	Comms    []string // names of threads, at the time of the sample
	PIDs     []int
	TIDs     []int
	Events   []string // names with modifiers: see eventName
	CPUs     []int
	From, To uint64 // ns, both included; To 0: no end
}

// wants reports whether the filter chooses a sample of a thread called comm.
func (f *Filter) wants(s *perfdata.Sample, comm string) bool {
	return s.Time >= f.From && (f.To == 0 || s.Time <= f.To) &&
		(len(f.PIDs) == 0 || slices.Contains(f.PIDs, int(s.PID))) &&
		(len(f.TIDs) == 0 || slices.Contains(f.TIDs, int(s.TID))) &&
		(len(f.CPUs) == 0 || slices.Contains(f.CPUs, int(s.CPU))) &&
		(len(f.Comms) == 0 || slices.Contains(f.Comms, comm)) &&
		(len(f.Events) == 0 || slices.Contains(f.Events, eventName(s.Event)))
}

// seenValues holds the values that the recording has for the fields of a Filter, to report if no sample is selected.
// They are counted before that is known: a recording from a pipe cannot be read twice.
type seenValues struct {
	samples     uint64
	comms       map[string]uint64 // samples by value; filled only where the filter has a list
	pids, tids  map[int]uint64
	events      map[string]uint64
	first, last uint64 // ns
}

// add takes the values of a sample.
func (m *seenValues) add(f *Filter, s *perfdata.Sample, comm string) {
	if m.samples == 0 {
		*m = seenValues{comms: make(map[string]uint64), pids: make(map[int]uint64), tids: make(map[int]uint64),
			events: make(map[string]uint64),
			first:  s.Time, last: s.Time}
	}
	m.samples++
	m.first, m.last = min(m.first, s.Time), max(m.last, s.Time)
	if len(f.Comms) > 0 {
		m.comms[comm]++
	}
	if len(f.PIDs) > 0 {
		m.pids[int(s.PID)]++
	}
	if len(f.TIDs) > 0 {
		m.tids[int(s.TID)]++
	}
	if len(f.Events) > 0 {
		m.events[eventName(s.Event)]++
	}
}

// nothing returns why a filter selects no sample: each field with what the recording has instead. Fields may exclude
// everything only together, so all are shown.
func (m *seenValues) nothing(f *Filter) string {
	var why []string
	if len(f.Comms) > 0 {
		why = append(why, fmt.Sprintf("--comm %s (there are: %s)", strings.Join(f.Comms, ","), most(m.comms)))
	}
	if len(f.PIDs) > 0 {
		why = append(why, fmt.Sprintf("--pid %v (there are: %s)", numbers(f.PIDs), most(m.pids)))
	}
	if len(f.TIDs) > 0 {
		why = append(why, fmt.Sprintf("--tid %v (there are: %s)", numbers(f.TIDs), most(m.tids)))
	}
	if len(f.Events) > 0 {
		why = append(why, fmt.Sprintf("--event %s (there are: %s)", strings.Join(f.Events, ","), most(m.events)))
	}
	if f.From != 0 || f.To != 0 {
		why = append(why, fmt.Sprintf("--time %s (samples are of %s)", span(f.From, f.To), span(m.first, m.last)))
	}
	return fmt.Sprintf("none of the %d samples is chosen by %s", m.samples, output.Text(strings.Join(why, ", ")))
}

// most lists the keys with the highest counts, equal ones in order, so that the text is the same each time.
func most[K cmp.Ordered](counts map[K]uint64) string {
	const some = 8 // of the values shown
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	text := ""
	for i, k := range keys {
		if i == some {
			return fmt.Sprintf("%s and %d more", text, len(keys)-some)
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(k)
	}
	return text
}

// numbers writes numbers with commas.
func numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// span writes times as ParseTime reads them; 0 is left out.
func span(from, to uint64) string {
	const perSecond = 1_000_000_000
	text := ","
	if from > 0 {
		text = fmt.Sprintf("%d.%09d,", from/perSecond, from%perSecond)
	}
	if to > 0 {
		text += fmt.Sprintf("%d.%09d", to/perSecond, to%perSecond)
	}
	return text
}

// ParseTime reads "FROM,TO" in seconds, either of which may be left out, as perf script --time has it. They are on the
// clock of the recording, which is the machine's time since it booted unless perf record -k chose another. f is
// changed also with an error.
func (f *Filter) ParseTime(text string) error {
	from, to, ok := strings.Cut(text, ",")
	if !ok || from == "" && to == "" {
		return fmt.Errorf("%q: want FROM,TO in seconds", text)
	}
	for _, t := range []struct {
		text string
		ns   *uint64
	}{{from, &f.From}, {to, &f.To}} {
		if t.text == "" {
			continue
		}
		ns, err := parseSeconds(t.text)
		if err != nil {
			return err
		}
		*t.ns = ns
	}
	if f.To != 0 && f.To < f.From {
		return fmt.Errorf("%q: ends before it begins", text)
	}
	return nil
}

// parseSeconds reads seconds with up to nine digits of fraction, exactly, as ns: a float64 has 53 bits, too few for
// the nanoseconds of a machine that has run for 104 days.
func parseSeconds(text string) (uint64, error) {
	const perSecond, digits = 1_000_000_000, 9
	whole, fraction, _ := strings.Cut(text, ".")
	s, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || len(fraction) > digits || s > math.MaxUint64/perSecond-1 {
		return 0, fmt.Errorf("%q: not a time in seconds", text)
	}
	ns, err := strconv.ParseUint((fraction + "000000000")[:digits], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: not a time in seconds", text)
	}
	return s*perSecond + ns, nil
}
