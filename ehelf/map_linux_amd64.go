package ehelf

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

// supportedHost says that eh_elfs run here.
const supportedHost = true

// mapping is the memory of a loaded eh_elf.
type mapping struct {
	base uintptr // run-time address of link-time address 0
	mem  []byte  // nil once closed
}

// newMapping copies the segments of image to new anonymous memory, keeping
// their distances, and sets the protection of each. No page is writable and
// executable at the same time; the pages between segments are inaccessible.
func newMapping(image []byte, l *layout) (mapping, error) {
	mem, err := syscall.Mmap(-1, 0, int(l.span), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return mapping{}, fmt.Errorf("mmap of %#x bytes: %w", l.span, err)
	}
	m := mapping{base: uintptr(unsafe.Pointer(unsafe.SliceData(mem))), mem: mem}
	var done uint64
	for _, s := range l.segments {
		copy(mem[s.addr:], image[s.off:s.off+s.size])
		start := s.addr &^ (hostPage - 1)
		end := pageUp(s.addr + s.size)
		prot := syscall.PROT_READ
		if s.exec {
			prot |= syscall.PROT_EXEC
		}
		err := protect(mem[done:start], syscall.PROT_NONE)
		if err == nil {
			err = protect(mem[start:end], prot)
		}
		if err != nil {
			return mapping{}, errors.Join(err, m.close())
		}
		done = end
	}
	return m, nil
}

// protect sets the protection of whole pages; b may be empty.
func protect(b []byte, prot int) error {
	if len(b) == 0 {
		return nil
	}
	if err := syscall.Mprotect(b, prot); err != nil {
		return fmt.Errorf("mprotect of %#x bytes to %d: %w", len(b), prot, err)
	}
	return nil
}

// close unmaps the memory; a second call does nothing.
func (m *mapping) close() error {
	if m.mem == nil {
		return nil
	}
	mem := m.mem
	m.mem = nil
	if err := syscall.Munmap(mem); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}
