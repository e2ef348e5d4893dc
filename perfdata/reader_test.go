package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const dwarfType = uint64(SampleIP | SampleTID | SampleTime | SampleCallchain | SamplePeriod | SampleRegsUser | SampleStackUser)

func twoEvents() *perfdatatest.Builder {
	return &perfdatatest.Builder{
		Attrs: []perfdatatest.Attr{
			{Name: "cycles", SampleType: dwarfType | uint64(SampleIdentifier), RegsUser: 0b110, StackUser: 16,
				IDs: []uint64{5, 6}},
			{Name: "faults", SampleType: uint64(SampleIdentifier | SampleIP | SampleTID | SampleTime | SamplePeriod),
				IDs: []uint64{7}, Flags: attrFlagBuildID},
		},
		BuildIDs: []perfdatatest.BuildID{{Name: "/bin/true", ID: []byte{1, 2, 3, 4}}},
	}
}

func dwarfSample(id, ip, time uint64) []byte {
	return perfdatatest.Record(9, 2, id, ip, int32(10), int32(11), time, uint64(250),
		uint64(2), uint64(ContextUser), ip, // call chain
		uint64(2), uint64(0x111), uint64(0x222), // registers
		uint64(16), "stackstackstack!", uint64(8))
}

func faultSample(ip, time uint64) []byte {
	return perfdatatest.Record(9, 1, uint64(7), ip, int32(10), int32(11), time, uint64(1))
}

// describe is one line for a record.
func describe(rec Record) string {
	switch r := rec.(type) {
	case *Sample:
		return fmt.Sprintf("sample %s %d/%d %d ip=%#x period=%d chain=%#x regs=%d:%#x stack=%q/%d", r.Event.Name,
			r.PID, r.TID,
			r.Time, r.IP, r.Period, r.Callchain, r.UserRegs.ABI, r.UserRegs.Values, r.Stack, r.StackSize)
	case *Mmap:
		return fmt.Sprintf("mmap %d/%d %d %#x+%#x@%#x %s exec=%t id=%x", r.PID, r.TID, r.Time, r.Addr, r.Len, r.PgOff,
			r.Name, r.Exec, r.File.BuildID)
	case *Comm:
		return fmt.Sprintf("comm %d/%d %d %s exec=%t", r.PID, r.TID, r.Time, r.Name, r.Exec)
	case *Task:
		return fmt.Sprintf("task%d %d/%d of %d/%d %d", r.Type, r.PID, r.TID, r.PPID, r.PTID, r.Time)
	case *Lost:
		return fmt.Sprintf("lost %d id=%d", r.Count, r.EventID)
	case *KSymbol:
		return fmt.Sprintf("ksymbol %#x+%#x %s", r.Addr, r.Len, r.Name)
	case *Other:
		return fmt.Sprintf("other %d %d bytes", r.Type, len(r.Data))
	}
	return "?"
}

func readAll(t testing.TB, file []byte, opt Options) (lines []string, r *Reader) {
	r, err := NewReader(bytes.NewReader(file), opt)
	require.NoError(t, err)
	for r.Next() {
		lines = append(lines, describe(r.Record()))
	}
	return lines, r
}

// TestBuildIDOfAnother: the kernel marks mappings as having build-ids also where only another
// reader has asked for them.
func TestBuildIDOfAnother(t *testing.T) {
	b := twoEvents()
	b.Attrs[1].Flags = 0
	recording(b)
	lines, r := readAll(t, b.File(), Options{})
	require.NoError(t, r.Err())
	assert.Contains(t, lines, "mmap 10/11 125 0x7000+0x1000@0x0 /lib/x.so exec=true id=")
}

