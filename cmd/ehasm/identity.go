package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/find"
	"github.com/ehasm/ehasm/internal/trust"
	"github.com/ehasm/ehasm/synth"
)

// identity says from what and with which options an eh_elf is made. A file is
// up to date if its notes agree.
type identity struct {
	name    string // of the object: the eh_elf's file name without suffix
	object  string // the object's own name if it differs: in the cache
	buildID []byte
	size    int64
	sha256  string // of the file; only if it has no build-id
	options string
	flags   uint32 // of the identity note
	mapped  bool   // by a process: an eh_elf is made even if it has no rows
}

func identify(j *job, object *dwarfcfa.Object, r io.ReaderAt, size int64, opt *buildOptions) (identity, error) {
	id := identity{
		name: strings.TrimSuffix(j.target, abi.Suffix), buildID: object.BuildID(), size: size,
		options: opt.describe(), flags: opt.flags(), mapped: j.Mapped && opt.cache == "",
	}
	if opt.cache != "" {
		id.object = quote(filepath.Base(j.name))
	}
	if len(id.buildID) == 0 {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(r, 0, size)); err != nil {
			return id, fmt.Errorf("reading: %w", bare(err))
		}
		id.sha256 = fmt.Sprintf("%x", h.Sum(nil))
	}
	return id, nil
}

// describe returns the options that the bytes of an eh_elf depend on.
func (opt *buildOptions) describe() string {
	words := []string{"source=" + opt.source.String(), "dispatch=" + opt.dispatch.String()}
	if opt.noDeref {
		words = append(words, "no-deref")
	}
	if opt.noSites {
		words = append(words, "no-exceptions")
	}
	if opt.relro {
		words = append(words, "relro")
	}
	if opt.synth != synth.Off {
		words = append(words, "synth="+opt.synth.String())
	}
	return strings.Join(words, ",")
}

// flags returns the flags of the identity note that depend on the options alone.
func (opt *buildOptions) flags() uint32 {
	var flags uint32
	if opt.noDeref {
		flags |= abi.FlagNoDeref
	}
	return flags
}

// canRun reports whether generated code runs on this machine.
func canRun() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// Keys of the lines in the build note.
const (
	keyTool       = "tool"
	keyObject     = "object"
	keyOptions    = "options"
	keySHA256     = "sha256"
	keyVerified   = "verified"
	keySource     = "section"
	keyFDEs       = "fdes"
	keyTableBytes = "table-bytes"
	keyLeftOut    = "left-out" // COUNT REASON; may occur more than once
)

func tool() string { return "ehasm " + toolVersion() }

// buildLines returns the build note: the options of the file, and the figures
// that a later build shows without making it again.
func buildLines(id identity, s stats) []string {
	lines := []string{keyTool + "=" + tool(), keyOptions + "=" + id.options}
	if id.object != "" {
		lines = append(lines, keyObject+"="+id.object)
	}
	if id.sha256 != "" {
		lines = append(lines, keySHA256+"="+id.sha256)
	}
	lines = append(lines,
		keyVerified+"="+strconv.FormatBool(s.Verified),
		keySource+"="+s.Section,
		keyFDEs+"="+strconv.Itoa(s.FDEs),
		keyTableBytes+"="+strconv.FormatInt(s.TableBytes, 10))
	for _, l := range s.LeftOut {
		lines = append(lines, fmt.Sprintf("%s=%d %s", keyLeftOut, l.Count, l.Reason))
	}
	return lines
}

