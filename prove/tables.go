package prove

import (
	"bytes"
	"debug/elf"
)

// hashes checks the whole of both hash tables: a lookup of any name, found or not,
// stays inside of them and ends.
func (im *image) hashes() error {
	const symbols = 4 // 0, and the exports
	words := func(at uint64, n uint32) []byte { return im.at(at, 4*uint64(n)) }
	base := im.tags[elf.DT_HASH]
	hdr := words(base, 2)
	if hdr == nil || le.Uint32(hdr[4:]) != symbols {
		return imageError("DT_HASH")
	}
	n := le.Uint32(hdr)
	buckets := words(base+8, n)
	chain := words(base+8+4*uint64(n), symbols)
	if n == 0 || buckets == nil || chain == nil || le.Uint32(chain) != 0 {
		return imageError("DT_HASH")
	}
	for i := range n {
		at := le.Uint32(buckets[4*i:])
		for left := symbols; at != 0; left-- {
			if at >= symbols || left == 0 {
				return imageError("a bucket of DT_HASH without end")
			}
			at = le.Uint32(chain[4*at:])
		}
	}
	base = im.tags[elf.DT_GNU_HASH] // gnuLookup has read its head
	hdr = words(base, 4)
	n, first, filter := le.Uint32(hdr), le.Uint32(hdr[4:]), le.Uint32(hdr[8:])
	base += 16 + 8*uint64(filter)
	buckets = words(base, n)
	if buckets == nil || first == 0 || first >= symbols {
		return imageError("DT_GNU_HASH")
	}
	chain = words(base+4*uint64(n), symbols-first)
	if chain == nil || le.Uint32(chain[4*(symbols-first-1):])&1 == 0 {
		return imageError("a bucket of DT_GNU_HASH without end")
	}
	for i := range n {
		if at := le.Uint32(buckets[4*i:]); at != 0 && (at < first || at >= symbols) {
			return imageError("a bucket of DT_GNU_HASH")
		}
	}
	return nil
}

// unwindHeader checks .eh_frame_hdr (LSB, 10.6.2), by which unwinders find the file's own unwind
// information: it leads to the .eh_frame that readOwnRows reads by its section, and
// its table has every FDE, ascending.
func (im *image) unwindHeader() error {
	h := im.at(im.hdrAddr, im.hdrSize)
	if len(h) < 12 || !bytes.Equal(h[:4], []byte{1, 0x1b, 3, 0x3b}) || im.hdrAddr%4 != 0 {
		return imageError("the head of .eh_frame_hdr")
	}
	relative := func(from uint64, b []byte) uint64 { return from + uint64(int64(int32(le.Uint32(b)))) }
	at := relative(im.hdrAddr+4, h[4:])
	count := uint64(le.Uint32(h[8:]))
	file, err := elf.NewFile(bytes.NewReader(im.file))
	if err != nil {
		return imageError("section headers: %v", err)
	}
	s := file.Section(".eh_frame")
	if s == nil || s.Type != elf.SHT_PROGBITS || s.Flags != elf.SHF_ALLOC || s.Addr != at || s.Offset != at || uint64(len(h)) != 12+8*count {
		return imageError(".eh_frame_hdr does not lead to .eh_frame")
	}
	b := im.at(at, s.Size)
	// A CIE of version 1, "zR": pointers are pcrel, 4 bytes.
	if len(b) < 24 || le.Uint32(b[4:]) != 0 || !bytes.Equal(b[8:12], []byte("\x01zR\x00")) || !bytes.Equal(b[12:17], []byte{1, 0x78, 16, 1, 0x1b}) {
		return imageError("the CIE of .eh_frame")
	}
	off := 4 + uint64(le.Uint32(b))
	last := uint64(0)
	for i := range count {
		if off+12 > s.Size || uint64(le.Uint32(b[off+4:])) != off+4 {
			return imageError("FDE %d", i)
		}
		pc := relative(at+off+8, b[off+8:])
		if i > 0 && pc <= last || relative(im.hdrAddr, h[12+8*i:]) != pc || relative(im.hdrAddr, h[16+8*i:]) != at+off {
			return imageError("entry %d of .eh_frame_hdr", i)
		}
		last = pc
		off += 4 + uint64(le.Uint32(b[off:]))
	}
	if off > s.Size || off+4 <= s.Size && le.Uint32(b[off:]) != 0 {
		return imageError("%d FDEs in .eh_frame_hdr, more in .eh_frame", count)
	}
	return nil
}
