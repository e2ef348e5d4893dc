package inspect

import (
	"fmt"
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
)

// This file is what ehasm info shows: an eh_elf's notes, headers and symbols. Nothing is checked against the object;
// prove does that.

// Info says what an eh_elf was made from, what it covers, and how large its parts are. Its embedded
// structs group the fields of one JSON object.
type Info struct {
	File       string   `json:"file"` // as given on the command line
	Soname     string   `json:"soname"`
	ABIVersion uint32   `json:"abi_version"` // of the note: abi.Version of the ehasm that made the file
	Flags      []string `json:"flags"`       // names of abi.Flag* bits, and relro
	Layout     string   `json:"layout"`      // tree or packed
	objectJSON
	BuildID string `json:"build_id"` // of the eh_elf itself, hexadecimal
	tableJSON
	sizesJSON
	Exports map[string]uint64 `json:"exports"` // offset by name
	Build   []string          `json:"build"`   // lines KEY=VALUE that tell how the file was made
}

// objectJSON is the object that a file was made from.
type objectJSON struct {
	ObjectBuildID string     `json:"object_build_id"` // hexadecimal; "": none
	ObjectSize    uint64     `json:"object_size"`     // bytes
	Content       []partJSON `json:"object_content,omitempty"`
}

// tableJSON is what a file covers: link-time addresses from low up to high.
type tableJSON struct {
	Low    uint64 `json:"low"` // link-time addresses, low included and high not
	High   uint64 `json:"high"`
	Ranges uint32 `json:"ranges"` // ranges of pcs with a row, and rows of which no two are equal
	Rows   uint32 `json:"distinct_rows"`
}

// sizesJSON are the sizes of a file's parts, in bytes.
type sizesJSON struct {
	TextSize int64 `json:"text_bytes"`
	DataSize int64 `json:"data_bytes"`
	SiteSize int64 `json:"site_bytes"`
	FileSize int64 `json:"file_bytes"`
}

// partJSON is an abi.Part; the hash is text, since JSON's numbers lose its low bits.
type partJSON struct {
	Low  uint64 `json:"low"` // link-time address and length in bytes of what is hashed
	Size uint64 `json:"bytes"`
	Hash string `json:"xxh64"`
}

// ReadInfo reads the eh_elf at path. The error is of the file system, or elfout's if the file is no eh_elf.
func ReadInfo(path string) (*Info, error) {
	f, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer done()
	info, err := elfout.ReadInfo(f)
	if err != nil {
		return nil, err
	}
	n, stats := info.Note, compile.StatsOf(info)
	out := &Info{
		File: path, Soname: info.Soname, ABIVersion: n.Version, Flags: []string{}, Layout: stats.Layout,
		objectJSON: objectJSON{ObjectBuildID: fmt.Sprintf("%x", n.BuildID), ObjectSize: n.FileSize},
		BuildID:    fmt.Sprintf("%x", info.BuildID),
		tableJSON:  tableJSON{Low: n.Low, High: n.High, Ranges: n.Ranges, Rows: n.Rows},
		sizesJSON:  sizesJSON{TextSize: info.TextSize, DataSize: info.DataSize, SiteSize: info.SiteSize, FileSize: size},
		Exports:    make(map[string]uint64), Build: info.Build,
	}
	for _, p := range n.Content {
		out.Content = append(out.Content, partJSON{Low: p.Low, Size: p.Size, Hash: fmt.Sprintf("%016x", p.Hash)})
	}
	if n.Flags&abi.FlagNoDeref != 0 {
		out.Flags = append(out.Flags, "no-deref")
	}
	if n.Flags&abi.FlagPacked != 0 {
		out.Flags = append(out.Flags, "packed")
	}
	if n.Flags&abi.FlagSites != 0 {
		out.Flags = append(out.Flags, "sites")
	}
	// A later release may know more flags.
	if other := n.Flags &^ (abi.FlagNoDeref | abi.FlagPacked | abi.FlagSites); other != 0 {
		out.Flags = append(out.Flags, fmt.Sprintf("unknown %#x", other))
	}
	if info.Relro { // not of the note: the program headers say so
		out.Flags = append(out.Flags, "relro")
	}
	for _, s := range info.Symbols {
		if s.Exported {
			out.Exports[s.Name] = s.Addr
		}
	}
	return out, nil
}

// Print writes a line for each property, for people.
func (i *Info) Print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-16s %s\n", name, output.Text(fmt.Sprintf(format, args...)))
	}
	or := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	fmt.Fprintf(w, "%s:\n", output.Name(i.File))
	line("soname", "%s", i.Soname)
	line("ABI version", "%d", i.ABIVersion)
	line("flags", "%s", or(strings.Join(i.Flags, ", "), "none"))
	line("object build-id", "%s", or(i.ObjectBuildID, "none"))
	line("object size", "%d bytes", i.ObjectSize)
	for _, p := range i.Content {
		line("object content", "XXH64 %s of %d bytes at %#x", p.Hash, p.Size, p.Low)
	}
	line("covers", "%#x..%#x", i.Low, i.High)
	line("rows", "%d ranges, %d distinct", i.Ranges, i.Rows)
	line("layout", "%s", i.Layout)
	line("code", "%d bytes", i.TextSize)
	line("data", "%d bytes", i.DataSize)
	if i.SiteSize > 0 {
		line("sites", "%d bytes", i.SiteSize)
	}
	line("file", "%d bytes", i.FileSize)
	stats := compile.StatsOf(elfout.Info{Build: i.Build, TextSize: i.TextSize, DataSize: i.DataSize})
	if stats.FDEs > 0 {
		line("FDEs", "%d", stats.FDEs)
	}
	if stats.TableBytes > 0 {
		line("tables", "%s, %d bytes; code+data is %.2f of it", stats.Section, stats.TableBytes, stats.Ratio())
	}
	line("build-id", "%s", or(i.BuildID, "none"))
	// Lines that a later release adds are not shown, since their meaning is unknown here.
	for _, b := range i.Build {
		key, value, _ := strings.Cut(b, "=")
		switch key {
		case compile.KeyObject, compile.KeyTool, compile.KeyOptions, compile.KeyVerified, compile.KeyLeftOut,
			compile.KeyDebugFrame:
			line(key, "%s", value)
		}
	}
}
