package prove

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// This file checks the ELF file from the program headers to the symbols, as the loader of a C library or package ehelf
// reads it. Whatever elfout does not write is refused: the claim is about files of ehasm alone, and each liberty would
// have to be proven.

// openImage reads and checks the ELF file. The checks run in an order in which each may use what those before it have
// read. Errors wrap errImage.
func openImage(file []byte) (*image, error) {
	im := &image{file: file}
	for _, check := range []func() error{
		im.checkHeader, im.readProgramHeaders, im.readDynamic, im.checkSymbols, im.checkHashes, im.checkFlags,
		im.readFrames, im.checkSizes, im.checkSections,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return im, nil
}

// checkFlags refuses flags of the note that are not known here.
func (im *image) checkFlags() error {
	if im.notes.identity.Flags&^(abi.FlagNoDeref|abi.FlagPacked|abi.FlagSites) != 0 {
		return imageError("flags %#x of the note, which are not known here", im.notes.identity.Flags)
	}
	return nil
}

// readProgramHeaders checks segments and permissions: R for the headers and the data at
// address 0, R+X for the code after, with --relro RW under PT_GNU_RELRO for the
// dynamic section alone, and a stack without X.
func (im *image) readProgramHeaders() error {
	count := uint64(le.Uint16(im.file[56:])) // e_phnum
	headers := ehdrSize + count*phdrSize
	if headers > uint64(len(im.file)) {
		return imageError("%d program headers", count)
	}
	seen := map[elf.ProgType]elf.Prog64{}
	for i := range count {
		p, err := im.programHeader(i)
		if err != nil {
			return err
		}
		typ := elf.ProgType(p.Type)
		if typ == elf.PT_LOAD {
			im.segments = append(im.segments, p)
			continue
		}
		if _, twice := seen[typ]; twice {
			return imageError("two program headers of type %v", typ)
		}
		seen[typ] = p
	}
	if err := im.checkSegments(headers); err != nil {
		return err
	}
	home, err := im.dynamicHome(seen)
	if err != nil {
		return err
	}
	// glibc makes stacks executable for an object without this header or with X in it.
	stack, ok := seen[elf.PT_GNU_STACK]
	if !ok || elf.ProgFlag(stack.Flags) != elf.PF_R|elf.PF_W || stack.Off|stack.Vaddr|stack.Filesz|stack.Memsz != 0 {
		return imageError("PT_GNU_STACK")
	}
	// These headers describe parts of segments; a loader uses their addresses, readers of the file
	// their offsets.
	for _, part := range []struct {
		typ     elf.ProgType
		segment elf.Prog64
	}{{elf.PT_DYNAMIC, home}, {elf.PT_GNU_EH_FRAME, im.read}, {elf.PT_NOTE, im.read}} {
		if p, ok := seen[part.typ]; !ok || !within(p, part.segment) || p.Flags != part.segment.Flags {
			return imageError("%v", part.typ)
		}
	}
	dyn, hdr, note := seen[elf.PT_DYNAMIC], seen[elf.PT_GNU_EH_FRAME], seen[elf.PT_NOTE]
	if dyn.Filesz%16 != 0 {
		return imageError("PT_DYNAMIC")
	}
	im.dynamic.b, im.dynamic.addr = im.file[dyn.Off:dyn.Off+dyn.Filesz], dyn.Vaddr
	im.hdr, im.notes.span = span{hdr.Vaddr, hdr.Filesz}, span{note.Vaddr, note.Filesz}
	return im.readNotes(im.file[note.Off : note.Off+note.Filesz])
}

// readNotes reads the notes of PT_NOTE (gABI figure 5-12): at most a build-id and a build note,
// exactly one identity, and the place of the sites' table. Notes of others come first, since
// .note.gnu.build-id covers exactly these.
func (im *image) readNotes(b []byte) error {
	found, ours := false, false
	for len(b) > 0 {
		if len(b) < 12 {
			return imageError("a truncated note")
		}
		// n_namesz, n_descsz, n_type
		nameSize, descSize, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		descOff := 12 + (nameSize+3)&^3
		end := descOff + (descSize+3)&^3
		if end > uint64(len(b)) {
			return imageError("a truncated note")
		}
		name, desc := string(b[12:12+nameSize]), b[descOff:descOff+descSize]
		b = b[end:]
		if ours = ours || name == abi.NoteOwner+"\x00"; !ours { // bytes before the first note of ehasm
			im.notes.foreign += end
		}
		switch {
		case name == "GNU\x00" && typ == 3 && len(desc) == 20: // NT_GNU_BUILD_ID, SHA-1
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteBuild:
		// readers need the flag before
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteSites && found && im.notes.sites == nil:
			if err := im.siteNote(desc); err != nil {
				return err
			}
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteIdentity && !found:
			note, err := abi.ParseNote(desc)
			if err != nil {
				return fmt.Errorf("%w: %w", errImage, err)
			}
			im.notes.identity, found = note, true
		default:
			return imageError("a note %q of type %d", name, typ)
		}
	}
	if !found {
		return imageError("no identity note")
	}
	return nil
}

// checkSymbols looks the exports up as loaders do, through both hashes.
func (im *image) checkSymbols() error {
	soname, ok := im.name(uint32(im.dynamic.tags[elf.DT_SONAME]))
	object, isEHElf := strings.CutSuffix(soname, abi.Suffix)
	// an offset of 2^31 and more would be cut to 32 bits
	if !ok || im.dynamic.tags[elf.DT_SONAME] > 1<<31 || !isEHElf || object == "" || strings.Contains(object, "/") {
		return imageError("DT_SONAME %q, which is not NAME%s: the loader would take the file for another library", soname,
			abi.Suffix)
	}
	im.dynamic.symbols = map[string]elf.Sym64{}
	for _, name := range exports {
		// Old loaders use DT_HASH, newer ones DT_GNU_HASH: both must lead to the same symbol.
		for _, lookup := range []func(string) (uint32, error){im.sysvLookup, im.gnuLookup} {
			i, err := lookup(name)
			if err != nil {
				return err
			}
			s, _ := im.sym(i)
			if before, ok := im.dynamic.symbols[name]; ok && before != s {
				return imageError("the hashes lead to two symbols %s", name)
			}
			im.dynamic.symbols[name] = s
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.ST_BIND(s.Info) != elf.STB_GLOBAL || s.Other != 0 || s.Shndx == 0 ||
				s.Shndx >= uint16(elf.SHN_LORESERVE) || im.text(s.Value) == nil || s.Size > im.exec.Filesz-(s.Value-im.exec.Vaddr) {
				return imageError("symbol %s", name)
			}
		}
	}
	return nil
}

// checkSizes checks that the exports cover the text without gaps or overlaps, so that tools which
// go by symbols name every instruction.
func (im *image) checkSizes() error {
	var all []elf.Sym64
	for _, s := range im.dynamic.symbols {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b elf.Sym64) int { return int(int64(a.Value) - int64(b.Value)) })
	end := im.exec.Vaddr
	for _, s := range all {
		if s.Value != end {
			return imageError("the functions are not side by side")
		}
		end += s.Size
	}
	if end != im.exec.Vaddr+im.exec.Filesz {
		return imageError("the functions end at %#x, the code at %#x", end, im.exec.Vaddr+im.exec.Filesz)
	}
	return nil
}
