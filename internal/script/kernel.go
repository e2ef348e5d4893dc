package script

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/symbols"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// kernelID is what a recording says about its kernel.
type kernelID struct {
	buildID []byte
	// Where a symbol, _text or _stext, lay: it moves from boot to boot.
	symbol string
	addr   uint64
	other  error // why /proc/kallsyms is not that of the recording; nil: it is
}

// kernelMapName is the name of the kernel's mapping, before that of the symbol
// whose address its file offset is.
const kernelMapName = "[kernel.kallsyms]"

// followKernel takes what a mapping says about the kernel.
func (run *runner) followKernel(r *perfdata.Mmap) {
	if symbol, ok := strings.CutPrefix(string(r.Name), kernelMapName); ok && symbol != "" && !run.kernelSeen {
		run.names.running.symbol, run.names.running.addr = symbol, r.PgOff
	}
}

// foreseeKernel has the kernel's symbols read in the background at its first
// frame.
func (run *runner) foreseeKernel(s *sample) {
	if run.kernelSeen || s.mode != perfdata.ModeKernel && !slices.Contains(s.chain, perfdata.ContextKernel) {
		return
	}
	run.kernelSeen = true
	for _, id := range run.reader.Info().BuildIDs {
		if id.Mode == perfdata.ModeKernel && id.Name == kernelMapName {
			run.names.running.buildID = id.ID
		}
	}
	run.names.background.Go(func() { run.names.kernelTable() })
}

// kernelTable is the symbols of the kernel, nil where they are not to be had.
func (n *namer) kernelTable() *symbols.Kernel {
	return n.kern.get(func() *symbols.Kernel {
		if n.opt.Kallsyms == "" {
			return nil
		}
		if t := n.kernelCopy(); t != nil {
			return t
		}
		t, err := (*symbols.Kernel)(nil), n.running.other
		if err == nil {
			err = n.otherBoot()
		}
		if err == nil {
			t, err = symbols.Kallsyms(n.opt.Kallsyms)
		}
		if err != nil {
			n.warn(fmt.Errorf("kernel frames have no names: %w", err))
		}
		return t
	})
}

// otherBoot is an error where the kernel of this machine lies elsewhere than the
// recorded one did.
func (n *namer) otherBoot() error {
	k := &n.running
	if !n.opt.HostKernel || k.addr == 0 {
		return nil
	}
	if addr, err := symbols.KallsymsAddress(n.opt.Kallsyms, k.symbol); err == nil && addr != 0 && addr != k.addr {
		return fmt.Errorf("recorded in another boot: %s lay at %#x, lies at %#x", k.symbol, k.addr, addr)
	}
	return nil
}

// kernelCopy is the symbols of the copy that perf record keeps of kallsyms: those
// of the recording, whatever kernel runs now, and read in a tenth of the time
// that the kernel takes to print its own. A copy of another boot is not used.
func (n *namer) kernelCopy() *symbols.Kernel {
	k := &n.running
	if !n.opt.HostKernel || len(k.buildID) < 2 || k.addr == 0 {
		return nil
	}
	for _, dir := range n.opt.Objects.DebugDirs {
		path := filepath.Join(unwind.BuildIDPath(dir, k.buildID), "kallsyms")
		if addr, err := symbols.KallsymsAddress(path, k.symbol); err != nil || addr != k.addr {
			continue
		}
		if t, err := symbols.Kallsyms(path); err == nil {
			return t
		}
	}
	return nil
}
