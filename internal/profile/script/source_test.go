package script

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const inlinedSource = `extern volatile int cell;
volatile int cell;
void outside(int);
static inline __attribute__((always_inline)) int inner(int x)
{
	outside(x);
	return cell + x;
}
static inline __attribute__((always_inline)) int middle(int x)
{
	return inner(x + 1) * 2;
}
int outer(int x)
{
	return middle(x) + 1;
}
`

// inlinedRecording has a sample in lib.so, called where middle and inner are
// inlined into outer. The address of the call's last byte is returned.
func inlinedRecording(t *testing.T) (r *recording, call uint64) {
	t.Helper()
	testtool.Need(t, "gcc", "addr2line")
	r = newRecording(t)
	src := filepath.Join(r.dir, "inlined.c")
	require.NoError(t, os.WriteFile(src, []byte(inlinedSource), 0o666))
	object := filepath.Join(r.dir, "bin/inlined.so")
	out, err := exec.Command("gcc", "-g", "-O2", "-shared", "-fPIC", src, "-o", object).CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := elf.Open(object)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	require.NoError(t, err)
	var addrs []string
	for _, s := range list {
		for a := s.Value; s.Name == "outer" && a < s.Value+s.Size; a++ {
			addrs = append(addrs, fmt.Sprintf("%#x", a))
		}
	}
	lines, err := exec.Command("addr2line", append([]string{"-e", object}, addrs...)...).Output()
	require.NoError(t, err)
	for i, l := range strings.Split(string(lines), "\n") {
		if strings.HasPrefix(filepath.Base(l), "inlined.c:6") {
			_, err := fmt.Sscanf(addrs[i], "%v", &call)
			require.NoError(t, err)
		}
	}
	require.NotZero(t, call)
	r.start()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			r.Mmap2(r.id(10, 10), libBase+0x10000+p.Vaddr, (p.Filesz+0xfff)&^0xfff, p.Off, "/bin/inlined.so")
		}
	}
	r.sample(10, libBase+0x3010, nil, libBase+0x10000+call+1)
	return r, call
}

func TestInlineAndLines(t *testing.T) {
	r, call := inlinedRecording(t)
	opt := r.options("perf")
	plain, _ := r.run(t, opt)
	assert.NotContains(t, plain, "inlined)")
	opt.Names.Inline = true
	got, _ := r.run(t, opt)
	frame := fmt.Sprintf("\t%16x ", call)
	offset := got[strings.LastIndex(got, "outer+")+len("outer") : strings.LastIndex(got, " (/bin/inlined.so)")]
	assert.Contains(t, got, frame+"inner"+offset+" (inlined)\n"+frame+"middle"+offset+" (inlined)\n"+frame+"outer"+offset+
		" (/bin/inlined.so)\n")
	opt.Names.Lines = true
	got, s := r.run(t, opt)
	assert.Contains(t, got, frame+"inner"+offset+" (inlined)\n  inlined.c:6\n"+frame+"middle"+offset+
		" (inlined)\n  inlined.c:11\n"+frame+"outer"+offset+" (/bin/inlined.so)\n  inlined.c:15\n")
	assert.Empty(t, s.Warnings)
	opt.fullPath = true
	got, _ = r.run(t, opt)
	assert.Contains(t, got, "  "+r.dir+"/inlined.c:6\n")
	opt.Names.Inline = false
	got, _ = r.run(t, opt)
	assert.Contains(t, got, frame+"outer"+offset+" (/bin/inlined.so)\n  "+r.dir+"/inlined.c:6\n")

	opt = r.options("folded")
	opt.Names.Inline = true
	got, _ = r.run(t, opt)
	assert.Contains(t, got, ";outer;middle_[i];inner_[i];work 1\n")
}

// textFrame is a frame of the format json.
type textFrame struct {
	IP      string
	Symbol  string `json:"sym"`
	Offset  uint64 `json:"off"`
	DSO     string
	Inlined bool
	File    string
	Line    int
}

func TestInlineJSON(t *testing.T) {
	r, call := inlinedRecording(t)
	opt := r.options("json")
	opt.Names.Inline, opt.Names.Lines = true, true
	got, _ := r.run(t, opt)
	var s struct{ Frames []textFrame }
	require.NoError(t, json.Unmarshal([]byte(got), &s))
	require.Len(t, s.Frames, 4)
	file := filepath.Join(r.dir, "inlined.c")
	ip := fmt.Sprintf("%#x", call)
	assert.Equal(t, textFrame{IP: ip, Symbol: "inner", DSO: "/bin/inlined.so", Inlined: true, File: file, Line: 6},
		s.Frames[1])
	assert.Equal(t, "middle", s.Frames[2].Symbol)
	s.Frames[3].Offset = 0
	assert.Equal(t, textFrame{IP: ip, Symbol: "outer", DSO: "/bin/inlined.so", File: file, Line: 15}, s.Frames[3])
}

func TestInlinePprof(t *testing.T) {
	r, call := inlinedRecording(t)
	opt := r.options("pprof")
	opt.Names.Inline, opt.Names.Lines = true, true
	got, _ := r.run(t, opt)
	p, err := profile.Parse(bytes.NewReader([]byte(got)))
	require.NoError(t, err)
	require.Len(t, p.Sample, 1)
	l := p.Sample[0].Location[1]
	assert.Equal(t, call, l.Address)
	assert.True(t, l.Mapping.HasInlineFrames && l.Mapping.HasLineNumbers && l.Mapping.HasFilenames)
	require.Len(t, l.Line, 3)
	for i, want := range []profile.Line{{Line: 6}, {Line: 11}, {Line: 15}} {
		assert.Equal(t, want.Line, l.Line[i].Line)
		assert.Equal(t, []string{"inner", "middle", "outer"}[i], l.Line[i].Function.Name)
		assert.Equal(t, filepath.Join(r.dir, "inlined.c"), l.Line[i].Function.Filename)
	}
}

// TestBrokenDebugInfo has names from the symbol table, and one warning.
func TestBrokenDebugInfo(t *testing.T) {
	r, _ := inlinedRecording(t)
	object := filepath.Join(r.dir, "bin/inlined.so")
	f, err := elf.Open(object)
	require.NoError(t, err)
	b, err := os.ReadFile(object)
	require.NoError(t, err)
	offset := f.Section(".debug_info").Offset
	f.Close()
	b[offset+4] = 77 // version
	require.NoError(t, os.WriteFile(object, b, 0o666))
	opt := r.options("perf")
	opt.Names.Inline, opt.Names.Lines = true, true
	got, s := r.run(t, opt)
	assert.Contains(t, got, " outer+")
	assert.NotContains(t, got, "inlined)")
	require.Len(t, s.Warnings, 1)
	assert.Equal(t, "/bin/inlined.so: unit at 0x0 of .debug_info: DWARF version 77", s.Warnings[0])
}