// recording has a record of each kind, in two rounds and out of order.
func recording(b *perfdatatest.Builder) {
	id := perfdatatest.ID{PID: 10, TID: 11, ID: 5}
	timed := func(time uint64) perfdatatest.ID { id.Time = time; return id }
	b.Comm(timed(0), "made-up", false)
	b.Comm(timed(100), "prog", true)
	b.Mmap2(timed(110), 0x400000, 0x1000, 0x2000, "/bin/prog")
	b.Add(dwarfSample(5, 0x400123, 130))
	b.Round()
	b.Add(perfdatatest.Record(10, 2|1<<14, int32(10), int32(11), uint64(0x7000), uint64(0x1000), uint64(0),
		uint8(4), uint8(0), uint16(0), []byte{9, 8, 7, 6}, make([]byte, 16), uint32(5), uint32(2),
		perfdatatest.Name("/lib/x.so"), b.SampleID(timed(125))))
	b.Add(faultSample(0xffffffff81000000, 120))
	b.Fork(perfdatatest.ID{PID: 12, TID: 12, Time: 140}, 10, 11)
	b.Round()
	b.Exit(perfdatatest.ID{PID: 12, TID: 12, Time: 160}, 10, 11)
	b.Add(perfdatatest.Record(2, 0, uint64(5), uint64(3), b.SampleID(timed(150))))
	b.Add(perfdatatest.Record(13, 0, uint64(4), b.SampleID(timed(151))))
	b.Add(perfdatatest.Record(17, 0, uint64(0x9000), uint32(64), uint16(1), uint16(0), perfdatatest.Name("bpf_prog"),
		b.SampleID(timed(152))))
	b.Add(perfdatatest.Record(20, 0, uint64(1), b.SampleID(timed(153))))
	b.Add(perfdatatest.Record(199, 0, uint64(1))) // of a later perf
	b.Add(perfdatatest.Record(71, 0, uint64(24), uint64(0), uint64(0), uint32(0), uint32(0), uint32(0), uint32(0)),
		make([]byte, 24))
	b.Add(dwarfSample(6, 0x400200, 170))
}

var recorded = strings.Split(`comm 10/11 0 made-up exec=false
comm 10/11 100 prog exec=true
mmap 10/11 110 0x400000+0x1000@0x2000 /bin/prog exec=true id=
sample faults 10/11 120 ip=0xffffffff81000000 period=1 chain=[] regs=0:[] stack=""/0
mmap 10/11 125 0x7000+0x1000@0x0 /lib/x.so exec=true id=09080706
sample cycles 10/11 130 ip=0x400123 period=250 chain=[0xfffffffffffffe00 0x400123] regs=2:[0x111 0x222] stack="stacksta"/16
task7 12/12 of 10/11 140
lost 3 id=5
lost 4 id=0
ksymbol 0x9000+0x40 bpf_prog
other 20 32 bytes
task4 12/12 of 10/11 160
sample cycles 10/11 170 ip=0x400200 period=250 chain=[0xfffffffffffffe00 0x400200] regs=2:[0x111 0x222] stack="stacksta"/16`, "\n")

