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
		{"built again, at the same place", "", "ffffffff81000000", true, "[unknown]",
			"recorded on another kernel, of build-id 6b65726e"},
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
			opt.Names.KernelNotes = filepath.Join(debug, "notes")
			notes := "GNU\x00another kernel's id"
			if c.name != "built again, at the same place" {
				notes = "GNU\x00" + string(buildID)
			}
			require.NoError(t, os.WriteFile(opt.Names.KernelNotes, []byte(notes), 0o666))
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

// TestKernelCode: code that the kernel makes at run time has the name that the recording gives its place at that
// moment, and not what kallsyms says of a later one.
func TestKernelCode(t *testing.T) {
	const start, size = 0xffffffffc0001000, 0x100
	r := newRecording(t)
	r.start()
	r.kernelAt(0xffffffff81000000)
	change := func(flags uint16, name string) {
		id := r.id(-1, 0)
		r.Add(perfdatatest.Record(17, 0, uint64(start), uint32(size), uint16(1), flags, perfdatatest.Name(name), r.SampleID(id)))
	}
	sample := func() {
		r.sample(10, libBase+0x3010, []uint64{perfdata.ContextKernel, start + 0x10}, 0x401010)
	}
	change(0, "bpf_prog_1_first")
	sample()
	change(1, "bpf_prog_1_first")
	sample()
	change(0, "bpf_prog_2_second")
	sample()
	opt := r.options("perf")
	opt.Names.HostKernel = true
	require.NoError(t, os.WriteFile(opt.Names.Kallsyms,
		[]byte("ffffffff81000000 T _text\nffffffffc0001000 t bpf_prog_3_later\t[bpf]\n"), 0o666))
	out, _ := r.run(t, opt)
	var lines []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ffffffffc0001010") {
			lines = append(lines, strings.Join(strings.Fields(line)[1:], " "))
		}
	}
	assert.Equal(t, []string{"bpf_prog_1_first+0x10 (bpf_prog_1_first)", "[unknown] ([kernel.kallsyms])",
		"bpf_prog_2_second+0x10 (bpf_prog_2_second)"}, lines)
}
