package script

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/perfdata"
)

// Filter says which samples are wanted. An empty list lets everything pass.
type Filter struct {
	Comms    []string
	PIDs     []int
	TIDs     []int
	Events   []string
	From, To uint64 // ns, both included; To 0: no end
}

func (f *Filter) wants(s *perfdata.Sample, comm string) bool {
	return s.Time >= f.From && (f.To == 0 || s.Time <= f.To) &&
		(len(f.PIDs) == 0 || slices.Contains(f.PIDs, int(s.PID))) &&
		(len(f.TIDs) == 0 || slices.Contains(f.TIDs, int(s.TID))) &&
		(len(f.Comms) == 0 || slices.Contains(f.Comms, comm)) &&
		(len(f.Events) == 0 || slices.Contains(f.Events, eventName(s.Event)))
}

// ParseTime reads "FROM,TO" in seconds, either of which may be left out, as
// perf script --time has it.
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

// parseSeconds reads seconds with up to nine digits of fraction, exactly.
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
