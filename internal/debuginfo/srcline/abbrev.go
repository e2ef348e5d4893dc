package srcline

// This file reads .debug_abbrev: which attributes in which forms an entry has (DWARF 5, 7.5.3). For
// most tags only the size of the entry is kept, since they are skipped.

// Tags, attributes and forms that the reader uses: DWARF 5, 7.5.
const (
	tagCompileUnit       = 0x11 // root entry of a unit with code
	tagInlinedSubroutine = 0x1d // an inlined copy of a function
	tagSubprogram        = 0x2e // a function, or its declaration
	tagPartialUnit       = 0x3c // root entry of what several units import
	tagTypeUnit          = 0x41 // root entry of a unit with one type
	tagSkeletonUnit      = 0x4a // root entry in the object, of a unit in a .dwo file

	atName           = 0x03   // string
	atStmtList       = 0x10   // offset in .debug_line of the unit's program
	atLowPC          = 0x11   // first address
	atHighPC         = 0x12   // first address past the end, or the size
	atCompDir        = 0x1b   // folder of the compilation
	atAbstractOrigin = 0x31   // reference: the function that this is a copy of
	atSpecification  = 0x47   // reference: the declaration of this definition
	atRanges         = 0x55   // offset or index of a list of ranges
	atCallFile       = 0x58   // number of a file in the line table
	atCallLine       = 0x59   // number of a line
	atLinkageName    = 0x6e   // mangled name
	atStrOffsetsBase = 0x72   // where the unit's part of .debug_str_offsets begins
	atAddrBase       = 0x73   // the same in .debug_addr
	atRnglistsBase   = 0x74   // the same in .debug_rnglists
	atDwoName        = 0x76   // path of the .dwo file
	atMIPSLinkage    = 0x2007 // mangled name, before DWARF 4
	atGNUDwoName     = 0x2130 // path of the .dwo file, GNU's version 4
	atGNUDwoID       = 0x2131 // 8 bytes that the .dwo repeats
	atGNURangesBase  = 0x2132 // offset added to those in .debug_ranges
	atGNUAddrBase    = 0x2133 // where the unit's part of .debug_addr begins
)

// Forms, DWARF 5, 7.5.6. The last four are GNU's, for split DWARF of version 4 and for dwz.
const (
	formAddr          = 0x01 // address, 8 bytes
	formBlock2        = 0x03 // 2 bytes of length, then bytes
	formBlock4        = 0x04 // 4 bytes of length, then bytes
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08 // text in the entry, up to a zero byte
	formBlock         = 0x09 // ULEB128 of length, then bytes
	formBlock1        = 0x0a // 1 byte of length, then bytes
	formData1         = 0x0b
	formFlag          = 0x0c // boolean, 1 byte
	formSdata         = 0x0d // SLEB128
	formStrp          = 0x0e // offset in .debug_str
	formUdata         = 0x0f // ULEB128
	formRefAddr       = 0x10 // offset in .debug_info
	formRef1          = 0x11 // forms 11 to 15: offset from the unit's beginning
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16 // ULEB128 of the form, then the value
	formSecOffset     = 0x17 // offset in another section
	formExprloc       = 0x18 // ULEB128 of length, then a DWARF expression
	formFlagPresent   = 0x19 // boolean without bytes: true
	formStrx          = 0x1a // ULEB128, index in .debug_str_offsets
	formAddrx         = 0x1b // ULEB128, index in .debug_addr
	formRefSup4       = 0x1c // offset in the supplementary file's .debug_info
	formStrpSup       = 0x1d // offset in the supplementary file's .debug_str
	formData16        = 0x1e // 16 bytes, such as an MD5
	formLineStrp      = 0x1f // offset in .debug_line_str
	formRefSig8       = 0x20 // signature of a type unit
	formImplicitConst = 0x21 // value in the abbreviation
	formLoclistx      = 0x22 // ULEB128, index of a list of locations
	formRnglistx      = 0x23 // ULEB128, index of a list of ranges
	formRefSup8       = 0x24 // as 1c, 8 bytes
	formStrx1         = 0x25 // strx and addrx with 1 to 4 bytes
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01 // ULEB128, as addrx
	formGNUStrIndex   = 0x1f02 // ULEB128, as strx
	formGNURefAlt     = 0x1f20 // as ref_sup, 4 or 8 bytes
	formGNUStrpAlt    = 0x1f21 // as strp_sup
)