// upToDate reads the existing eh_elf of a job and reports whether building it
// again would change nothing.
func upToDate(j *job, id identity, opt *buildOptions) (stats, bool) {
	// A target that is a link may lead to one of the names that will become
	// links to the target. In the cache a build makes no links.
	if st, err := os.Lstat(j.target); err != nil || (len(j.links) > 0 || opt.cache != "") && !st.Mode().IsRegular() {
		return stats{}, false
	}
	open := func() (io.ReaderAt, func() error, error) {
		f, _, done, err := find.OpenFile(j.target)
		return f, done, err
	}
	if opt.cache != "" { // in the cache, only files that a loader would accept count
		open = func() (io.ReaderAt, func() error, error) {
			f, err := trust.Open(j.target)
			if err != nil {
				return nil, nil, err
			}
			return f, f.Close, nil
		}
	}
	f, done, err := open()
	if err != nil {
		return stats{}, false
	}
	defer done()
	info, err := elfout.ReadInfo(f)
	if err != nil {
		return stats{}, false
	}
	n := info.Note
	sameSize := n.FileSize == uint64(id.size) || opt.cache != "" // a build-id outlives strip
	sites := info.Sites == 0 || info.Sites == abi.SitesVersion   // exceptions do not read a table of another version
	if n.Version != abi.Version || !sites || !sameSize || !bytes.Equal(n.BuildID, id.buildID) ||
		n.Flags&^(abi.FlagSites|abi.FlagPacked) != id.flags { // the flags that depend on options
		return stats{}, false
	}
	if !madeWithOptions(info, id.options) ||
		id.sha256 != "" && !slices.Contains(info.Build, keySHA256+"="+id.sha256) {
		return stats{}, false
	}
	s := statsOf(info)
	if !s.Verified && !opt.noVerify || opt.strict && len(s.losses()) > 0 {
		return stats{}, false
	}
	return s, true
}

// madeWithOptions reports whether an eh_elf says that this release made it, with these options.
func madeWithOptions(info elfout.Info, options string) bool {
	return slices.Contains(info.Build, keyTool+"="+tool()) && slices.Contains(info.Build, keyOptions+"="+options)
}

// statsOf parses what buildLines wrote.
func statsOf(info elfout.Info) stats {
	s := stats{
		Rows: int(info.Note.Ranges), Distinct: int(info.Note.Rows), CodeBytes: info.TextSize + info.DataSize,
		Layout: layoutOf(info.Note.Flags&abi.FlagPacked != 0), LeftOut: []leftOut{},
	}
	for _, line := range info.Build {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case keyVerified:
			s.Verified = value == "true"
		case keySource:
			s.Section = value
		case keyFDEs:
			s.FDEs, _ = strconv.Atoi(value)
		case keyTableBytes:
			s.TableBytes, _ = strconv.ParseInt(value, 10, 64)
		case keyLeftOut:
			count, reason, _ := strings.Cut(value, " ")
			if n, err := strconv.Atoi(count); err == nil {
				s.LeftOut = append(s.LeftOut, leftOut{reason, n})
			}
		}
	}
	return s
}

// newStats collects the figures of the stages before the code.
func newStats(found *dwarfcfa.Report, table *dwarfcfa.Table, opt *buildOptions) stats {
	s := stats{
		Section: found.Source, FDEs: found.FDEs, Rows: len(table.Ranges), Distinct: len(table.Rows),
		TableBytes: found.SectionSize + found.HdrSize,
		MadeRows:   found.MadeRanges, MadeBytes: found.MadeBytes,
		Verified: !opt.noVerify,
		LeftOut:  []leftOut{},
	}
	add := func(reason string, n int) {
		if n > 0 {
			s.LeftOut = append(s.LeftOut, leftOut{reason, n})
		}
	}
	listed := 0
	for _, kind := range []error{dwarfcfa.ErrTruncated, dwarfcfa.ErrBadEncoding, dwarfcfa.ErrUnsupported} {
		n := 0
		for _, err := range found.LostFDEs {
			if errors.Is(err, kind) {
				n++
			}
		}
		listed += n
		add(lossPrefix+kind.Error(), n)
	}
	add(lossPrefix+"bad", found.Lost-listed) // beyond what the report lists
	add(rowsNotCompiled, found.NotCompiledRows)
	add("outside the code", found.OutsideCode)
	add("shadowed", found.ShadowedFDEs)
	add("empty", found.EmptyFDEs)
	return s
}

const (
	lossPrefix      = "FDEs "
	rowsNotCompiled = "rows not compiled"
)

// losses returns what --strict would treat as failures.
func (s stats) losses() []leftOut {
	var lost []leftOut
	for _, l := range s.LeftOut {
		if strings.HasPrefix(l.Reason, lossPrefix) || l.Reason == rowsNotCompiled {
			lost = append(lost, l)
		}
	}
	return lost
}

// newDetails lists what newStats counts as lost.
func newDetails(found *dwarfcfa.Report) []error {
	var all []error
	for _, err := range found.LostFDEs {
		e := *err
		e.File = "" // the line begins with it
		all = append(all, &e)
	}
	for _, n := range found.NotCompiled {
		all = append(all, fmt.Errorf("%s%v", found.Source, n))
	}
	return all
}