func TestRecords(t *testing.T) {
	b := twoEvents()
	recording(b)
	for name, file := range map[string][]byte{"file": b.File(), "pipe": b.Pipe()} {
		t.Run(name, func(t *testing.T) {
			lines, r := readAll(t, file, Options{})
			assert.NoError(t, r.Err())
			assert.Equal(t, recorded, lines)
			assert.Zero(t, r.Stats().BadRecords, r.Stats().FirstBad)
			assert.Equal(t, "host", r.Info().Hostname)
			assert.Equal(t, []uint32{8, 6}, []uint32{r.Info().CPUsAvailable, r.Info().CPUsOnline})
			assert.Empty(t, r.Info().Warnings)
			if assert.Len(t, r.Info().BuildIDs, 1) {
				assert.Equal(t, BuildID{Mode: ModeUser, PID: -1, ID: []byte{1, 2, 3, 4}, Name: "/bin/true"},
					r.Info().BuildIDs[0])
			}
			require.Len(t, r.Events(), 2)
			assert.Equal(t, "faults", r.Events()[1].Name)
		})
	}
	t.Run("one byte at a time", func(t *testing.T) {
		r, err := NewReader(iotestOneByte{bytes.NewReader(b.Pipe())}, Options{})
		require.NoError(t, err)
		n := 0
		for r.Next() {
			n++
		}
		assert.NoError(t, r.Err())
		assert.Equal(t, len(recorded), n)
	})
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// TestCompressed cuts the zstd stream at every place: the records that come out
// are the same.
func TestCompressed(t *testing.T) {
	for _, typ := range []uint32{81, 83} {
		for _, size := range []int{1, 2, 3, 7, 50, 1 << 15} {
			b := twoEvents()
			recording(b)
			plain := b.Data
			b.Data = nil
			// Rounds stay outside, as perf writes them; and skipped data.
			for len(plain) > 0 {
				n := int(binary.LittleEndian.Uint16(plain[6:]))
				mark := len(b.Data)
				typeOf := binary.LittleEndian.Uint32(plain)
				if typeOf == 71 {
					n += 24
				}
				b.Add(plain[:n])
				if typeOf < 64 {
					b.Compress(mark, typ, size)
				}
				plain = plain[n:]
			}
			for _, file := range [][]byte{b.File(), b.Pipe()} {
				lines, r := readAll(t, file, Options{})
				require.NoError(t, r.Err(), "type %d in pieces of %d", typ, size)
				assert.Equal(t, recorded, lines)
				assert.NotZero(t, r.Stats().Uncompressed)
			}
		}
	}
	t.Run("much from little", func(t *testing.T) {
		b := twoEvents()
		const n = 30000
		for i := range uint64(n) {
			b.Add(dwarfSample(5, 0x400000, 100+i))
		}
		b.Compress(0, 81, 60000)
		lines, r := readAll(t, b.File(), Options{QueueBytes: 1 << 20})
		assert.NoError(t, r.Err())
		assert.Len(t, lines, n)
		assert.Zero(t, r.Stats().OutOfOrder)
		assert.NotZero(t, r.Stats().Forced)
	})
	t.Run("damaged", func(t *testing.T) {
		b := twoEvents()
		b.Add(dwarfSample(5, 1, 1))
		b.Compress(0, 81, 1<<15)
		b.Data[8] ^= 0xff
		_, r := readAll(t, b.File(), Options{})
		var e *Error
		require.ErrorAs(t, r.Err(), &e)
		assert.Equal(t, "zstd data", e.What)
	})
}

func TestEveryField(t *testing.T) {
	all := uint64(sampleKnown &^ SampleWeightStruct)
	b := &perfdatatest.Builder{Attrs: []perfdatatest.Attr{{Name: "e", SampleType: all, IDs: []uint64{5},
		ReadFormat: formatGroup | formatID | formatLost | formatTotalTimeEnabled | formatTotalTimeRunning,
		BranchType: branchHWIndex | branchCounters, RegsUser: 1, StackUser: 8, RegsIntr: 0b101}}}
	u := func(v uint64) uint64 { return v }
	b.Add(perfdatatest.Record(9, 2, u(5), u(0x10), int32(1), int32(2), u(33), u(0xadd), u(5), u(0x57e), uint32(3),
		uint32(0), u(99),
		u(2), u(70), u(71), u(1000), u(5), u(0), u(1001), u(6), u(1), // group of two counters
		u(1), u(0xcc), // call chain
		uint32(4), "raw!", // raw
		u(1), u(0), u(1), u(2), u(3), u(4), // branches: hw_idx, entry, counter
		u(2), u(0xaa), // user registers
		u(8), "12345678", u(4), // stack
		u(11), u(12), u(13), // weight, data source, transaction
		u(1), u(0xbb), u(0xcc), // registers at the interrupt
		u(14), u(15), u(16), u(17), // physical address, cgroup, page sizes
		u(8), "auxauxau"))
	r, err := NewReader(bytes.NewReader(b.File()), Options{})
	require.NoError(t, err)
	require.True(t, r.Next(), "%v %v", r.Err(), r.Stats().FirstBad)
	s := r.Record().(*Sample)
	assert.Equal(t, SampleID{PID: 1, TID: 2, Time: 33, ID: 5, StreamID: 0x57e, CPU: 3}, s.SampleID)
	assert.Equal(t, []uint64{0xcc}, s.Callchain)
	assert.Equal(t, "raw!", string(s.Raw))
	assert.Len(t, s.Branches, 24)
	assert.Equal(t, Regs{ABI64, 1, []uint64{0xaa}}, s.UserRegs)
	assert.Equal(t, Regs{ABI32, 5, []uint64{0xbb, 0xcc}}, s.IntrRegs)
	assert.Equal(t, "1234", string(s.Stack))
	assert.Equal(t, []uint64{99, 11, 12, 13, 14, 15, 16, 17, 1000, 70, 71, 0xadd},
		[]uint64{s.Period, s.Weight, s.DataSrc, s.Transaction, s.PhysAddr, s.Cgroup, s.DataPage, s.CodePage,
			s.ReadValue, s.ReadTimes[0], s.ReadTimes[1], s.Addr})
	assert.Equal(t, "auxauxau", string(s.Aux))
}

// TestTruncated cuts a file everywhere: what was whole is given out, in order,
// and then there is an error with its place.
func TestTruncated(t *testing.T) {
	b := twoEvents()
	recording(b)
	pipe := b.Pipe()
	whole := len(pipe) - len(b.Data)
	ends := map[int]bool{}
	for off := 0; off < len(b.Data); {
		ends[whole+off] = true
		n := int(binary.LittleEndian.Uint16(b.Data[off+6:]))
		if binary.LittleEndian.Uint32(b.Data[off:]) == 71 {
			n += 24
		}
		off += n
	}
	for cut := whole; cut < len(pipe); cut++ {
		lines, r := readAll(t, pipe[:cut], Options{})
		if ends[cut] {
			assert.NoError(t, r.Err())
		} else {
			assert.ErrorIs(t, r.Err(), ErrTruncated, "cut at %d", cut)
		}
		assert.Zero(t, r.Stats().OutOfOrder)
		assert.LessOrEqual(t, len(lines), len(recorded))
	}
	file := b.File()
	for cut := 1; cut < len(file); cut++ {
		r, err := NewReader(bytes.NewReader(file[:cut]), Options{})
		if err != nil {
			var e *Error
			assert.ErrorAs(t, err, &e)
			assert.Truef(t, errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat), "cut at %d: %v", cut, err)
			continue
		}
		for r.Next() {
		}
		if r.Err() == nil {
			assert.NotEmpty(t, r.Info().Warnings, "cut at %d", cut)
		}
	}
	t.Run("killed", func(t *testing.T) { // the size was never written
		f := bytes.Clone(file[:len(file)-1])
		dataAt := binary.LittleEndian.Uint64(f[40:])
		clear(f[48:56])
		lines, r := readAll(t, f[:int(dataAt)+len(b.Data)], Options{})
		assert.NoError(t, r.Err())
		assert.Len(t, lines, len(recorded))
		assert.Len(t, r.Info().Warnings, 1)
	})
}

