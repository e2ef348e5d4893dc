package stackfmt

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ehasm/ehasm/internal/frame"
)

// This file is the format json: a line a sample, for programs such as jq that read one at a time. Frames are written
// once and copied: most of a sample's text is its frames.

// jsonLines writes an object per sample, each on its own line.
type jsonLines struct{}

// jsonSpec describes the format json.
func jsonSpec() *Spec {
	return &Spec{Name: "json", Suffixes: []string{".json"}, Samples: true, Settings: []string{"lines"},
		New: func(Options) Format { return jsonLines{} }}
}

// jsonFrame is an element of a sample's list "frames". Inlined functions are elements as well,
// before the frame that holds them.
type jsonFrame struct {
	IP     string `json:"ip"` // hexadecimal: JSON's numbers lose bits
	Symbol string `json:"sym,omitempty"`
	// Signature is the symbol with its parameters.
	Signature string `json:"signature,omitempty"`
	Offset    uint64 `json:"off,omitempty"` // bytes from the start of the function
	DSO       string `json:"dso"`
	Kernel    bool   `json:"kernel,omitempty"`

	Inlined bool   `json:"inlined,omitempty"` // into the next frame
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
}

// Worker returns a worker, which keeps nothing.
func (jsonLines) Worker() Worker { return jsonLines{} }

// Finish has nothing to write: each sample's line is whole.
func (jsonLines) Finish(io.Writer, *Recording) error { return nil }

// Render writes the frame's JSON once, for all samples that have it.
func (jsonLines) Render(f *frame.Frame) {
	j := jsonFrame{IP: "0x" + strconv.FormatUint(f.IP, 16), DSO: f.DSO, Inlined: true}
	for _, in := range f.Inlined {
		j.Symbol, j.File, j.Line = in.Name, in.File, in.Line
		j.Signature = signature(in.Name, in.Parameters)
		f.Text = append(appendJSONValue(f.Text, j), ',')
	}
	j.Inlined = false
	j.Symbol, j.Offset, j.Kernel, j.File, j.Line = f.Name, f.Offset, f.Kernel, f.File, f.Line
	j.Signature = signature(f.Name, f.Parameters)
	f.Text = appendJSONValue(f.Text, j)
}

// signature is "" where the parameters are not known.
func signature(name, parameters string) string {
	if parameters == "" {
		return ""
	}
	return name + parameters
}

// appendJSONValue appends v as JSON that is safe on a terminal. A value that cannot be written is null, so that the
// line stays JSON.
func appendJSONValue(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return append(b, "null"...)
	}
	// Control characters above ASCII are text to package json, and may be commands to a
	// terminal.
	for _, r := range string(text) {
		if r >= 0x7f && !unicode.IsPrint(r) {
			b = appendEscaped(b, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// appendEscaped writes a character as JSON escapes it: RFC 8259, section 7.
func appendEscaped(b []byte, r rune) []byte {
	// Characters above U+FFFF are two code units.
	if hi, lo := utf16.EncodeRune(r); hi != unicode.ReplacementChar {
		return fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
	}
	return fmt.Appendf(b, `\u%04x`, r)
}

// Add appends a sample's line. Fields that the event does not have are left out.
func (jsonLines) Add(b []byte, s *Sample) []byte {
	b = append(b, `{"comm":`...)
	b = appendJSONValue(b, s.Comm)
	b = fmt.Appendf(b, `,"pid":%d,"tid":%d`, s.PID, s.TID)
	if s.Event.CPU {
		b = fmt.Appendf(b, `,"cpu":%d`, s.CPU)
	}
	b = fmt.Appendf(b, `,"time":%d,"period":%d,"event":`, s.Time, s.Period)
	b = appendJSONValue(b, s.Event.Name)
	if s.Count > 1 {
		b = fmt.Appendf(b, `,"count":%d`, s.Count)
	}
	if s.End != NoUserStack {
		b = appendJSONValue(append(b, `,"end":`...), s.End.String())
	}
	b = append(b, `,"frames":[`...)
	// Indexes of frames, ascending.
	guessed := s.Guessed
	for i, f := range s.Frames {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, f.Text...)
		if len(guessed) > 0 && guessed[0] == i {
			b = append(b[:len(b)-1], `,"guessed":true}`...) // the frame that others are inlined into comes last
			guessed = guessed[1:]
		}
	}
	return append(b, "]}\n"...)
}
