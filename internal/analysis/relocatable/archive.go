package relocatable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// ErrThin says that an archive is thin: it holds only the names of its members.
var ErrThin = errors.New("a thin archive: its members are files beside it")

// The format of archives (ar(5)): a magic text, then members, each with a header of 60 bytes, at even offsets.
const (
	archiveMagic = "!<arch>\n"
	thinMagic    = "!<thin>\n"
	memberHeader = 60
	maxNames     = 64 << 20 // bytes of the table of long names
)

// Member is a file in an archive.
type Member struct {
	Name string
	*io.SectionReader
}

// IsArchive reports whether r holds a static library.
func IsArchive(r io.ReaderAt) bool {
	var b [len(archiveMagic)]byte
	_, err := r.ReadAt(b[:], 0)
	return err == nil && (string(b[:]) == archiveMagic || string(b[:]) == thinMagic)
}

// Members iterates over the members of the static library in r, which has size bytes. It skips the tables of symbols
// and names, and stops at the first error: ErrThin, or one that wraps ErrMalformed.
func Members(r io.ReaderAt, size int64) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		var magic [len(archiveMagic)]byte
		if _, err := r.ReadAt(magic[:], 0); err != nil || string(magic[:]) != archiveMagic {
			if string(magic[:]) == thinMagic {
				err = ErrThin
			} else {
				err = fmt.Errorf("%w archive", ErrMalformed)
			}
			yield(Member{}, err)
			return
		}
		var names []byte // GNU's table of long names, a member that precedes those it names
		for off := int64(len(archiveMagic)); off+memberHeader <= size; {
			var h [memberHeader]byte
			_, err := r.ReadAt(h[:], off)
			n, notNumber := strconv.ParseInt(strings.TrimSpace(string(h[48:58])), 10, 64) // bytes 48 to 57 are the size, decimal
			off += memberHeader
			// A header ends with two fixed bytes.
			if err != nil || notNumber != nil || string(h[58:]) != "`\n" || n < 0 || n > size-off {
				yield(Member{}, fmt.Errorf("%w archive: member at %#x", ErrMalformed, off-memberHeader))
				return
			}
			m := Member{strings.TrimRight(string(h[:16]), " "), io.NewSectionReader(r, off, n)}
			off += (n + 1) &^ 1 // members begin at even offsets
			switch {
			case m.Name == "//" && n <= maxNames:
				names = make([]byte, n)
				_, err = m.ReadAt(names, 0)
			// Tables of symbols, of GNU and BSD.
			case m.Name == "/" || m.Name == "/SYM64/" || strings.HasPrefix(m.Name, "__.SYMDEF"):
			default:
				if m, err = m.named(names); err == nil && !yield(m, nil) {
					return
				}
			}
			if err != nil {
				yield(Member{}, fmt.Errorf("%w archive: member %q: %v", ErrMalformed, m.Name, err))
				return
			}
		}
	}
}

// named resolves the two ways to give a long name: /N, an offset in GNU's table of names, and BSD's #1/N, where the
// first N bytes of the member are the name.
func (m Member) named(names []byte) (Member, error) {
	// BSD: the name is before the contents.
	if digits, ok := strings.CutPrefix(m.Name, "#1/"); ok {
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n < 0 || n > m.Size() || n > maxNames {
			return m, errors.New("its name is longer than the member")
		}
		name := make([]byte, n)
		if _, err := m.ReadAt(name, 0); err != nil {
			return m, err
		}
		return Member{string(bytes.TrimRight(name, "\x00")), io.NewSectionReader(m, n, m.Size()-n)}, nil
	}
	// GNU: an offset; names there end with a slash and a line feed.
	if digits, ok := strings.CutPrefix(m.Name, "/"); ok {
		off, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || off >= uint64(len(names)) {
			return m, errors.New("its name is not in the table of names")
		}
		name, _, _ := bytes.Cut(names[off:], []byte("\n"))
		m.Name = string(name)
	}
	// GNU ends short names with a slash, too.
	m.Name = strings.TrimSuffix(m.Name, "/")
	return m, nil
}
