package srcline

import "encoding/binary"

// This file decodes attribute values by their forms, and finds what they refer to: entries,
// addresses, strings (DWARF 5, 7.5.6). Values stay as encoded until asked for, since most are not.

// value is an attribute's value as encoded; form says what it means.
type value struct {
	form uint16
	u    uint64 // for a string in the entry: its offset in .debug_info
}

// read reads a value. It must consume exactly the bytes that formSize and skipForm account for: entries follow each
// other without lengths. An unknown form sets c.bad.
func read(c *cursor, a attr, f format) value {
	v := value{form: a.form}
	// Forms of a fixed size first: they are most values.
	if n, fixed := formSize(a.form, f); fixed {
		switch {
		case a.form == formImplicitConst:
			v.u = uint64(a.implicit)
		// The presence is the value.
		case a.form == formFlagPresent:
			v.u = 1
		case n <= 8:
			v.u = c.uint(n)
		default: // data16: a checksum, which is not needed
			c.skip(n)
		}
		return v
	}
	switch a.form {
	// Indices and unsigned numbers.
	case formUdata, formRefUdata, formStrx, formAddrx, formRnglistx, formLoclistx, formGNUAddrIndex, formGNUStrIndex:
		v.u = c.uleb()
	case formSdata:
		v.u = uint64(c.sleb())
	// The string itself stays where it is.
	case formString:
		v.u = c.off
		c.cstr()
	case formIndirect:
		inner := attr{name: a.name, form: uint16(c.uleb())}
		// an indirect form cannot lead to another one, nor to a value of the declaration
		if inner.form == formIndirect || inner.form == formImplicitConst {
			c.bad = true
			return v
		}
		return read(c, inner, f)
	// Values of the other forms are not used here.
	default:
		skipForm(c, a.form, f)
	}
	return v
}

// skipForm skips a value of a form without fixed size.
func skipForm(c *cursor, form uint16, f format) {
	switch form {
	case formUdata, formSdata, formRefUdata, formStrx, formAddrx, formRnglistx, formLoclistx, formGNUAddrIndex,
		formGNUStrIndex:
		// LEB128 ends with a byte below 128.
		for c.u8() >= 0x80 {
		}
	case formString:
		c.cstr()
	case formExprloc, formBlock:
		c.skip(c.uleb())
	case formBlock1:
		c.skip(uint64(c.u8()))
	case formBlock2:
		c.skip(uint64(c.u16()))
	case formBlock4:
		c.skip(uint64(c.u32()))
	case formIndirect:
		read(c, attr{form: formIndirect}, f)
	default:
		c.bad = true // unknown form, unknown size
	}
}

// skipEntry skips the values of an entry.
func skipEntry(c *cursor, a *abbrev, f format) {
	for _, s := range a.skip {
		c.skip(uint64(s.n))
		if s.form != 0 {
			skipForm(c, s.form, f)
		}
	}
}

// ref is an offset in .debug_info; refAlt: in the supplementary file's.
type ref uint64

const (
	refAlt  ref = 1 << 63 // no offset reaches bit 63
	refNone ref = ^ref(0)
)

// ref returns the entry that a value refers to; refNone for forms that name none here. A reference to a signature
// leads to a type unit, which has declarations of functions only: see target.
func (u *unit) ref(v value) ref {
	switch v.form {
	// Relative to the unit's header.
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return ref(u.off+v.u) &^ refAlt
	// Anywhere in .debug_info, or in the supplementary file's.
	case formRefAddr:
		return ref(v.u) &^ refAlt
	case formGNURefAlt, formRefSup4, formRefSup8:
		return ref(v.u) | refAlt
	}
	return refNone
}

// address returns the value of a class address, or false: a constant, as DW_AT_high_pc may be, or an index outside of
// .debug_addr.
func (u *unit) address(v value) (uint64, bool) {
	switch v.form {
	case formAddr:
		return v.u, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return u.indexed(v.u)
	}
	return 0, false
}

// indexed returns an address of .debug_addr by its index in the part of the unit (DWARF 5, 7.27).
func (u *unit) indexed(i uint64) (uint64, bool) {
	const size = 8 // of an address
	// The first comparison keeps the multiplication below from wrapping.
	if i > uint64(len(u.root.addr)) || u.root.addrBase > uint64(len(u.root.addr)) {
		return 0, false
	}
	offset := u.root.addrBase + i*size
	if offset+size > uint64(len(u.root.addr)) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(u.root.addr[offset:]), true
}

// str returns the value of a class string, "" for another, and for offsets that lead nowhere: a name is missing then.
func (u *unit) str(v value) string {
	s := u.sec
	switch v.form {
	case formString:
		// u is the offset of the text in .debug_info.
		return stringAt(s.info, v.u)
	case formStrp:
		return stringAt(s.str, v.u)
	case formLineStrp:
		return stringAt(s.lineStr, v.u)
	case formGNUStrpAlt, formStrpSup:
		// A section of type units uses the supplementary file of its owner.
		if s.owner != nil {
			s = s.owner
		}
		if s.alt != nil {
			return stringAt(s.alt.str, v.u)
		}
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		size := uint64(4)
		if u.wide {
			size = 8
		}
		// Indices of damaged files must not wrap around.
		if v.u > uint64(len(s.strOffsets)) || u.root.strOffsetsBase > uint64(len(s.strOffsets)) {
			return ""
		}
		c := cursor{b: s.strOffsets, off: u.root.strOffsetsBase}
		c.skip(v.u * size)
		if off := c.offset(u.wide); !c.bad { // an index: its entry in .debug_str_offsets is the string's offset
			return stringAt(s.str, off)
		}
	}
	return ""
}
