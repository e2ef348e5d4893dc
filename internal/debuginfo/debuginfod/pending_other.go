//go:build !linux

package debuginfod

import "os"

// create makes a file with a temporary name.
func create(dir, prefix string) (*pending, error) { return createNamed(dir, prefix) }

// keep gives the file its name.
func (p *pending) keep(path string) error {
	p.Close() // some systems rename no open file
	return os.Rename(p.Name(), path)
}
