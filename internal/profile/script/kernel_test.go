package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kernelAt adds the mapping of a kernel whose _text lies at addr.
func (r *recording) kernelAt(addr uint64) {
	id := r.id(-1, 0)
	r.Add(perfdatatest.Record(1, 1, id.PID, id.TID, addr, uint64(0x1000000), addr,
		perfdatatest.Name("[kernel.kallsyms]_text"), r.SampleID(id)))
}

// TestKernelCopy has names from the copy of kallsyms that perf keeps, if it is of
// the recorded boot.
func TestKernelCopy(t *testing.T) {
	const text = 0xffffffff81000000
	buildID := []byte("kernel build-id 1234")
	for _, c := range []struct {
		name             string
		copyAt, hostAt   string // _text there; "": no file
		host             bool
		symbol, warnings string
	}{
		{"copy", "ffffffff81000000", "ffffffff91000000", true, "copied+0x10", ""},
		{"copy of another boot", "ffffffff82000000", "ffffffff81000000", true, "running+0x10", ""},
		{"no copy", "", "ffffffff81000000", true, "running+0x10", ""},
		{"another boot", "ffffffff82000000", "ffffffff91000000", true, "[unknown]", "recorded in another boot"},
		{"a file of the user's", "ffffffff81000000", "ffffffff81000000", false, "running+0x10", ""},
		{"addresses hidden", "", "0000000000000000", true, "[unknown]", "hides its addresses"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecording(t)
			r.BuildIDs = []perfdatatest.BuildID{{ID: buildID, Name: "[kernel.kallsyms]", Kernel: true}}
			r.start()
			r.kernelAt(text)
			r.sample(10, libBase+0x3010, []uint64{perfdata.ContextKernel, text + 0x10}, 0x401010)
			opt := r.options("perf")
			opt.Names.HostKernel = c.host
			debug := t.TempDir()
			opt.Objects.DebugDirs = []string{"/nonexistent", debug}
			write := func(path, addr, name string) {
				if addr == "" {
					return
				}
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
				require.NoError(t, os.WriteFile(path, []byte(addr+" T _text\n"+addr+" T "+name+"\n"), 0o666))
			}
			write(filepath.Join(debug, ".build-id/6b/65726e656c206275696c642d69642031323334/kallsyms"), c.copyAt,
				"copied")
			write(opt.Names.Kallsyms, c.hostAt, "running")
			out, s := r.run(t, opt)
			assert.Contains(t, out, " "+c.symbol+" (")
			warned := strings.Join(s.Warnings, "\n")
			if c.warnings == "" {
				assert.NotContains(t, warned, "kernel")
			} else {
				assert.Contains(t, warned, c.warnings)
			}
		})
	}
}
