//go:build linux && amd64

package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"
)

// TestRegionHeader compares the layout with runtime/record/record.h.
func TestRegionHeader(t *testing.T) {
	testtool.Need(t, "gcc")
	testtool.DependsOn(t, "../../../runtime/record", "../../../runtime/src", "../../../runtime/include")
	type value struct {
		expr string
		want uintptr
	}
	offset := func(typ, field string, want uintptr) value {
		return value{fmt.Sprintf("offsetof(struct %s, %s)", typ, field), want}
	}
	size := func(typ string, want uintptr) value { return value{fmt.Sprintf("sizeof(struct %s)", typ), want} }
	var region regionHeader
	var window windowHeader
	var chunk chunkHeader
	var process processHeader
	var stack stackHeader
	processAt := unsafe.Sizeof(chunk)
	values := []value{
		{"EHR_MAGIC", regionMagic}, {"EHR_VERSION", regionVersion}, {"EHR_PAGE", regionPage}, {"EHR_LINE", regionLine},
		{"EHR_WINDOW", regionWindow}, {"EHR_CHUNK", regionChunk}, {"EHR_CHUNKS", regionChunks},
		{"EHR_MAX_FRAMES", regionFrames},
		{"EHR_UNIT", regionUnit}, {"EHR_PROCESS", uintptr(chunkProcess)}, {"EHR_STACKS", uintptr(chunkStacks)},
		{"EHR_MAPS", uintptr(chunkMaps)},

		offset("ehr_region", "magic", unsafe.Offsetof(region.Magic)),
		offset("ehr_region", "version", unsafe.Offsetof(region.Version)),
		offset("ehr_region", "token", unsafe.Offsetof(region.Token)),
		offset("ehr_region", "period", unsafe.Offsetof(region.Period)),
		offset("ehr_region", "max_frames", unsafe.Offsetof(region.MaxFrames)), offset("ehr_region", "next", regionNext),
		offset("ehr_region", "declined", regionDeclined), offset("ehr_region", "stop", regionStop),

		size("ehr_window", unsafe.Sizeof(window)), offset("ehr_window", "next", unsafe.Offsetof(window.Next)),
		offset("ehr_window", "refused", unsafe.Offsetof(window.Refused)),
		offset("ehr_window", "generations", unsafe.Offsetof(window.Generations)),

		size("ehr_chunk", unsafe.Sizeof(chunk)), offset("ehr_chunk", "ready", unsafe.Offsetof(chunk.Ready)),
		offset("ehr_chunk", "kind", unsafe.Offsetof(chunk.Kind)), offset("ehr_chunk", "pid", unsafe.Offsetof(chunk.PID)),
		offset("ehr_chunk", "process", unsafe.Offsetof(chunk.Process)),
		offset("ehr_chunk", "generation", unsafe.Offsetof(chunk.Generation)),
		offset("ehr_chunk", "used", unsafe.Offsetof(chunk.Used)),

		size("ehr_process", processAt+unsafe.Sizeof(process)),
		offset("ehr_process", "comm", processAt+unsafe.Offsetof(process.Comm)),
		offset("ehr_process", "own_malloc", processAt+unsafe.Offsetof(process.OwnMalloc)),
		offset("ehr_process", "taken", processAt+unsafe.Offsetof(process.Taken)),
		offset("ehr_process", "no_room", processAt+unsafe.Offsetof(process.NoRoom)),
		offset("ehr_process", "no_live", processAt+unsafe.Offsetof(process.NoLive)),
		offset("ehr_process", "objects", processAt+unsafe.Offsetof(process.Objects)),
		offset("ehr_process", "eh_elfs", processAt+unsafe.Offsetof(process.EhElfs)),

		size("ehr_stack", unsafe.Sizeof(stack)), offset("ehr_stack", "ready", unsafe.Offsetof(stack.Ready)),
		offset("ehr_stack", "frames", unsafe.Offsetof(stack.Frames)),
		offset("ehr_stack", "end", unsafe.Offsetof(stack.End)),
		offset("ehr_stack", "guessed", unsafe.Offsetof(stack.Guessed)),
		offset("ehr_stack", "generation", unsafe.Offsetof(stack.Generation)),
		offset("ehr_stack", "objects", unsafe.Offsetof(stack.Objects)),
		offset("ehr_stack", "bytes", unsafe.Offsetof(stack.Bytes)),
		offset("ehr_stack", "freed_objects", unsafe.Offsetof(stack.FreedObjects)),
		offset("ehr_stack", "freed_bytes", unsafe.Offsetof(stack.FreedBytes)),
		offset("ehr_stack", "hash", unsafe.Offsetof(stack.Hash)),
		offset("ehr_stack", "pc", regionLine),
	}
	var source, want strings.Builder
	source.WriteString("#include \"record.h\"\n#include <stdio.h>\nint main(void)\n{\n")
	for _, v := range values {
		fmt.Fprintf(&source, "    printf(\"%s: %%lu\\n\", (unsigned long)(%s));\n", v.expr, v.expr)
		fmt.Fprintf(&want, "%s: %d\n", v.expr, v.want)
	}
	source.WriteString("    return 0;\n}\n")
	dir := t.TempDir()
	path := filepath.Join(dir, "layout.c")
	require.NoError(t, os.WriteFile(path, []byte(source.String()), 0o644))
	out, err := exec.Command("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-I../../../runtime/record",
		"-I../../../runtime/include", "-o", filepath.Join(dir, "layout"), path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(filepath.Join(dir, "layout")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, want.String(), string(out))
}

// aRegion fills the first window as a program does: a process with three stacks, what it has mapped, a child of fork,
// and a chunk of more stacks. It returns how many bytes of the window are used.
func aRegion(t testing.TB, r *region) int {
	b := make([]byte, regionPage+4*regionChunk)
	put := func(offset int, v any) {
		_, err := binary.Encode(b[offset:], binary.LittleEndian, v)
		require.NoError(t, err)
	}
	chunk := func(i int) int { return regionPage + i*regionChunk }
	stack := func(offset, frames int) int {
		put(offset, stackHeader{Ready: r.token, Frames: uint32(frames), End: int16(abi.StatusOutermost), Generation: 1,
			Objects: 3 << 16, Bytes: 3000, FreedObjects: 1 << 16, FreedBytes: 1000})
		for k := range frames {
			put(offset+regionLine+k*word, uint64(0x401000+16*k))
		}
		return offset + (regionLine+frames*word+regionLine-1)/regionLine*regionLine
	}
	process := func(i int) int {
		put(chunk(i), chunkHeader{Ready: r.token, Kind: chunkProcess, PID: uint32(os.Getpid()), Process: uint64(i)})
		put(chunk(i)+regionLine, processHeader{Comm: [16]byte{'p', '0' + byte(i)}, Taken: 9, Objects: 3, EhElfs: 2})
		return chunk(i) + 3*regionLine
	}
	put(0, windowHeader{Next: 4, Generations: 1})
	offset := process(0)
	for frames := 1; frames < 60; frames += 20 {
		offset = stack(offset, frames)
	}
	text := "00400000-00403000 r-xp 00001000 fd:01 1234 /usr/bin/true\n7fff0000-7fff1000 r-xp 00000000 00:00 0 [vdso]\n"
	put(chunk(1), chunkHeader{Ready: r.token, Kind: chunkMaps, PID: uint32(os.Getpid()), Generation: 1,
		Used: uint64(regionLine + len(text))})
	copy(b[chunk(1)+regionLine:], text)
	stack(process(2), 5)
	put(chunk(3), chunkHeader{Ready: r.token, Kind: chunkStacks, PID: uint32(os.Getpid()), Process: 2})
	stack(chunk(3)+regionLine, regionFrames)
	_, err := r.file.WriteAt(b, windowStart(0))
	require.NoError(t, err)
	_, err = r.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1), regionNext)
	require.NoError(t, err)
	return len(b)
}

