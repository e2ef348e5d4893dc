package dwarfcfa

import (
	"errors"
	"fmt"
	"strings"
)

// augmentation decodes the augmentation data that the letters of aug describe
// (LSB 5.0 §10.6.1.1.1).
func (s *Section) augmentation(c *cursor, cie *CIE, aug string) error {
	if !strings.HasPrefix(aug, "z") {
		return s.letters(c, cie, aug)
	}
	// The data has a length, and what the first unknown letter and those behind it mean is skipped, as in libgcc.
	n := c.uleb()
	start := c.pos
	cie.AugData = c.bytes(n)
	if c.err != nil {
		return c.err
	}
	data := s.cursor(start, c.pos)
	if err := s.letters(&data, cie, aug[1:]); !errors.Is(err, errLetter) {
		return err
	}
	return nil
}

// errLetter is the error for a letter of an augmentation that is not known.
var errLetter = fmt.Errorf("unknown CIE augmentation: %w", ErrUnsupported)

// letters decodes the augmentation data of some letters. The error is errLetter at the first letter that is not known:
// how long its data are is then not known either.
func (s *Section) letters(c *cursor, cie *CIE, aug string) error {
	for _, letter := range []byte(aug) {
		switch letter {
		case 'R':
			cie.FDEEncoding = PointerEncoding(c.u8())
		case 'L':
			cie.LSDAEncoding = PointerEncoding(c.u8())
		case 'P':
			cie.PersonalityEncoding = PointerEncoding(c.u8())
			if cie.PersonalityEncoding != PEOmit {
				s.personality(c, cie)
			}
		case 'S':
			cie.Signal = true
		case 'B': // AArch64: return addresses are signed with the B key
		default:
			return cause(errLetter, "unknown CIE augmentation %q", cie.Augmentation)
		}
		if c.err != nil {
			return c.err
		}
	}
	return nil
}

// personality reads the pointer to a CIE's personality routine. If its value is known only at run time, the word in
// memory is the pointer. A field that a relocation with a symbol fills in (R_X86_64_64 against __gxx_personality_v0,
// without PIC) has no value in the file; the loader's value is read through its address.
func (s *Section) personality(c *cursor, cie *CIE) {
	enc, field := cie.PersonalityEncoding, *c
	p, null := c.pointerSlot(enc, s, 0)
	cie.Personality, cie.PersonalityIndirect = p, enc&PEIndirect != 0
	if enc.PointerSize() == 8 && enc&^peFormatMask == 0 && errors.Is(c.err, ErrUnsupported) {
		cie.Personality, cie.PersonalityIndirect = s.Addr+Addr(field.pos), true
		*c = field
		c.bytes(8)
	} else if null && c.err == nil {
		cie.PersonalityEncoding = PEOmit
	}
}
