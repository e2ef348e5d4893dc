package prove

import (
	"bytes"

	"github.com/ehasm/ehasm/abi"
)

// ownCIE is the only CIE of the file's .eh_frame: 4-byte pcs relative to their
// place, CFA = rsp+8, the return address below it.
var ownCIE = [24]byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, abi.RIP, 1, 0x1b, 0x0c, abi.RSP, 8,
	0x80 | abi.RIP, 1}

// readFrames checks .eh_frame_hdr (LSB 5.0 Core §10.6.2) against .eh_frame: its table has
// exactly the FDEs, in order of pcs, and both end where they should. The contents of the
// FDEs are checked while the code runs on terms.
func (im *image) readFrames() error {
	// sdata4, sign-extended: all places are below 2^32, sums wrap
	distance := func(b []byte) uint64 { return uint64(int64(int32(le.Uint32(b)))) }
	h := im.at(im.hdr.addr, im.hdr.size)
	// version 1; pointer encodings pcrel|sdata4, udata4, datarel|sdata4
	if len(h) < 12 || !bytes.Equal(h[:4], []byte{1, 0x1b, 0x03, 0x3b}) || im.hdr.addr%4 != 0 {
		return imageError("the head of .eh_frame_hdr")
	}
	im.frames.addr = im.hdr.addr + 4 + distance(h[4:])
	count := uint64(le.Uint32(h[8:]))
	if im.hdr.size != 12+8*count {
		return imageError(".eh_frame_hdr: %d FDEs", count)
	}
	if !bytes.Equal(im.at(im.frames.addr, uint64(len(ownCIE))), ownCIE[:]) {
		return imageError("the CIE")
	}
	addr, end := im.frames.addr+uint64(len(ownCIE)), im.exec.Vaddr
	for i := range count {
		// 17 bytes: length, CIE pointer, begin, size, augmentation length 0
		b := im.at(addr, 17)
		// the CIE pointer counts back from its own place
		if b == nil || im.at(addr, 4+uint64(le.Uint32(b))) == nil || le.Uint32(b) < 13 ||
			uint64(le.Uint32(b[4:])) != addr+4-im.frames.addr || b[16] != 0 {
			return imageError("FDE %d", i)
		}
		start, size := addr+8+distance(b[8:]), uint64(le.Uint32(b[12:]))
		if start < end || start > im.exec.Vaddr+im.exec.Filesz || size == 0 || size > im.exec.Vaddr+im.exec.Filesz-start {
			return imageError("FDE %d is of %#x and %d bytes", i, start, size)
		}
		end = start + size
		if e := h[12+8*i:]; im.hdr.addr+distance(e) != start || im.hdr.addr+distance(e[4:]) != addr {
			return imageError("entry %d of .eh_frame_hdr", i)
		}
		size = 4 + uint64(le.Uint32(b))
		im.fdes = append(im.fdes, ownFDE{start, end, im.at(addr, size)[17:]})
		addr += size
	}
	if last := im.at(addr, 4); last == nil || le.Uint32(last) != 0 {
		return imageError(".eh_frame goes on behind the FDEs that .eh_frame_hdr has")
	}
	im.frames.size = addr + 4 - im.frames.addr
	return nil
}