func TestBadRecords(t *testing.T) {
	b := twoEvents()
	b.Add(dwarfSample(99, 1, 10)) // no such event
	b.Add(perfdatatest.Record(9, 2, uint64(5), uint64(1), int32(1), int32(1), uint64(20), uint64(1), uint64(1<<60)))
	b.Add(dwarfSample(5, 1, 30))
	lines, r := readAll(t, b.File(), Options{})
	assert.NoError(t, r.Err())
	assert.Len(t, lines, 1)
	assert.Equal(t, uint64(2), r.Stats().BadRecords)
	assert.ErrorIs(t, r.Stats().FirstBad, ErrUnknownEvent)
	for _, bad := range []string{"", "ELF", "no recording, but text", "PERFFILE00000000", "2ELIFREP00000000",
		"PERFILE2\x11\x00\x00\x00\x00\x00\x00\x00"} {
		_, err := NewReader(strings.NewReader(bad), Options{})
		assert.ErrorIs(t, err, ErrFormat, "%q", bad)
	}
}

func BenchmarkRead(b *testing.B) {
	f := twoEvents()
	for i := range uint64(100) {
		f.Add(perfdatatest.Record(9, 2, uint64(5), uint64(1), int32(10), int32(11), i+1, uint64(250), uint64(0),
			uint64(2), uint64(1), uint64(2), uint64(8192), make([]byte, 8192), uint64(8192)))
	}
	file := f.File()
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if lines, err := drain(file); lines != 100 || err != nil {
			b.Fatal(lines, err)
		}
	}
}