func anInside(t testing.TB) *Inside {
	in, err := NewInside(InsideOptions{Period: 4096, MaxStack: regionFrames, Objects: unwind.NewObjects(unwind.Options{})})
	require.NoError(t, err)
	return in
}

// writeAll reads a region and writes the profile in each format that record offers for allocations.
func writeAll(in *Inside) (p *Profile, text string, err error) {
	if err := in.Poll(); err != nil {
		return nil, "", err
	}
	if p, err = in.Heap(HeapBoth); err != nil {
		return nil, "", err
	}
	names := symbolize.New(symbolize.Options{})
	for _, name := range []string{"pprof", "svg", "folded"} {
		spec, err := stackfmt.ByName(name)
		if err != nil {
			return nil, "", err
		}
		if err := p.Write(io.Discard, spec.New(stackfmt.Options{}), false, names); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	p.EndedIn()
	var b strings.Builder
	p.Text(&b)
	return p, b.String(), nil
}

// TestRegion reads what a program writes.
func TestRegion(t *testing.T) {
	in := anInside(t)
	defer in.Close()
	aRegion(t, in.region)
	p, text, err := writeAll(in)
	require.NoError(t, err)
	assert.Equal(t, 2, p.Inside.Processes)
	assert.EqualValues(t, 18, p.Inside.Taken)
	assert.Zero(t, p.Inside.Damaged)
	assert.EqualValues(t, 5, p.Counts.Unwound)
	assert.EqualValues(t, 5*3000, p.Inside.Bytes)
	assert.EqualValues(t, 5*2000, p.Inside.LiveBytes)
	assert.NotContains(t, text, "damaged")
}

// mutate changes a region as a program can that has it mapped: words and bytes, most of them in headers, and whole
// lines.
func mutate(t testing.TB, r *region, used int, random *rand.Rand) {
	put := func(offset int64, b []byte) {
		_, err := r.file.WriteAt(b, offset)
		require.NoError(t, err)
	}
	values := []uint64{0, 1, 2, 3, 4, 64, regionChunk, regionChunks, 1 << 16, 1<<31 - 1, 1 << 31, 1 << 32, 1 << 48,
		1<<62 + 5, 1<<63 - 1, 1 << 63, 1<<64 - 1, r.token}
	for range 1 + random.IntN(40) {
		offset := windowStart(0)
		switch random.IntN(64) {
		case 0:
			offset = int64(regionNext + 8*random.IntN(3))
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16: // the window's head, or a chunk's
			offset += int64(regionPage*random.IntN(2) + regionChunk*random.IntN(4) + 8*random.IntN(40))
		default:
			offset += int64(8 * random.IntN(used/8))
		}
		word := binary.LittleEndian.AppendUint64(nil, values[random.IntN(len(values))])
		switch random.IntN(4) {
		case 0:
			put(offset+int64(random.IntN(8)), []byte{byte(random.Uint32())})
		case 1:
			put(offset, word[:4])
		case 2:
			line := make([]byte, regionLine)
			_, err := r.file.ReadAt(line, windowStart(0)+int64(regionLine*random.IntN(used/regionLine)))
			require.NoError(t, err)
			put(offset&^(regionLine-1), line)
		default:
			put(offset, word)
		}
	}
}

// TestRegionMutated reads regions that a program has damaged: no panic, no error, and all sums within bounds.
func TestRegionMutated(t *testing.T) {
	count := 1000
	if text := os.Getenv("EHASM_REGIONS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	damaged := 0
	for seed := range uint64(count) {
		in := anInside(t)
		used := aRegion(t, in.region)
		mutate(t, in.region, used, rand.New(rand.NewPCG(seed, 1)))
		p, _, err := writeAll(in)
		require.NoError(t, err, "seed %d", seed)
		if p.Inside.Damaged > 0 {
			damaged++
		}
		for i := range p.Table.Stacks {
			require.Less(t, p.Table.Stacks[i].Period, uint64(mostSum)+1, "seed %d", seed)
		}
		in.Close()
	}
	assert.Greater(t, damaged, count/20)
	assert.Less(t, damaged, count)
}

// TestRegionMappings: what a program says that it has mapped is no reason to wait for a FIFO, to open a device or to
// overflow.
func TestRegionMappings(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	for _, text := range []string{
		"00400000-00403000 r-xp 00000000 00:00 1 " + fifo + "\n",
		"00400000-00403000 r-xp 00000000 00:00 1 /dev/zero\n00400000-00403000 r-xp 00000000 00:00 1 /dev/tty\n",
		"00400000-00403000 r-xp 00000000 00:00 1 /proc/kcore\n",
		"00400000-00403000 r-xp 00000000 00:00 1 " + dir + "\n",
		"0-ffffffffffffffff r-xp ffffffffffffffff ffffffff:ffffffff 18446744073709551615 /bin/true\n",
		"00400000-00403000 r-xp 0 00:00 1 /bin/true\n00401000-00402000 r-xp fffffffffffff000 00:00 1 /bin/true\n00400800-00400801 r-xp 0 0 0 [vdso]\n",
		strings.Repeat("00400000-00403000 r-xp 0 00:00 1 a\n", 400),
		strings.Repeat("x", 10000) + "\n\x00\xff\n- r-xp\n",
	} {
		in := anInside(t)
		aRegion(t, in.region)
		offset := windowStart(0) + regionPage + regionChunk
		head, err := binary.Append(nil, binary.LittleEndian, chunkHeader{Ready: in.region.token, Kind: chunkMaps,
			PID: uint32(os.Getpid()), Generation: 1, Used: uint64(regionLine + len(text))})
		require.NoError(t, err)
		_, err = in.region.file.WriteAt(append(head, text...), offset)
		require.NoError(t, err)
		p, _, err := writeAll(in)
		require.NoError(t, err, text)
		assert.EqualValues(t, 5*3000, p.Inside.Bytes)
		in.Close()
	}
}

// TestRegionClaims: what a program claims without having written it costs neither time nor memory.
func TestRegionClaims(t *testing.T) {
	in := anInside(t)
	defer in.Close()
	aRegion(t, in.region)
	_, err := in.region.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1<<64-1), regionNext)
	require.NoError(t, err)
	for w := range uint64(2000) {
		_, err := in.region.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1<<64-1), windowStart(w))
		require.NoError(t, err)
	}
	began := time.Now()
	p, _, err := writeAll(in)
	require.NoError(t, err)
	assert.EqualValues(t, 5*3000, p.Inside.Bytes)
	t.Log(time.Since(began))
}

// TestRegionSealed: no program changes its size, which would kill those that have mapped it.
func TestRegionSealed(t *testing.T) {
	in := anInside(t)
	defer in.Close()
	assert.ErrorIs(t, in.region.file.Truncate(0), unix.EPERM)
	assert.ErrorIs(t, in.region.file.Truncate(1<<50), unix.EPERM)
}

// FuzzRegion reads a window of any bytes.
func FuzzRegion(f *testing.F) {
	const token = 0x123456789abcdef1 // the same in each run, as in files of the corpus
	in := anInside(f)
	in.region.token = token
	used := aRegion(f, in.region)
	seed := make([]byte, used)
	_, err := in.region.file.ReadAt(seed, windowStart(0))
	require.NoError(f, err)
	in.Close()
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		in := anInside(t)
		defer in.Close()
		in.region.token = token
		_, err := in.region.file.WriteAt(b[:min(len(b), regionWindow)], windowStart(0))
		require.NoError(t, err)
		_, err = in.region.file.WriteAt(binary.LittleEndian.AppendUint64(nil, 1), regionNext)
		require.NoError(t, err)
		_, _, err = writeAll(in)
		require.NoError(t, err)
	})
}
