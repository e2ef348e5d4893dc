package symbolize

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/unwind"
)

// This file decides which symbols name kernel frames: those of the recorded kernel and boot, or none. With KASLR,
// addresses of another boot would give names that look right and are not.

// KernelID identifies the recorded kernel.
type KernelID struct {
	BuildID []byte // nil if unknown
	// Symbol is _text or _stext, which was at Addr: it moves from boot to boot. Addr is 0
	// if unknown.
	Symbol  string
	Addr    uint64
	OwnCode bool  // the recording has the symbols of code that the kernel makes at run time
	Other   error // why Options.Kallsyms does not belong to this kernel; nil: it does
}

// KernelMapName is the name of the kernel's mapping in MMAP records, followed by
// the name of the symbol whose address is the file offset.
const KernelMapName = "[kernel.kallsyms]"

// SetKernel sets the kernel whose frames are named. It must be called before the
// first of them is.
func (n *Namer) SetKernel(id KernelID) { n.running = id }

// ForeseeKernel reads the kernel's symbols in the background. Close waits for it.
func (n *Namer) ForeseeKernel() { n.background.Go(func() { n.kernelTable() }) }

// kernelTable returns the symbols of the kernel, or nil if they are not available. They are read once, since the kernel
// takes a tenth of a second to print them.
func (n *Namer) kernelTable() *symbols.Kernel {
	if n.opt.Symbols != nil {
		return n.opt.Symbols.kernelTable()
	}
	return n.kern.get(func() *symbols.Kernel {
		if n.opt.Kallsyms == "" {
			return nil
		}
		// In order of cost: perf's copy of kallsyms, then the kernel's own, which is right only if
		// the kernel and its boot are those of the recording.
		if t := n.kernelCopy(); t != nil {
			return t
		}
		t, err := (*symbols.Kernel)(nil), n.running.Other
		if err == nil {
			err = n.otherBoot()
		}
		if err == nil {
			t, err = n.hostCopy().Kallsyms(n.opt.Kallsyms)
		}
		if err != nil {
			n.warn(fmt.Errorf("kernel frames have no names: %w", err))
		}
		return t
	})
}

// hostCopy returns where symbols of the running kernel are kept until the next boot.
func (n *Namer) hostCopy() (c symbols.KernelCopy) {
	if n.opt.HostKernel && n.opt.KernelCopy != "" {
		boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
		c = symbols.KernelCopy{Path: n.opt.KernelCopy, Boot: strings.TrimSpace(string(boot))}
	}
	return c
}

// otherBoot returns an error if the kernel of this machine is another one than was recorded, or is at another address.
func (n *Namer) otherBoot() error {
	k := &n.running
	if !n.opt.HostKernel {
		return nil
	}
	if notes, err := os.ReadFile(n.opt.KernelNotes); err == nil &&
		!bytes.Contains(notes, bytes.TrimRight(k.BuildID, "\x00")) {
		return fmt.Errorf("recorded on another kernel, of build-id %x", k.BuildID)
	}
	if k.Addr == 0 {
		return nil
	}
	if addr, err := symbols.KallsymsAddress(n.opt.Kallsyms, k.Symbol); err == nil && addr != 0 && addr != k.Addr {
		return fmt.Errorf("recorded in another boot: %s lay at %#x, lies at %#x", k.Symbol, k.Addr, addr)
	}
	return nil
}

// kernelCopy returns the symbols of the copy that perf record keeps of kallsyms: those
// of the recording, whatever kernel runs now; reading it takes a tenth of the time in
// which the kernel prints its own. A copy of another boot is not used.
func (n *Namer) kernelCopy() *symbols.Kernel {
	k := &n.running
	if !n.opt.HostKernel || len(k.BuildID) < 2 || k.Addr == 0 { // a build-id of one byte makes no path
		return nil
	}
	for _, dir := range n.opt.DebugDirs {
		path := filepath.Join(unwind.BuildIDPath(dir, k.BuildID), "kallsyms")
		f, err := input.Open(path)
		if err != nil {
			continue
		}
		f.Close()
		if addr, err := symbols.KallsymsAddress(path, k.Symbol); err != nil || addr != k.Addr {
			continue
		}
		if t, err := symbols.Kallsyms(path); err == nil {
			return t
		}
	}
	return nil
}
