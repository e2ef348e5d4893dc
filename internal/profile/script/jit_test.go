package script

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jitDump is a jitdump file with one piece of code at an address, and its .eh_frame if rows is not empty.
func jitDump(addr uint64, code, rows string) []byte {
	le := binary.LittleEndian
	b := make([]byte, 40)
	le.PutUint32(b, 0x4a695444)
	le.PutUint32(b[8:], 40)
	record := func(id uint32, words []uint64, rest string) {
		b = le.AppendUint32(le.AppendUint32(b, id), uint32(16+8*len(words)+len(rest)))
		b = append(b, make([]byte, 8)...)
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
		b = append(b, rest...)
	}
	if rows != "" {
		record(4, []uint64{uint64(len(rows)), 0, 0}, rows)
	}
	record(0, []uint64{0, addr, addr, uint64(len(code)), 1}, "made\x00"+code)
	return b
}

// TestJIT: stacks through code made at run time are whole by the rows in its jitdump file, or by its code there; also
// those of a child, which has its parent's code and its own. Neither needs guesses.
func TestJIT(t *testing.T) {
	const (
		looping   = "\x48\x83\xec\x08\xff\xd7\xeb\xfe"                 // sub $8, %rsp; call *%rdi; a loop for ever
		returning = "\x48\x83\xec\x08\xff\xd7\x48\x83\xc4\x08\xc3\x90" // the same; add $8, %rsp; ret
		rows      = "\x14\x00\x00\x00\x00\x00\x00\x00\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\x00\x00" +
			"\x10\x00\x00\x00\x1c\x00\x00\x00\xd8\xff\xff\xff\x08\x00\x00\x00\x00\x44\x0e\x10\x00\x00\x00\x00"
	)
	for name, c := range map[string]struct {
		code, rows string
		whole      bool
	}{
		"rows": {looping, rows, true}, "code": {returning, "", true}, "neither": {looping, "", false},
		"bad rows": {returning, rows[:30], true}, "bad rows, no returns": {looping, rows[:30], false},
	} {
		r := newRecording(t)
		r.start()
		path := filepath.Join(r.dir, "jit-10.dump")
		require.NoError(t, os.WriteFile(path, jitDump(0x30100, c.code, c.rows), 0o600))
		r.Mmap2(r.id(10, 10), 0x70000, 0x1000, 0, path)
		r.Fork(r.id(20, 20), 10, 10)
		for _, pid := range []int32{10, 20} {
			r.sample(pid, 0x30104, nil, 0x401050, 0x401010)
			r.sample(pid, libBase+0x3010, nil, 0x30106, 0x401050, 0x401010)
		}
		own := filepath.Join(r.dir, "jit-20.dump") // the child makes more
		require.NoError(t, os.WriteFile(own, jitDump(0x30200, c.code, c.rows), 0o600))
		r.Mmap2(r.id(20, 20), 0x71000, 0x1000, 0, own)
		r.sample(20, libBase+0x3010, nil, 0x30206, 0x30106, 0x401050, 0x401010)
		opt := r.options("folded")
		opt.FramePointers = unwind.Never
		got, s := r.run(t, opt)
		want := map[string]uint64{"outermost frame": 5}
		if !c.whole {
			want = map[string]uint64{"object missing": 5}
		}
		assert.Equal(t, want, s.Ends, name)
		if c.whole {
			for _, stack := range []string{";_start;main;made", ";_start;main;made_[j];work"} {
				assert.Contains(t, got, stack, name)
			}
		}
	}
}