// formSize returns the size of a form's values in .debug_info, in bytes; false if it differs from value to value.
// Addresses have 8 bytes: units with others are not read.
func formSize(form uint16, f format) (uint64, bool) {
	offset := uint64(4)
	if f.wide {
		offset = 8
	}
	// Offsets into sections have 4 bytes, or 8 in 64-bit DWARF.
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0, true
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1, true
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2, true
	case formStrx3, formAddrx3:
		return 3, true
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return 4, true
	case formAddr, formData8, formRef8, formRefSig8, formRefSup8:
		return 8, true
	case formData16:
		return 16, true
	case formRefAddr:
		if f.version <= 2 {
			return 8, true // DWARF 2: as large as an address
		}
		return offset, true
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		return offset, true
	}
	return 0, false
}

// format determines the sizes of forms.
type format struct {
	wide    bool // 64-bit DWARF
	version uint16
}

// attr is an attribute as an abbreviation declares it, by its DW_AT_ and DW_FORM_ numbers.
type attr struct {
	name, form uint16
	implicit   int64 // the value, for DW_FORM_implicit_const
}

// step skips n bytes and then a value of a form without fixed size; 0: none. Most entries of a unit are skipped, and
// most of their values have a fixed size, so an entry takes a step or two.
type step struct {
	n    uint32
	form uint16
}

// abbrev is a declaration of .debug_abbrev (DWARF 5, 7.5.3).
type abbrev struct {
	tag      uint16
	children bool   // entries of it have children
	known    bool   // declared: of the codes in abbrevTable.dense, some may not be
	skip     []step // to skip the values of an entry
	attrs    []attr // of tags that the reader uses, or of all: see wanted
}

// abbrevTable holds declarations by code.
type abbrevTable struct {
	// Producers number declarations from 1 on, in order.
	dense  []abbrev           // of code i+1
	sparse map[uint64]*abbrev // all other codes
}

// find returns the abbreviation of a code, nil if there is none.
func (t *abbrevTable) find(code uint64) *abbrev {
	// code 0 wraps around and is found nowhere.
	if code-1 < uint64(len(t.dense)) {
		if a := &t.dense[code-1]; a.known {
			return a
		}
		return nil
	}
	return t.sparse[code]
}

// wanted says which declarations to read.
type wanted struct {
	only  uint64 // only the declaration with this code; 0: all
	types bool   // with the attributes of all tags
}

// parseAbbrevs reads the declarations at an offset of .debug_abbrev, up to the code 0 that ends them. It reports
// whether it came there, or to the one that is wanted, before the end of the section: a part of a compressed section
// may be too short.
func parseAbbrevs(section []byte, off uint64, f format, want wanted) (t *abbrevTable, whole bool) {
	t = &abbrevTable{}
	if off > uint64(len(section)) {
		return t, false
	}
	c := cursor{b: section, off: off}
	for {
		code := c.uleb()
		if code == 0 || c.bad {
			return t, !c.bad
		}
		a := abbrev{tag: uint16(c.uleb()), children: c.u8() != 0, known: true}
		// Declarations have no length: even those not wanted are read to their end.
		if want.only != 0 && code != want.only {
			skipAttrs(&c)
			continue
		}
		// Only a declaration that is complete counts.
		a.parse(&c, f, want.types)
		if c.bad {
			return t, false
		}
		// Codes in order go into the list, others into the map.
		if code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
		} else {
			if t.sparse == nil {
				t.sparse = make(map[uint64]*abbrev)
			}
			t.sparse[code] = &a
		}
		if code == want.only {
			return t, true
		}
	}
}

// skipAttrs skips the attributes of a declaration.
func skipAttrs(c *cursor) {
	for !c.bad {
		name, form := c.uleb(), c.uleb()
		if form == formImplicitConst {
			c.sleb()
		}
		// Two zeros end the attributes.
		if name == 0 && form == 0 {
			return
		}
	}
}

// parse reads the attributes of an abbreviation. keep says that they are needed later; otherwise they are only skipped.
func (a *abbrev) parse(c *cursor, f format, keep bool) {
	switch a.tag {
	// These tags are always read by their attributes.
	case tagCompileUnit, tagPartialUnit, tagSkeletonUnit, tagTypeUnit, tagSubprogram, tagInlinedSubroutine:
		keep = true
	}
	var run uint64 // bytes of fixed size since the last step
	for {
		attribute := attr{name: uint16(c.uleb()), form: uint16(c.uleb())}
		if attribute.form == formImplicitConst {
			attribute.implicit = c.sleb()
		}
		if attribute.name == 0 && attribute.form == 0 || c.bad {
			break
		}
		if keep {
			a.attrs = append(a.attrs, attribute)
		}
		// Values of fixed size add up: an entry is skipped in few steps.
		if n, fixed := formSize(attribute.form, f); fixed {
			run += n
			continue
		}
		a.skip = append(a.skip, step{uint32(run), attribute.form})
		run = 0
	}
	if run > 0 {
		a.skip = append(a.skip, step{n: uint32(run)})
	}
}
