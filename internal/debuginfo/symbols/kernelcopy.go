package symbols

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// KernelCopy is a copy of the part of /proc/kallsyms that stays as it is until the next boot: the kernel's own symbols.
// The kernel takes 45 ms to print the whole, a copy is read in 2 ms.
type KernelCopy struct {
	Path string // only its owner may read it, as kernel addresses are secret; empty: there is none
	Boot string // /proc/sys/kernel/random/boot_id
}

// kernelCopyHead begins a copy. The boot id follows.
const kernelCopyHead = "boot_id "

// Kallsyms returns the symbols of the running kernel, from the copy if it is of this boot and no other user can have
// written it, else from path, and makes the copy then. Symbols of modules are always from path, which is read
// once an address is none of the kernel's own.
func (c KernelCopy) Kallsyms(path string) (*Kernel, error) {
	if k, err := c.read(); err == nil {
		k.all = &allSymbols{path: path}
		return k, nil
	}
	k, err := Kallsyms(path)
	if err == nil {
		_ = c.write(k.text) // if that fails, the next recording takes longer
	}
	return k, err
}

// allSymbols reads all symbols once they are needed.
type allSymbols struct {
	path string
	once sync.Once
	k    *Kernel // nil: not read, or not to be had
}

// get reads the symbols at its first call; others wait meanwhile. nil: they cannot be read.
func (a *allSymbols) get() *Kernel {
	a.once.Do(func() { a.k, _ = Kallsyms(a.path) })
	return a.k
}

// close frees them. Nothing is read after it. a may be nil.
func (a *allSymbols) close() {
	if a != nil {
		a.once.Do(func() {})
		a.k.Close()
	}
}

// errStale says that a copy is not of this boot.
var errStale = errors.New("copy of another boot")

// read returns the symbols of the copy, or why it is of no use: it is not there, of another boot, or another user's.
// Addresses change with each boot (KASLR).
func (c KernelCopy) read() (*Kernel, error) {
	if c.Path == "" || c.Boot == "" {
		return nil, errStale
	}
	f, err := input.OpenTrusted(c.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readKernel(f, c.head())
}

// head returns the first line of a copy of this boot.
func (c KernelCopy) head() string { return kernelCopyHead + c.Boot + "\n" }

// write writes a copy of the symbols up to the first of a module.
func (c KernelCopy) write(text string) error {
	if c.Path == "" || c.Boot == "" {
		return nil
	}
	if module := strings.IndexByte(text, '\t'); module >= 0 {
		text = text[:strings.LastIndexByte(text[:module], '\n')+1]
	}
	if err := input.MkdirAll(filepath.Dir(c.Path)); err != nil {
		return err
	}
	f, err := output.Create(c.Path, ownerOnly)
	if err != nil {
		return err
	}
	for _, s := range []string{c.head(), text} {
		if _, err := io.WriteString(f, s); err != nil {
			f.Abort()
			return err
		}
	}
	return f.Commit()
}

// ownerOnly is the mode of a file that only its owner may read.
const ownerOnly = os.FileMode(0o600)
