package perfdata

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
)

// Header features: tools/perf/Documentation/perf.data-file-format.txt, "Flags
// section".
const (
	featureBuildID       = 2 // build-ids of files with samples
	featureHostname      = 3 // the strings of uname(2)
	featureOSRelease     = 4
	featureVersion       = 5 // of perf
	featureArch          = 6
	featureNrCPUs        = 7
	featureCPUDesc       = 8  // model name of /proc/cpuinfo
	featureCPUID         = 9  // vendor, family, model, stepping
	featureTotalMem      = 10 // kB
	featureCmdline       = 11 // list of strings
	featureEventDesc     = 12 // attributes, names and ids of events
	featureAuxtraceIndex = 18 // offsets of AUX data
	featureSampleTime    = 21 // times of the first and last sample
	featureDirFormat     = 24 // the recording is a folder
	featureCompressed    = 27 // how records are compressed
)

const (
	// Bytes of a section.
	maxFeature  = 64 << 20 // bytes
	maxStrings  = 1 << 16  // strings or descriptions in a list
	maxWarnings = 32       // further ones are dropped
)

// BuildID is the build-id of a file that samples lie in.
// Kernel or user.
type BuildID struct {
	Mode CPUMode // -1: any process
	PID  int32   // 20 bytes of SHA-1, or fewer
	ID   []byte  // path
	Name string
}

// Info holds the header features; fields that the file does not have are zero.
type Info struct {
	Hostname, OSRelease, Version string
	Arch, CPUDesc, CPUID         string
	CPUsOnline, CPUsAvailable    uint32
	TotalMem                     uint64 // kB
	Cmdline                      []string
	BuildIDs                     []BuildID
	FirstSample, LastSample      uint64 // ns
	Compression                  string // "zstd level N", or ""
	Warnings                     []error
}

// warn keeps a warning, up to a bound: a damaged file gives one for each feature.
func (i *Info) warn(err error) {
	if len(i.Warnings) < maxWarnings {
		i.Warnings = append(i.Warnings, err)
	}
}

// feature is a section of the file.
type feature struct {
	bit uint64 // number of the feature, as in perf's enum
	section
}

// featureTable says where the features of a file are.
type featureTable struct {
	in    io.ReaderAt
	off   int64     // of the table of their sections
	flags [4]uint64 // a bit for each feature
}

// sections returns the features in their order. After an error they are those before.
func (t *featureTable) sections() (list []feature, err error) {
	// A table entry for each bit that is set, in ascending order: no entry says its bit.
	off := t.off
	for word, set := range t.flags {
		// set & (set-1) clears the lowest bit.
		for ; set != 0; set &= set - 1 {
			bit := uint64(64*word + bits.TrailingZeros64(set))
			var b [sectionSize]byte
			if _, err := t.in.ReadAt(b[:], off); err != nil {
				return list, &Error{off, fmt.Sprintf("feature %d and those after it", bit), ErrTruncated}
			}
			c := cursor{data: b[:]}
			list = append(list, feature{bit, section{c.u64(), c.u64()}})
			off += sectionSize
		}
	}
	return list, nil
}

// readFeatures reads the feature sections. A feature that cannot be read gives a
// warning.
func (r *Reader) readFeatures() {
	list, err := r.features.sections()
	for _, f := range list {
		// Features that are not used, such as topologies, can be large.
		if !wantsFeature(f.bit) {
			continue
		}
		if f.size > maxFeature {
			r.info.warn(&Error{int64(f.off), fmt.Sprintf("feature %d", f.bit), fmt.Errorf("%w: %d bytes", ErrFormat, f.size)})
			continue
		}
		data, err := readSection(r.features.in, f.section)
		if err != nil {
			r.info.warn(&Error{int64(f.off), fmt.Sprintf("feature %d", f.bit), err})
			continue
		}
		r.takeFeature(f.bit, int64(f.off), data)
	}
	if err != nil {
		r.info.warn(err)
	}
}

// wantsFeature reports whether takeFeature reads a feature.
func wantsFeature(bit uint64) bool {
	return bit >= featureBuildID && bit <= featureEventDesc || bit == featureSampleTime ||
		bit == featureDirFormat || bit == featureCompressed
}