func drain(file []byte) (n int, err error) {
	r, err := NewReader(bytes.NewReader(file), Options{})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for r.Next() {
		n++
	}
	return n, r.Err()
}

// FuzzReader wants an end, with or without error, whatever the bytes.
func FuzzReader(f *testing.F) {
	b := twoEvents()
	recording(b)
	f.Add(b.File())
	f.Add(b.Pipe())
	mark := len(b.Data)
	b.Add(dwarfSample(5, 1, 300))
	b.Compress(mark, 81, 20)
	f.Add(b.Pipe())
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, limit := range []int64{0, 100} {
			r, err := NewReader(bytes.NewReader(file), Options{QueueBytes: limit})
			if err != nil {
				if r != nil && r.Err() != nil {
					t.Fatal("an error and a reader")
				}
				return
			}
			for r.Next() {
				_ = describe(r.Record())
			}
			r.Close()
		}
	})
}

// TestMap reads a file mapped: the records, and what is missing, are the same. Windows
// end in the middle of records.
func TestMap(t *testing.T) {
	b := twoEvents()
	recording(b)
	for range windowSize/maxRecord + 9 {
		b.Add(perfdatatest.Record(70, 0, make([]byte, maxRecord-8))) // of a type not known
	}
	b.Add(dwarfSample(5, 0x400123, 100_000))
	whole := b.File()
	begin := int(binary.LittleEndian.Uint64(whole[40:]))
	for _, n := range []int{len(whole), len(whole) - 100, windowSize + 1000, begin + 20, begin} {
		file := whole[:n]
		want, plain := readAll(t, file, Options{})
		path := filepath.Join(t.TempDir(), "perf.data")
		require.NoError(t, os.WriteFile(path, file, 0o666))
		r, err := Open(path, Options{Map: true})
		require.NoError(t, err)
		var got []string
		for r.Next() {
			got = append(got, describe(r.Record()))
		}
		assert.Equal(t, want, got)
		assert.Equal(t, fmt.Sprint(plain.Err()), fmt.Sprint(r.Err()))
		assert.Equal(t, plain.Stats(), r.Stats())
		assert.LessOrEqual(t, len(r.pool.mapped), 2)
		require.NoError(t, r.Close())
		assert.Empty(t, r.pool.mapped)
	}
}

// TestMapGrows appends to a file that is being read, as perf record does.
func TestMapGrows(t *testing.T) {
	b := twoEvents()
	b.Comm(perfdatatest.ID{PID: 10, TID: 11, ID: 5, Time: 100}, "first", true)
	file := b.File()
	clear(file[48:56]) // the data section has no size yet
	path := filepath.Join(t.TempDir(), "perf.data")
	cut := binary.LittleEndian.Uint64(file[40:])
	n := int(cut) + int(binary.LittleEndian.Uint16(file[cut+6:]))
	require.NoError(t, os.WriteFile(path, file[:n], 0o666))
	r, err := Open(path, Options{Map: true})
	require.NoError(t, err)
	defer r.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(dwarfSample(5, 0x400123, 130))
	require.NoError(t, errors.Join(err, f.Close()))
	var got []string
	for r.Next() {
		got = append(got, describe(r.Record()))
	}
	require.NoError(t, r.Err())
	require.Len(t, got, 2)
	assert.Contains(t, got[1], "ip=0x400123")
}
