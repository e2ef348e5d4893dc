package stackfmt

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/frame"
)

// PerfFields are fields of the format perf, by the names that perf script -F has for them. Those that an
// event does not have are left out.
type PerfFields struct {
	Comm, PID, TID, CPU, Time, Period, Event bool
	IP                                       bool // and with it the call chain
	Sym, SymOff, DSO                         bool // need IP
}

// DefaultPerfFields returns the fields of perf script without -F.
func DefaultPerfFields() PerfFields {
	return PerfFields{Comm: true, TID: true, CPU: true, Time: true, Period: true, Event: true, IP: true, Sym: true,
		SymOff: true, DSO: true}
}

// perfText writes what perf script writes, to the blank, since programs read it by patterns.
type perfText struct {
	opt     Options
	fields  PerfFields
	unknown bool // functions without a symbol have no name, as in perf
}

// perfSpec describes the format perf.
func perfSpec() *Spec {
	return &Spec{Name: "perf", Suffixes: []string{".perf.txt"}, Samples: true,
		Settings: []string{"lines", "full-source-path"},
		New:      func(opt Options) Format { return &perfText{opt: opt, fields: DefaultPerfFields()} }}
}

// NewPerf returns the text of perf script with these fields; unlike the format perf it calls functions without a
// symbol [unknown], as perf does.
func NewPerf(opt Options, fields PerfFields) Format {
	return &perfText{opt: opt, fields: fields, unknown: true}
}

// Worker returns the format itself, which keeps nothing.
func (p *perfText) Worker() Worker { return p }

// Finish has nothing to write.
func (p *perfText) Finish(io.Writer, *Recording) error { return nil }

// Render writes the lines of the frame and of the functions inlined into it.
func (p *perfText) Render(f *frame.Frame) {
	for _, in := range f.Inlined {
		f.Text = p.appendFrame(f.Text, f, in.Shown(), inlined)
		f.Text = p.appendSource(f.Text, in.Source)
	}
	f.Text = p.appendFrame(f.Text, f, f.Shown(), cmp.Or(f.PerfMap, f.DSO))
	f.Text = p.appendSource(f.Text, f.Source)
}

// inlined stands in place of the object of an inlined function.
const inlined = "inlined"

// appendFrame writes a line of a call chain as sample__fprintf_callchain in
// tools/perf/util/evsel_fprintf.c does.
func (p *perfText) appendFrame(b []byte, f *frame.Frame, name, object string) []byte {
	b = append(b, '\t')
	b = appendHex(b, f.IP, 16)
	return p.appendName(b, f, name, object)
}

// appendName writes symbol, offset and object, as far as they are wanted.
func (p *perfText) appendName(b []byte, f *frame.Frame, name, object string) []byte {
	switch {
	case !p.fields.Sym:
	case name == "", p.unknown && f.NoSymbol && object != inlined:
		b = append(b, " [unknown]"...)
	default:
		b = append(append(b, ' '), output.Text(name)...)
		if p.fields.SymOff {
			b = append(b, "+0x"...)
			b = strconv.AppendUint(b, f.Offset, 16)
		}
	}
	if p.fields.DSO || object == inlined {
		b = append(append(append(b, " ("...), output.Text(object)...), ')')
	}
	return append(b, '\n')
}

// appendSource writes a place as perf script does with the field srcline.
func (p *perfText) appendSource(b []byte, s frame.Source) []byte {
	if s.File == "" {
		return b
	}
	if !p.opt.FullSourcePath {
		s.File = filepath.Base(s.File)
	}
	return fmt.Appendf(b, "  %s:%d\n", output.Text(s.File), s.Line)
}

// appendHex writes v in hexadecimal, right-aligned.
func appendHex(b []byte, v uint64, width int) []byte {
	var digits [16]byte
	d := strconv.AppendUint(digits[:0], v, 16)
	for range width - len(d) {
		b = append(b, ' ')
	}
	return append(b, d...)
}

// appendPadded writes v right-aligned.
func appendPadded(b []byte, v uint64, width int) []byte {
	var digits [20]byte
	d := strconv.AppendUint(digits[:0], v, 10)
	for range width - len(d) {
		b = append(b, ' ')
	}
	return append(b, d...)
}

// Add writes a sample: comm, pid, tid, cpu, time, period, event, ip, sym, dso; fields
// that the event does not have are left out (perf_sample__fprintf_start and process_event in
// tools/perf/builtin-script.c).
func (p *perfText) Add(b []byte, s *Sample) []byte {
	e, want := s.Event, &p.fields
	if want.Comm {
		comm := output.Text(s.Comm)
		// perf aligns the name only in samples of one line.
		if !e.Callchain || !want.IP {
			for range 16 - len(comm) {
				b = append(b, ' ')
			}
		}
		b = append(append(b, comm...), ' ')
	}
	if e.TID {
		b = p.appendIDs(b, s)
	}
	if e.CPU && want.CPU {
		b = fmt.Appendf(b, "[%03d] ", s.CPU)
	}
	if e.Time && want.Time {
		b = appendTime(b, s.Time)
	}
	if e.Period && want.Period {
		b = append(appendPadded(b, s.Period, 10), ' ')
	}
	if want.Event {
		for range s.Width - len(e.Name) {
			b = append(b, ' ')
		}
		b = append(append(b, output.Text(e.Name)...), ": "...)
	}
	if !want.IP {
		return append(b, '\n')
	}
	// Without a call chain the sample is one line.
	if f := s.Leaf; f != nil {
		b = append(b, ' ')
		b = appendHex(b, s.PC, 16)
		b = p.appendName(b, f, f.Shown(), cmp.Or(f.PerfMap, f.DSO))
		if len(f.Inlined) > 0 {
			return p.appendSource(b, f.Inlined[0].Source)
		}
		return p.appendSource(b, f.Source)
	}
	b = append(b, '\n')
	for _, f := range s.Frames {
		b = append(b, f.Text...)
	}
	return append(b, '\n')
}

// appendIDs writes the process and the thread.
func (p *perfText) appendIDs(b []byte, s *Sample) []byte {
	id := s.TID
	switch {
	case p.fields.PID && p.fields.TID:
		return fmt.Appendf(b, "%5d/%-5d ", s.PID, s.TID)
	case p.fields.PID:
		id = s.PID
	case !p.fields.TID:
		return b
	}
	if id < 0 {
		return fmt.Appendf(b, "%5d ", id)
	}
	return append(appendPadded(b, uint64(id), 5), ' ')
}

// appendTime writes ns as seconds with microseconds, cut and not rounded, as perf does without --ns.
func appendTime(b []byte, ns uint64) []byte {
	const perSecond, perMicro = 1e9, 1e3 // ns
	b = appendPadded(b, ns/perSecond, 5)
	micros := ns % perSecond / perMicro
	b = append(b, '.')
	// Six digits with leading zeros.
	for limit := uint64(100000); limit > 1 && micros < limit; limit /= 10 {
		b = append(b, '0')
	}
	b = strconv.AppendUint(b, micros, 10)
	return append(b, ": "...)
}