// takeFeature reads the contents of a feature, from a section or a record, into info.
func (r *Reader) takeFeature(bit uint64, off int64, data []byte) {
	c := cursor{data: data}
	i := &r.info
	switch bit {
	case featureBuildID:
		r.takeBuildIDs(off, c)
		return
	case featureHostname:
		i.Hostname = c.headerString()
	case featureOSRelease:
		i.OSRelease = c.headerString()
	case featureVersion:
		i.Version = c.headerString()
	case featureArch:
		i.Arch = c.headerString()
	case featureNrCPUs:
		i.CPUsAvailable, i.CPUsOnline = c.u32(), c.u32()
	case featureCPUDesc:
		i.CPUDesc = c.headerString()
	case featureCPUID:
		i.CPUID = c.headerString()
	case featureTotalMem:
		i.TotalMem = c.u64()
	case featureCmdline:
		i.Cmdline = nil
		// The count is the file's claim.
		for range min(c.u32(), maxStrings) {
			if i.Cmdline = append(i.Cmdline, c.headerString()); c.bad {
				break
			}
		}
	case featureEventDesc:
		r.takeEventDesc(&c)
	case featureSampleTime:
		i.FirstSample, i.LastSample = c.u64(), c.u64()
	case featureDirFormat:
		// Opened by itself, the file has no samples.
		i.warn(&Error{off, "feature DIR_FORMAT", errPart})
	case featureCompressed:
		c.u32() // version
		const typeZstd = 1
		if kind, level := c.u32(), c.u32(); kind == typeZstd {
			i.Compression = fmt.Sprintf("zstd level %d", level)
		} else {
			i.Compression = fmt.Sprintf("type %d", kind)
		}
	}
	// What was read before stays.
	if c.bad {
		i.warn(&Error{off, fmt.Sprintf("feature %d", bit), ErrTruncated})
	}
}

// takeBuildIDs reads the records of HEADER_BUILD_ID.
func (r *Reader) takeBuildIDs(off int64, c cursor) {
	// A list of records with headers like those of the data section.
	for len(c.data) >= headerSize {
		h := headerOf(c.data, off)
		body := c.bytes(uint64(h.Size))
		if h.Size < headerSize || c.bad {
			r.info.warn(&Error{off, "build-ids", ErrTruncated})
			return
		}
		off += int64(h.Size)
		if id, ok := parseBuildID(h, cursor{data: body[headerSize:]}); ok {
			r.info.BuildIDs = append(r.info.BuildIDs, id)
		}
	}
}

// parseBuildID reads struct build_id_event after its header.
func parseBuildID(h Header, c cursor) (BuildID, bool) {
	// Of the 24 bytes, the first 20 are the build-id; byte 20 is its size, if the flag says so.
	const sizeAt, maxSize = 20, 20
	b := BuildID{Mode: h.Mode(), PID: int32(c.u32())}
	field := c.bytes(24)
	if c.bad {
		return b, false
	}
	// Without the flag the size is not recorded: SHA-1.
	size := maxSize
	if h.Misc&miscBuildIDSize != 0 {
		size = min(int(field[sizeAt]), maxSize)
	}
	b.ID = bytes.Clone(field[:size])
	b.Name = string(c.text())
	return b, true
}

// takeEventDesc reads the names of the events: the i-th description belongs to
// the event that has its ids, or else of the i-th event.
func (r *Reader) takeEventDesc(c *cursor) {
	n, attrSize := c.u32(), c.u32()
	for i := range min(n, maxStrings) {
		// The attribute is known already.
		c.bytes(uint64(attrSize))
		nIDs := c.u32()
		name := c.headerString()
		ids := c.words(nil, uint64(nIDs))
		if c.bad {
			return
		}
		// Without ids, as for a single event, the order decides.
		var ev *Event
		if len(ids) > 0 {
			ev = r.byID[ids[0]]
		}
		if ev == nil && int(i) < len(r.events) {
			ev = r.events[i]
		}
		if ev != nil {
			ev.Name = name
		}
	}
}
