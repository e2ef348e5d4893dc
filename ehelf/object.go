package ehelf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/trust"
)

var (
	// ErrNotEhElf is wrapped by errors about files that are not eh_elfs, or
	// damaged ones.
	ErrNotEhElf = errors.New("not an eh_elf")
	// ErrVersion is wrapped where the ABI version of an eh_elf is unknown.
	ErrVersion = errors.New("unknown eh_elf ABI version")
	// ErrMismatch is wrapped where an eh_elf was made from another object.
	ErrMismatch = errors.New("eh_elf of another object")
	// ErrUnsupportedHost is returned where the code cannot run: on anything but
	// linux/amd64.
	ErrUnsupportedHost = errors.New("eh_elfs run on linux/amd64 only")
)

// PC is a run-time address of the target process: the link-time address of
// the object plus its load bias.
type PC uint64

// maxFileSize bounds what Open reads into memory.
const maxFileSize = 1 << 31

// Object is a loaded eh_elf. Its methods may be called from several goroutines
// at once; Close only when no other call is under way.
type Object struct {
	note    abi.Note
	buildID []byte
	mapping mapping
	step    uintptr // run-time address of _eh_elf; 0 once closed
	walk    uintptr // run-time address of _eh_elf_walk; 0 once closed
	chain   uintptr // run-time address of abi.SymbolChain; 0: none
}

// Open loads the eh_elf in the file path. Its code will be run: whoever can write the
// file decides what it does. Where the caller has not made sure of that, OpenTrusted does.
func Open(path string) (*Object, error) { return open(path, os.Open) }

// OpenTrusted loads the eh_elf in the file path if only root and the effective user can have
// written it: the file, each folder above it and each symbolic link on the way is theirs, and
// neither file nor folders may be written by others, sticky folders apart.
func OpenTrusted(path string) (*Object, error) { return open(path, trust.Open) }

func open(path string, openFile func(string) (*os.File, error)) (*Object, error) {
	if !supportedHost {
		return nil, ErrUnsupportedHost
	}
	image, err := readFile(path, openFile)
	if err != nil {
		return nil, err
	}
	o, err := FromBytes(image)
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
	if st, err = f.Stat(); err != nil {
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

// FromBytes loads an eh_elf from the bytes of its file, which it copies.
func FromBytes(image []byte) (*Object, error) {
	if !supportedHost {
		return nil, ErrUnsupportedHost
	}
	l, err := parse(image)
	if err != nil {
		return nil, err
	}
	m, err := newMapping(image, l)
	if err != nil {
		return nil, fmt.Errorf("cannot map the code: %w", err)
	}
	o := &Object{
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

// Close unmaps the code. Walk and Step answer abi.StatusNoInfo afterwards.
func (o *Object) Close() error {
	o.step, o.walk, o.chain = 0, 0, 0
	return o.mapping.close()
}

// Note returns the identity note: what object the eh_elf is for. The build-id
// in it is the object's.
func (o *Object) Note() abi.Note {
	n := o.note
	n.BuildID = bytes.Clone(n.BuildID)
	return n
}

// BuildID returns the eh_elf's own build-id, nil where it has none.
func (o *Object) BuildID() []byte { return bytes.Clone(o.buildID) }

// Covers reports whether pc lies between the lowest and the highest address that
// the eh_elf has rows for. bias is the object's load bias.
func (o *Object) Covers(pc PC, bias uint64) bool {
	addr := uint64(pc) - bias
	return addr >= o.note.Low && addr < o.note.High
}

// CheckObject reports whether the eh_elf was made from the object that has this
// build-id (empty: none) and is read by object. The latter is read only where neither
// side has a build-id; then null is an object of which nothing is known. An eh_elf that
// says nothing of its object but the size of the file (ehasm before 0.6.0) is none of an
// object without build-id: a program that is compiled again may keep its size.
func (o *Object) CheckObject(buildID []byte, object io.ReaderAt) error {
	return checkObject(&o.note, buildID, object)
}

func checkObject(n *abi.Note, buildID []byte, object io.ReaderAt) error {
	switch {
	case !bytes.Equal(n.BuildID, buildID):
		return fmt.Errorf("%w: made from build-id %s, object has %s", ErrMismatch, idString(n.BuildID), idString(buildID))
	case len(buildID) > 0:
		return nil
	case n.Content.Size == 0 || object == nil:
		return fmt.Errorf("%w: no build-id, and nothing known of the content", ErrMismatch)
	}
	content, err := n.Content.Of(object)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if content != n.Content {
		return fmt.Errorf("%w: no build-id, and other content: XXH64 of %#x bytes at %#x is %#x, of the object it was made from %#x",
			ErrMismatch, content.Size, content.Low, content.Hash, n.Content.Hash)
	}
	return nil
}

func idString(id []byte) string {
	if len(id) == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", id)
}
