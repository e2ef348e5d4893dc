package script

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// render makes the text of a frame in the format of the run.
func (run *runner) render(f *frame) {
	switch run.opt.Format {
	case Perf:
		for _, in := range f.inner {
			f.text = appendPerfFrame(f.text, f, in.name, "inlined")
			f.text = run.appendSource(f.text, in.source)
		}
		f.text = appendPerfFrame(f.text, f, f.name, f.dso)
		f.text = run.appendSource(f.text, f.source)
	case JSON:
		f.text = appendJSONFrame(nil, f)
	case Folded:
		f.text = []byte(run.clean.Replace(foldedName(f)))
		for _, in := range slices.Backward(f.inner) {
			f.text = append(f.text, ';')
			f.text = append(f.text, run.clean.Replace(in.name)...)
		}
	case Pprof:
		f.text = run.places.add(f)
	case SVG:
		f.text = run.flames.text(f)
	}
}

// appendPerfFrame writes a line of a call chain as sample__fprintf_callchain in
// tools/perf/util/evsel_fprintf.c does.
func appendPerfFrame(b []byte, f *frame, name, object string) []byte {
	b = append(b, '\t')
	b = appendHex(b, f.ip, 16)
	return appendPerfName(b, f, name, object)
}

func appendPerfName(b []byte, f *frame, name, object string) []byte {
	if name == "" {
		b = append(b, " [unknown]"...)
	} else {
		b = append(append(b, ' '), name...)
		b = append(b, "+0x"...)
		b = strconv.AppendUint(b, f.offset, 16)
	}
	b = append(append(append(b, " ("...), object...), ')')
	return append(b, '\n')
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

// appendPerf writes a sample with the default fields of perf script: comm, tid,
// cpu, time, period, event, ip, sym, dso; what the event does not have is left
// out (perf_sample__fprintf_start in tools/perf/builtin-script.c).
func (w *worker) appendPerf(b []byte, s *sample) []byte {
	t := s.event.SampleType
	chain := t&perfdata.SampleCallchain != 0
	if !chain {
		for range 16 - len(s.comm) {
			b = append(b, ' ')
		}
	}
	b = append(append(b, s.comm...), ' ')
	if t&perfdata.SampleTID != 0 {
		if s.tid < 0 {
			b = fmt.Appendf(b, "%5d ", s.tid)
		} else {
			b = append(appendPadded(b, uint64(s.tid), 5), ' ')
		}
	}
	if t&perfdata.SampleCPU != 0 {
		b = fmt.Appendf(b, "[%03d] ", s.cpu)
	}
	if t&perfdata.SampleTime != 0 {
		const perSecond, perMicro = 1e9, 1e3
		b = appendPadded(b, s.time/perSecond, 5)
		micros := s.time % perSecond / perMicro
		b = append(b, '.')
		for limit := uint64(100000); limit > 1 && micros < limit; limit /= 10 {
			b = append(b, '0')
		}
		b = strconv.AppendUint(b, micros, 10)
		b = append(b, ": "...)
	}
	if t&perfdata.SamplePeriod != 0 {
		b = append(appendPadded(b, s.period, 10), ' ')
	}
	name := eventName(s.event)
	for range s.width - len(name) {
		b = append(b, ' ')
	}
	b = append(append(b, name...), ": "...)
	if !chain {
		f := w.leaf(s)
		b = append(b, ' ')
		b = appendHex(b, s.ip, 16)
		b = appendPerfName(b, f, f.name, f.dso)
		if len(f.inner) > 0 {
			return w.run.appendSource(b, f.inner[0].source)
		}
		return w.run.appendSource(b, f.source)
	}
	b = append(b, '\n')
	for _, f := range w.stack {
		b = append(b, f.text...)
	}
	return append(b, '\n')
}

// leaf is the frame of the sample's own ip.
func (w *worker) leaf(s *sample) *frame {
	if s.mode == perfdata.ModeKernel {
		return w.kernelFrame(s.ip)
	}
	return w.userFrame(s, s.ip)
}

type jsonFrame struct {
	IP     string `json:"ip"`
	Symbol string `json:"sym,omitempty"`
	Offset uint64 `json:"off,omitempty"`
	DSO    string `json:"dso"`
	Kernel bool   `json:"kernel,omitempty"`

	Inlined bool   `json:"inlined,omitempty"` // into the next frame
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
}

func appendJSONFrame(b []byte, f *frame) []byte {
	j := jsonFrame{IP: "0x" + strconv.FormatUint(f.ip, 16), DSO: f.dso, Inlined: true}
	for _, in := range f.inner {
		j.Symbol, j.File, j.Line = in.name, in.file, in.line
		b = append(appendJSONValue(b, j), ',')
	}
	j.Inlined = false
	j.Symbol, j.Offset, j.Kernel, j.File, j.Line = f.name, f.offset, f.inKern, f.file, f.line
	return appendJSONValue(b, j)
}

func appendJSONValue(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, text...)
}

func (w *worker) appendJSON(b []byte, s *sample) []byte {
	b = append(b, `{"comm":`...)
	b = appendJSONValue(b, s.comm)
	b = fmt.Appendf(b, `,"pid":%d,"tid":%d`, s.pid, s.tid)
	if s.event.SampleType&perfdata.SampleCPU != 0 {
		b = fmt.Appendf(b, `,"cpu":%d`, s.cpu)
	}
	b = fmt.Appendf(b, `,"time":%d,"period":%d,"event":`, s.time, s.period)
	b = appendJSONValue(b, eventName(s.event))
	if w.end != noUserStack {
		b = appendJSONValue(append(b, `,"end":`...), w.end.String())
	}
	b = append(b, `,"frames":[`...)
	for i, f := range w.stack {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.text...)
	}
	return append(b, "]}\n"...)
}

// foldedName is the name in a folded stack: where there is none, that of the
// object in brackets, as stackcollapse-perf.pl writes it.
func foldedName(f *frame) string {
	name := f.name
	if name == "" {
		name = "[" + strings.Trim(filepath.Base(f.dso), "[]") + "]"
	}
	return name
}

// foldedReplacer takes out what has a meaning in folded stacks.
func foldedReplacer() *strings.Replacer {
	return strings.NewReplacer(";", ":", "\n", " ", "\t", " ")
}

// wholeStack is the frames of a sample; of one without a call chain, its ip.
func (w *worker) wholeStack(s *sample) []*frame {
	if s.event.SampleType&perfdata.SampleCallchain == 0 && len(w.stack) == 0 {
		return append(w.stack, w.leaf(s))
	}
	return w.stack
}

// fold counts the sample's stack, outermost frame first. One that ends before
// the outermost frame says so.
func (w *worker) fold(s *sample) {
	b := append(w.buf[:0], strings.ReplaceAll(w.run.clean.Replace(s.comm), " ", "_")...)
	if w.end != noUserStack && w.end != unwind.Outermost {
		b = append(b, ";[truncated]"...)
	}
	for _, f := range slices.Backward(w.wholeStack(s)) {
		b = append(append(b, ';'), f.text...)
	}
	w.buf = b
	w.folded[string(b)]++
}

// writeFolded writes the counts of all workers, sorted.
func writeFolded(w io.Writer, workers []*worker) error {
	all := make(map[string]uint64)
	for _, wk := range workers {
		for k, n := range wk.folded {
			all[k] += n
		}
	}
	out := bufio.NewWriter(w)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(out, "%s %d\n", k, all[k])
	}
	return out.Flush()
}
