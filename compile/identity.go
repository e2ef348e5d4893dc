package compile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// This file says what tells that an existing file may stay: its notes. They have every input of Compile but the
// object's bytes, which abi.Note.Check compares, and nothing of time, host or path.

// Identity says from what and with which options an eh_elf is made. A file is up to date if its notes agree.
type Identity struct {
	object     *dwarfcfa.File
	opt        Options
	target     Target
	debugFrame string // the line of the build note; "": the object has none that counts
}

// Identify returns the identity of an object's eh_elf. .debug_frame is read whole for its hash, so a Transient file,
// that no later process compares, goes without.
func Identify(object *dwarfcfa.File, opt Options, target Target) *Identity {
	id := &Identity{object: object, opt: opt, target: target}
	if !target.Transient && (opt.Source == dwarfcfa.SourceAuto || opt.Source == dwarfcfa.SourceDebugFrame) {
		if hash := object.DebugFrameHash(); hash != 0 {
			id.debugFrame = fmt.Sprintf("%s=%016x", KeyDebugFrame, hash)
		}
	}
	return id
}

// name returns the file's name without suffix.
func (id *Identity) name() string {
	if id.target.Name != "" {
		return id.target.Name
	}
	return filepath.Base(id.object.Name())
}

// Keys of the lines in the build note.
const (
	KeyTool       = "tool"        // name and version of the program that made the file
	KeyObject     = "object"      // name of the object, if the file has another
	KeyOptions    = "options"     // as Options.String has them
	KeyDebugFrame = "debug-frame" // XXH64 of .debug_frame, which is not in memory, hexadecimal
	KeyVerified   = "verified"    // whether the file was proven: true or false
	KeySource     = "section"     // section that the tables were read from
	KeyFDEs       = "fdes"        // number of FDEs
	KeyTableBytes = "table-bytes" // bytes of the tables
	KeyLeftOut    = "left-out"    // COUNT REASON; may occur more than once
)

// note returns the build note: the options of the file, and the figures that a later build shows without making it
// again. The order is fixed: Accept compares the lines one by one.
func (id *Identity) note(s Stats) []string {
	lines := []string{KeyTool + "=" + tool, KeyOptions + "=" + id.opt.String()}
	if id.target.Object != "" {
		lines = append(lines, KeyObject+"="+id.target.Object)
	}
	if id.debugFrame != "" {
		lines = append(lines, id.debugFrame)
	}
	lines = append(lines,
		KeyVerified+"="+strconv.FormatBool(s.Verified),
		KeySource+"="+s.Section,
		KeyFDEs+"="+strconv.Itoa(s.FDEs),
		KeyTableBytes+"="+strconv.FormatInt(s.TableBytes, 10))
	for _, l := range s.LeftOut {
		lines = append(lines, fmt.Sprintf("%s=%d %s", KeyLeftOut, l.Count, l.Reason))
	}
	return lines
}

// Current reports whether a file with these notes means what one would that is made now. It may have rows of a
// .debug_frame that has been stripped since. Notes can lie; where the file's maker is not trusted, Accept proves the
// file too.
func (id *Identity) Current(info elfout.Info) bool {
	n, s := info.Note, StatsOf(info)
	sites := info.Sites == 0 || info.Sites == abi.SitesVersion // exceptions do not read a table of another version
	return n.Version == abi.Version && sites &&
		n.Flags&^(abi.FlagSites|abi.FlagPacked) == id.opt.flags() && // the flags that depend on options
		MadeWith(info, id.opt) &&
		(id.debugFrame == "" || slices.Contains(info.Build, id.debugFrame)) &&
		(s.Verified || id.target.Unproven) && !(id.target.Strict && len(s.Losses()) > 0) &&
		n.Check(id.object.File()) == nil
}

// MadeWith reports whether an eh_elf says that this release made it, with these options.
func MadeWith(info elfout.Info, opt Options) bool {
	return slices.Contains(info.Build, KeyTool+"="+tool) && slices.Contains(info.Build, KeyOptions+"="+opt.String())
}

// StatsOf returns the figures that an eh_elf's notes give. Lines that do not parse count as 0: the note is informative,
// and another release may have written it.
func StatsOf(info elfout.Info) Stats {
	s := Stats{
		Rows: int(info.Note.Ranges), Distinct: int(info.Note.Rows), CodeBytes: info.TextSize + info.DataSize,
		Layout: layoutName(info.Note.Flags&abi.FlagPacked != 0), LeftOut: []LeftOut{},
	}
	for _, line := range info.Build {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case KeyVerified:
			s.Verified = value == "true"
		case KeySource:
			s.Section = value
		case KeyFDEs:
			s.FDEs, _ = strconv.Atoi(value)
		case KeyTableBytes:
			s.TableBytes, _ = strconv.ParseInt(value, 10, 64)
		case KeyLeftOut:
			count, reason, _ := strings.Cut(value, " ")
			if n, err := strconv.Atoi(count); err == nil {
				s.LeftOut = append(s.LeftOut, LeftOut{reason, n})
			}
		}
	}
	return s
}
