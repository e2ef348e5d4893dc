package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxVDSO bounds what is read as a vDSO from another process.
const maxVDSO = 1 << 20 // bytes; real ones have two pages

// VDSO returns the kernel's vDSO as a process has it mapped, by the process's folder, such as /proc/self. It is a
// whole ELF file in memory, and in no file.
func VDSO(folder string) ([]byte, error) {
	maps, err := MappingsIn(folder)
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if m.Name == "[vdso]" {
			return m.readVDSO(filepath.Join(folder, "mem"))
		}
	}
	return nil, ErrNoVDSO
}

// ErrNoVDSO is returned for processes without a vDSO.
var ErrNoVDSO = errors.New("the kernel maps none")

// readVDSO reads the mapping from the memory file mem.
func (m *Mapping) readVDSO(mem string) ([]byte, error) {
	if m.End-m.Start > maxVDSO {
		return nil, fmt.Errorf("vDSO of %d bytes", m.End-m.Start)
	}
	f, err := os.Open(mem)
	if err != nil {
		return nil, fmt.Errorf("vDSO: %w", err)
	}
	defer f.Close()
	data := make([]byte, m.End-m.Start)
	if _, err := f.ReadAt(data, int64(m.Start)); err != nil {
		return nil, fmt.Errorf("vDSO: %w", err)
	}
	return data, nil
}
