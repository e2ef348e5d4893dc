package find

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file reads what the dynamic loader reads of an object: program headers and the dynamic section. debug/elf needs
// section headers for some of it, which stripped files may lack, and which the loader does not believe.

// errNotCandidate says that a file is not an ELF64 x86-64 object that the
// dynamic loader would map: it goes on looking when it meets one.
var errNotCandidate = errors.New("not an x86-64 ELF object")

// dynamic holds what the dynamic loader reads from an object before it maps the
// objects it needs. Section headers are not used.
type dynamic struct {
	interp  string   // PT_INTERP
	soname  string   // DT_SONAME
	needed  []string // DT_NEEDED, in order
	rpath   string   // DT_RPATH; empty if there is a DT_RUNPATH (gABI chapter 5, "Shared Object Dependencies")
	runpath string   // DT_RUNPATH
	noDefLb bool     // DF_1_NODEFLIB: no search in the cache's default folders
	hasRun  bool     // a DT_RUNPATH is present, perhaps empty
}

// Bounds on what is read from a file; real objects stay far below.
const (
	maxProgramHeaders = 4096
	maxDynamic        = 1 << 20 // bytes of PT_DYNAMIC
	maxString         = 4096    // bytes of one string
)

// DF_1_NODEFLIB of DT_FLAGS_1, as glibc's elf.h has it.
const flag1NoDefaultLib = 0x800

// readDynamic reads r as the dynamic loader would. The error is errNotCandidate
// if the file is of another class, byte order, machine or type.
func readDynamic(r io.ReaderAt) (*dynamic, error) {
	progs, err := readProgs(r)
	if err != nil {
		return nil, err
	}
	d := &dynamic{}
	var image loads // to find where in the file the strings are
	var dyn *elf.Prog64
	for _, p := range progs {
		switch elf.ProgType(p.Type) {
		case elf.PT_LOAD:
			image = append(image, p)
		case elf.PT_DYNAMIC:
			dyn = p
		case elf.PT_INTERP:
			s, err := readString(r, p.Off)
			if err != nil {
				return nil, fmt.Errorf("PT_INTERP: %w", err)
			}
			d.interp = s
		}
	}
	if dyn == nil {
		return d, nil
	}
	if dyn.Filesz > maxDynamic || dyn.Off > 1<<62 {
		return nil, fmt.Errorf("PT_DYNAMIC: %d bytes at %#x", dyn.Filesz, dyn.Off)
	}
	entries := make([]byte, dyn.Filesz&^15)
	if _, err := r.ReadAt(entries, int64(dyn.Off)); err != nil {
		return nil, fmt.Errorf("PT_DYNAMIC: %w", err)
	}
	return d, d.readEntries(r, image, entries)
}

// readProgs reads the program headers of an object that the dynamic loader would
// map (gABI chapter 5).
func readProgs(r io.ReaderAt) ([]*elf.Prog64, error) {
	const entSize = 56 // sizeof(Elf64_Phdr)
	var head [64]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errNotCandidate
	}
	le := binary.LittleEndian
	typ := elf.Type(le.Uint16(head[16:]))
	if string(head[:4]) != elf.ELFMAG || elf.Class(head[4]) != elf.ELFCLASS64 || elf.Data(head[5]) != elf.ELFDATA2LSB ||
		elf.Machine(le.Uint16(head[18:])) != elf.EM_X86_64 || typ != elf.ET_EXEC && typ != elf.ET_DYN {
		return nil, errNotCandidate
	}
	phoff, phentsize, phnum := le.Uint64(head[32:]), le.Uint16(head[54:]), le.Uint16(head[56:])
	if phnum > maxProgramHeaders || phnum > 0 && phentsize != entSize || phoff > 1<<62 {
		return nil, fmt.Errorf("program headers: %d of %d bytes at %#x", phnum, phentsize, phoff)
	}
	table := make([]byte, int(phnum)*entSize)
	if _, err := r.ReadAt(table, int64(phoff)); err != nil {
		return nil, fmt.Errorf("program headers: %w", err)
	}
	progs := make([]*elf.Prog64, phnum)
	for i := range progs {
		progs[i] = new(elf.Prog64)
		if err := binary.Read(bytes.NewReader(table[i*entSize:]), le, progs[i]); err != nil {
			return nil, fmt.Errorf("program headers: %w", err)
		}
	}
	return progs, nil
}

// tableSize estimates the bytes of unwind tables in an object of size bytes. .eh_frame_hdr has 8
// bytes for each FDE, and an FDE with its instructions has about 40, hence the factor 6; without
// .eh_frame_hdr, a 16th of the file is assumed.
func tableSize(r io.ReaderAt, size int64) int64 {
	progs, err := readProgs(r)
	if err != nil {
		return 0
	}
	for _, p := range progs {
		if elf.ProgType(p.Type) == elf.PT_GNU_EH_FRAME {
			return int64(min(p.Filesz, uint64(size))) * 6
		}
	}
	return size / 16
}

// readEntries fills in the values of the dynamic array. A string that cannot be read is an error: the loader would not
// map the object either.
func (d *dynamic) readEntries(r io.ReaderAt, image loads, entries []byte) error {
	le := binary.LittleEndian
	// The string table's address may follow the entries that refer to it, so these are resolved
	// afterwards.
	var strtab uint64
	type reference struct {
		tag elf.DynTag
		off uint64
	}
	var refs []reference
	for ; len(entries) >= 16; entries = entries[16:] {
		tag, val := elf.DynTag(int64(le.Uint64(entries))), le.Uint64(entries[8:])
		switch tag {
		case elf.DT_STRTAB:
			strtab = val
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			refs = append(refs, reference{tag, val})
		case elf.DT_FLAGS_1:
			d.noDefLb = val&flag1NoDefaultLib != 0
		}
		if tag == elf.DT_NULL {
			break
		}
	}
	for _, ref := range refs {
		off, ok := image.offset(strtab + ref.off)
		if !ok {
			return fmt.Errorf("%v: string at %#x lies in no segment", ref.tag, strtab+ref.off)
		}
		s, err := readString(r, off)
		if err != nil {
			return fmt.Errorf("%v: %w", ref.tag, err)
		}
		switch ref.tag {
		case elf.DT_NEEDED:
			d.needed = append(d.needed, s)
		case elf.DT_SONAME:
			d.soname = s
		case elf.DT_RPATH:
			d.rpath = s
		case elf.DT_RUNPATH:
			d.runpath, d.hasRun = s, true
		}
	}
	if d.hasRun {
		d.rpath = ""
	}
	return nil
}

// loads is the PT_LOAD segments of an object.
type loads []*elf.Prog64

// offset returns the file offset of the byte at address addr; false if the file has none there, as in .bss.
func (l loads) offset(addr uint64) (uint64, bool) {
	for _, p := range l {
		if addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return p.Off + (addr - p.Vaddr), true
		}
	}
	return 0, false
}

// readString reads a string up to its NUL.
func readString(r io.ReaderAt, off uint64) (string, error) {
	if off > 1<<62 {
		return "", fmt.Errorf("string at offset %#x", off)
	}
	buf := make([]byte, 256) // most strings fit; a longer one is read again, in one piece
	for {
		n, err := r.ReadAt(buf, int64(off))
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			return string(buf[:i]), nil
		}
		if err != nil {
			return "", fmt.Errorf("string at offset %#x: %w", off, err)
		}
		if len(buf) >= maxString {
			return "", fmt.Errorf("string at offset %#x: longer than %d bytes", off, maxString)
		}
		buf = make([]byte, maxString)
	}
}
