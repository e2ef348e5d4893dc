package srcline

// Tags, attributes and forms that the reader uses: DWARF 5, 7.5.
const (
	tagCompileUnit       = 0x11
	tagInlinedSubroutine = 0x1d
	tagSubprogram        = 0x2e
	tagPartialUnit       = 0x3c
	tagTypeUnit          = 0x41
	tagSkeletonUnit      = 0x4a

	atName           = 0x03
	atStmtList       = 0x10
	atLowPC          = 0x11
	atHighPC         = 0x12
	atCompDir        = 0x1b
	atAbstractOrigin = 0x31
	atSpecification  = 0x47
	atRanges         = 0x55
	atCallFile       = 0x58
	atCallLine       = 0x59
	atLinkageName    = 0x6e
	atStrOffsetsBase = 0x72
	atAddrBase       = 0x73
	atRnglistsBase   = 0x74
	atDwoName        = 0x76
	atMIPSLinkage    = 0x2007
	atGNUDwoName     = 0x2130
	atGNUDwoID       = 0x2131
	atGNURangesBase  = 0x2132
	atGNUAddrBase    = 0x2133
)

// Forms, DWARF 5, 7.5.6. The last four are GNU's, for split DWARF of version 4 and for dwz.
const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// formSize returns the size of a form's values in .debug_info; false if it differs from value to value.
func formSize(form uint16, f format) (uint64, bool) {
	offset := uint64(4)
	if f.wide {
		offset = 8
	}
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

// attr is an attribute as an abbreviation declares it.
type attr struct {
	name, form uint16
	implicit   int64 // the value, for DW_FORM_implicit_const
}

// step skips n bytes and then a value of a form without fixed size; 0: none.
type step struct {
	n    uint32
	form uint16
}

// abbrev is a declaration of .debug_abbrev (DWARF 5, 7.5.3).
type abbrev struct {
	tag      uint16
	children bool   // entries of it have children
	known    bool   // declared; dense may have gaps
	skip     []step // to skip the values of an entry
	attrs    []attr // of tags that the reader uses, or of all: see wanted
}

// abbrevTable holds declarations by code.
type abbrevTable struct {
	dense  []abbrev           // of code i+1
	sparse map[uint64]*abbrev // all other codes
}

// find returns the abbreviation of a code, nil if there is none.
func (t *abbrevTable) find(code uint64) *abbrev {
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

// parseAbbrevs reads the declarations at an offset of .debug_abbrev. It reports whether it came
// so far before the end of the section.
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
		if want.only != 0 && code != want.only {
			skipAttrs(&c)
			continue
		}
		// Only a declaration that is complete counts.
		a.parse(&c, f, want.types)
		if c.bad {
			return t, false
		}
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
		if name == 0 && form == 0 {
			return
		}
	}
}

// parse reads the attributes of an abbreviation. keep says that they are needed later; otherwise they are only skipped.
func (a *abbrev) parse(c *cursor, f format, keep bool) {
	switch a.tag {
	case tagCompileUnit, tagPartialUnit, tagSkeletonUnit, tagTypeUnit, tagSubprogram, tagInlinedSubroutine:
		keep = true
	}
	var run uint64 // bytes of fixed size since the last step
	for {
		at := attr{name: uint16(c.uleb()), form: uint16(c.uleb())}
		if at.form == formImplicitConst {
			at.implicit = c.sleb()
		}
		if at.name == 0 && at.form == 0 || c.bad {
			break
		}
		if keep {
			a.attrs = append(a.attrs, at)
		}
		if n, fixed := formSize(at.form, f); fixed {
			run += n
			continue
		}
		a.skip = append(a.skip, step{uint32(run), at.form})
		run = 0
	}
	if run > 0 {
		a.skip = append(a.skip, step{n: uint32(run)})
	}
}
