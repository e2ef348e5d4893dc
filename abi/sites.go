package abi

import "encoding/binary"

// SitesSection is the section of the table of sites.
const SitesSection = ".eh_elf_sites"

// SitesVersion is the number of the format of tables of sites. It is raised, too, if the identity of objects is to
// include more.
const SitesVersion = 5

// SitesNote says where an eh_elf has its table of sites.
type SitesNote struct {
	Version uint32
	Addr    uint64 // link-time address in the eh_elf
	Size    uint64 // bytes
}

// SitesNoteSize is the size of the desc in bytes.
const SitesNoteSize = 24

// Bytes encodes the desc: the version, 4 bytes of zeros, address and size.
func (n SitesNote) Bytes() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(n.Version))
	b = le.AppendUint64(b, n.Addr)
	return le.AppendUint64(b, n.Size)
}
