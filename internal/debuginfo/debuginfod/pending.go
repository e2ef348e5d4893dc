package debuginfod

import "os"

// pending is a file that is not complete yet.
type pending struct {
	*os.File
	nameless bool // has no name to remove
}

// createNamed makes a file in a folder, under a name that is never looked up.
func createNamed(dir, prefix string) (*pending, error) {
	f, err := os.CreateTemp(dir, prefix+".")
	if err != nil {
		return nil, err
	}
	return &pending{f, false}, nil
}

// discard removes the file, unless it was kept.
func (p *pending) discard() {
	p.Close()
	if !p.nameless {
		os.Remove(p.Name()) // nothing where it has been renamed
	}
}
