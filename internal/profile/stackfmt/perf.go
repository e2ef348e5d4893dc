package stackfmt

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
)

// perfText writes what perf script writes with its default fields.
type perfText struct{ opt Options }

func perfSpec() *Spec {
	return &Spec{Name: "perf", Suffixes: []string{".perf.txt"}, Samples: true, Settings: []string{"lines", "full-source-path"},
		New: func(opt Options) Format { return &perfText{opt} }}
}

func (p *perfText) Worker() Worker { return p }

func (p *perfText) Finish(io.Writer, *Recording) error { return nil }

func (p *perfText) Render(f *Frame) {
	for _, in := range f.Inlined {
		f.Text = appendPerfFrame(f.Text, f, in.Shown(), "inlined")
		f.Text = p.appendSource(f.Text, in.Source)
	}
	f.Text = appendPerfFrame(f.Text, f, f.Shown(), f.DSO)
	f.Text = p.appendSource(f.Text, f.Source)
}

// appendPerfFrame writes a line of a call chain as sample__fprintf_callchain in
// tools/perf/util/evsel_fprintf.c does.
func appendPerfFrame(b []byte, f *Frame, name, object string) []byte {
	b = append(b, '\t')
	b = appendHex(b, f.IP, 16)
	return appendPerfName(b, f, name, object)
}

func appendPerfName(b []byte, f *Frame, name, object string) []byte {
	if name == "" {
		b = append(b, " [unknown]"...)
	} else {
		b = append(append(b, ' '), Escape(name)...)
		b = append(b, "+0x"...)
		b = strconv.AppendUint(b, f.Offset, 16)
	}
	b = append(append(append(b, " ("...), Escape(object)...), ')')
	return append(b, '\n')
}

// appendSource writes a place as perf script does with the field srcline.
func (p *perfText) appendSource(b []byte, s Source) []byte {
	if s.File == "" {
		return b
	}
	if !p.opt.FullSourcePath {
		s.File = filepath.Base(s.File)
	}
	return fmt.Appendf(b, "  %s:%d\n", Escape(s.File), s.Line)
}

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

// Add writes a sample with the default fields of perf script: comm, tid, cpu, time,
// period, event, ip, sym, dso; fields that the event does not have are left out
// (perf_sample__fprintf_start in tools/perf/builtin-script.c).
func (p *perfText) Add(b []byte, s *Sample) []byte {
	e, comm := s.Event, Escape(s.Comm)
	if !e.Callchain {
		for range 16 - len(comm) {
			b = append(b, ' ')
		}
	}
	b = append(append(b, comm...), ' ')
	if e.TID {
		if s.TID < 0 {
			b = fmt.Appendf(b, "%5d ", s.TID)
		} else {
			b = append(appendPadded(b, uint64(s.TID), 5), ' ')
		}
	}
	if e.CPU {
		b = fmt.Appendf(b, "[%03d] ", s.CPU)
	}
	if e.Time {
		const perSecond, perMicro = 1e9, 1e3
		b = appendPadded(b, s.Time/perSecond, 5)
		micros := s.Time % perSecond / perMicro
		b = append(b, '.')
		for limit := uint64(100000); limit > 1 && micros < limit; limit /= 10 {
			b = append(b, '0')
		}
		b = strconv.AppendUint(b, micros, 10)
		b = append(b, ": "...)
	}
	if e.Period {
		b = append(appendPadded(b, s.Period, 10), ' ')
	}
	for range s.Width - len(e.Name) {
		b = append(b, ' ')
	}
	b = append(append(b, Escape(e.Name)...), ": "...)
	if f := s.Leaf; f != nil {
		b = append(b, ' ')
		b = appendHex(b, s.PC, 16)
		b = appendPerfName(b, f, f.Shown(), f.DSO)
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
