package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/profile/flamegraph"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"

	"github.com/spf13/pflag"
)

// This file has what the verbs that write stacks share: the flags of formats, the choice of a
// format, and the refusal to fill a terminal with binary data.

// formatFlags are the flags of verbs that write stacks.
type formatFlags struct {
	fs       *pflag.FlagSet   // to ask which flags were given
	name     string           // the text of --format; ByName knows it
	maxSize  int              // MB
	settings stackfmt.Options // handed to the format's New
}

// newFormatFlags declares the flags. Each names in brackets the formats in which it has an effect.
func newFormatFlags(fs *pflag.FlagSet) *formatFlags {
	f := &formatFlags{fs: fs}
	fs.StringVar(&f.name, "format", "", "`FORMAT`: "+formatNames(recordFormats()...)+"; default: by -o's name")
	fs.BoolVar(&f.settings.Lines, "lines", false, "show the source file and line of each frame (perf, json, pprof)")
	fs.BoolVar(&f.settings.FullSourcePath, "full-source-path", false, "show the folder of the files of --lines (perf)")
	g := &f.settings.Graph
	fs.StringVar(&g.Title, "title", "", "`TEXT` above the flame graph, instead of the command (svg)")
	fs.IntVar(&g.Width, "width", 0, "a flame graph `N` pixels wide, instead of as wide as the window (svg)")
	fs.IntVar(&f.maxSize, "max-size", flamegraph.DefaultBytes>>20,
		"draw the widest boxes that fit into about `N` MB (svg)")
	fs.BoolVar(&g.Inverted, "inverted", false, "an icicle graph: boxes hang below their callers (svg)")
	fs.BoolVar(&g.Reversed, "reversed", false, "stacks begin with the innermost frame, to show its callers (svg)")
	return f
}

// declareLabels declares --labels and returns its value.
func declareLabels(fs *pflag.FlagSet) *[]string {
	return fs.StringSlice("labels", []string{"comm"}, "label samples with a `LIST` of "+labels.Names()+"; or none (pprof)")
}

// namingFlags have an effect in the formats that have names.
var namingFlags = []string{"no-demangle", "inline", "signatures"}

// chainsSpec is the recording itself, with call chains instead of copies of stacks: what perf record --call-graph fp
// would have written. It has no New, as it is made of records and not of named stacks.
func chainsSpec() *stackfmt.Spec {
	return &stackfmt.Spec{Name: "perf.data", Suffixes: []string{"perf.data"}, Binary: true, Samples: true,
		View: "perf report -i FILE"}
}

// formatNames returns the formats' names for help texts, the common ones first.
func formatNames(more ...*stackfmt.Spec) string {
	var names []string
	for _, s := range append(stackfmt.Specs(), more...) {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// choose returns the format that the flags and the name of the output ask for. A flag
// without effect in it is an error.
func (f *formatFlags) choose(output string) (*stackfmt.Spec, error) {
	spec, err := formatOf(f.name, output)
	if err != nil {
		return nil, err
	}
	// Neither the flag nor the name of the output says a format: perf's text.
	if spec == nil {
		spec = stackfmt.Specs()[0]
	}
	if err := effective(f.fs, spec); err != nil {
		return nil, err
	}
	switch g := &f.settings.Graph; {
	case f.settings.FullSourcePath && !f.settings.Lines:
		return nil, errors.New("--full-source-path has no effect without --lines")
	case g.Width < 0 || f.fs.Changed("width") && g.Width < minWidth:
		return nil, fmt.Errorf("--width %d: want at least %d", g.Width, minWidth)
	case f.maxSize < 1 || f.maxSize > maxGraphSize:
		return nil, fmt.Errorf("--max-size %d: want 1 to %d", f.maxSize, maxGraphSize)
	default:
		g.MaxBytes = f.maxSize << 20
	}
	return spec, nil
}

// formatOf returns the format that --format names, else the one that the output's name chooses; nil: none. So
// --format=svg -o x.txt is an SVG.
func formatOf(name, path string) (spec *stackfmt.Spec, err error) {
	if name == "" {
		return stackfmt.ByPath(path, recordFormats()...), nil
	}
	if spec, err = stackfmt.ByName(name, recordFormats()...); err != nil {
		err = fmt.Errorf("--format: %w", err)
	}
	return spec, err
}

// effective returns an error if a flag was given that has no effect in the format.
func effective(fs *pflag.FlagSet, spec *stackfmt.Spec) error {
	// Settings lists the flags that a format obeys. Any other given flag is a mistake worth
	// telling.
	var without []string
	for _, other := range stackfmt.Specs() {
		without = append(without, other.Settings...)
	}
	if spec.New == nil { // a recording keeps addresses, not names
		without = append(without, namingFlags...)
	}
	for _, name := range without {
		if fs.Changed(name) && !slices.Contains(spec.Settings, name) {
			return fmt.Errorf("--%s has no effect in the format %s", name, spec.Name)
		}
	}
	return nil
}

// Bounds of --width, in pixels, and --max-size, in MB.
const (
	minWidth     = 300
	maxGraphSize = 1024
)

// errBinary is the error of refuseTerminal.
var errBinary = errors.New("is binary, and standard output is a terminal: give -o FILE")

// refuseTerminal returns an error if a binary format would go to a terminal, where some bytes are commands. It asks
// before the work, as a recording may take an hour to read.
func refuseTerminal(spec *stackfmt.Spec, output string, c *console) error {
	if spec.Binary && (output == "" || output == "-") && isTerminal(c.out.w) {
		return fmt.Errorf("the format %s %w", spec.Name, errBinary)
	}
	return nil
}
