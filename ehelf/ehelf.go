package ehelf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/input"
)

// Errors that callers tell apart.
var (
	// ErrNotEhElf is wrapped by errors about files that are not eh_elfs, or are
	// damaged.
	ErrNotEhElf = errors.New("not an eh_elf")
	// ErrVersion is wrapped if the ABI version of an eh_elf is unknown.
	ErrVersion = errors.New("unknown eh_elf ABI version")
	// ErrMismatch is wrapped if an eh_elf was made from another object.
	ErrMismatch = abi.ErrMismatch
	// ErrUnsupportedHost is returned if the code cannot run: on anything but
	// linux/amd64.
	ErrUnsupportedHost = errors.New("eh_elfs run on linux/amd64 only")
)

// PC is a run-time address of the target process: the link-time address of
// the object plus its load bias.
type PC uint64

// maxFileSize bounds what OpenFor reads into memory.
const maxFileSize = 1 << 31

// EhElf is a loaded eh_elf. Its methods are safe for concurrent use, except
// Close, which must not run during another call.
type EhElf struct {
	note    abi.Note // which object it is for
	buildID []byte   // of the eh_elf itself; nil: none
	mapping mapping
	step    uintptr // run-time address of _eh_elf; 0 once closed
	walk    uintptr // run-time address of _eh_elf_walk; 0 once closed
	chain   uintptr // run-time address of abi.SymbolChain; 0: none
}

// OpenFor loads the eh_elf in the file path if it was made from the ELF file that object
// reads; otherwise the error wraps ErrMismatch. See CheckObject for what is compared. object
// is not used after OpenFor returns.
//
// Walks run the code of the eh_elf, so whoever can write the file controls the process.
// OpenTrusted checks who can.
func OpenFor(path string, object io.ReaderAt) (*EhElf, error) {
	return open(path, os.Open, isFor(object))
}

// OpenTrusted is OpenFor, but loads the file only if no user but root and the effective one can
// have written it: they own the file, each folder above it and each symbolic link on the path,
// and others cannot write to the file or the folders, except sticky folders.
func OpenTrusted(path string, object io.ReaderAt) (*EhElf, error) {
	return open(path, input.OpenTrusted, isFor(object))
}

// OpenUnchecked is OpenFor without the check, for callers that know by other means which
// object the eh_elf is for. Walks with the eh_elf of another object give wrong frames
// without an error.
func OpenUnchecked(path string) (*EhElf, error) {
	return open(path, os.Open, func(*abi.Note) error { return nil })
}

// isFor returns the check of OpenFor.
func isFor(object io.ReaderAt) func(*abi.Note) error {
	return func(n *abi.Note) error { return n.Check(object) }
}

// open reads the eh_elf with openFile and maps it if check accepts its identity note.
func open(path string, openFile func(string) (*os.File, error), check func(*abi.Note) error) (*EhElf, error) {
	if !supportedHost {
		return nil, ErrUnsupportedHost
	}
	image, err := readFile(path, openFile)
	if err != nil {
		return nil, err
	}
	o, err := load(image, check)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// readFile reads a regular file of bounded size.
func readFile(path string, open func(string) (*os.File, error)) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular(): // opening a FIFO would wait for its writer
		return nil, fmt.Errorf("%s: %w: not a regular file", path, ErrNotEhElf)
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil { // the path may lead to another file by now
		return nil, err
	}
	if st.Size() > maxFileSize {
		return nil, fmt.Errorf("%s: %w: %d bytes", path, ErrNotEhElf, st.Size())
	}
	image := make([]byte, st.Size())
	if _, err := io.ReadFull(f, image); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return image, nil
}

// FromBytes loads an eh_elf from the bytes of its file, which it copies. It is for an eh_elf
// that the caller has just made: it does not check which object the eh_elf is for, see
// CheckObject.
func FromBytes(image []byte) (*EhElf, error) {
	if !supportedHost {
		return nil, ErrUnsupportedHost
	}
	return load(image, func(*abi.Note) error { return nil })
}

// load maps the code of an eh_elf that check accepts.
func load(image []byte, check func(*abi.Note) error) (*EhElf, error) {
	l, err := parse(image)
	if err != nil {
		return nil, err
	}
	if err := check(&l.note); err != nil {
		return nil, err
	}
	m, err := newMapping(image, l)
	if err != nil {
		return nil, fmt.Errorf("cannot map the code: %w", err)
	}
	o := &EhElf{
		note:    l.note,
		buildID: l.buildID,
		mapping: m,
		step:    m.base + uintptr(l.step),
		walk:    m.base + uintptr(l.walk),
	}
	if l.chain != 0 {
		o.chain = m.base + uintptr(l.chain)
	}
	return o, nil
}

// Close unmaps the code. Afterwards Walk and Step set abi.StatusNoInfo.
func (o *EhElf) Close() error {
	o.step, o.walk, o.chain = 0, 0, 0
	return o.mapping.close()
}

// Note returns the identity note, which says which object the eh_elf is for.
// The build-id in it is the object's.
func (o *EhElf) Note() abi.Note {
	n := o.note
	n.BuildID, n.Content = bytes.Clone(n.BuildID), slices.Clone(n.Content)
	return n
}

// BuildID returns the eh_elf's own build-id, or nil if it has none.
func (o *EhElf) BuildID() []byte { return bytes.Clone(o.buildID) }

// Covers reports whether pc, a run-time address, lies between the lowest and the
// highest address that the eh_elf has rows for. bias is the object's load bias.
func (o *EhElf) Covers(pc PC, bias uint64) bool {
	addr := uint64(pc) - bias
	return addr >= o.note.Low && addr < o.note.High
}

// CheckObject returns an error that wraps ErrMismatch unless the eh_elf was made from the ELF file that object reads:
// they have the same build-id, or none, and the same unwind tables. See abi.Note.Check.
func (o *EhElf) CheckObject(object io.ReaderAt) error { return o.note.Check(object) }
