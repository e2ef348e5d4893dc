package perfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rich is an event whose samples have most fields on both sides of those that go.
var rich = perfdatatest.Attr{Name: "cpu-clock", RegsUser: 0x180, StackUser: 16, RegsIntr: 0x3,
	Flags: attrFlagNoUserChain, IDs: []uint64{5},
	SampleType: uint64(SampleIdentifier | SampleIP | SampleTID | SampleTime | SampleCallchain | SampleCPU | SamplePeriod | SampleRaw |
		SampleBranchStack | SampleRegsUser | SampleStackUser | SampleRegsIntr | SampleCgroup)}

// richSample is a sample of it; chain is what the kernel put into its call chain.
func richSample(time uint64, chain ...uint64) []byte {
	// cpu, period
	return perfdatatest.Record(9, 2, uint64(5), uint64(0x401234), int32(7), int32(8), time, uint64(3), uint64(11),
		uint64(len(chain)), chain,
		uint32(4), "raw!", uint64(1), uint64(0xb1), uint64(0xb2), uint64(0), // raw data, a branch
		uint64(2), uint64(0x7000), uint64(0x401234), // registers
		uint64(16), "secret of a user", uint64(16),
		uint64(2), uint64(0x1a), uint64(0x1b), uint64(99)) // registers of the interrupt, cgroup
}

func richBuilder() *perfdatatest.Builder {
	return &perfdatatest.Builder{
		Attrs: []perfdatatest.Attr{rich, {Name: "page-faults", Config: 2,
			SampleType: rich.SampleType &^ uint64(SampleStackUser), RegsUser: 0x180, RegsIntr: 0x3, IDs: []uint64{6}}},
		BuildIDs: []perfdatatest.BuildID{{Name: "/prog", ID: []byte("a file's id")}},
	}
}

// memory is a file in memory.
type memory struct {
	b   []byte
	pos int64
}

func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b[:min(m.pos, int64(len(m.b)))], append(slices.Clone(p),
		m.b[min(m.pos+int64(len(p)), int64(len(m.b))):]...)...)
	m.pos += int64(len(p))
	return len(p), nil
}

func (m *memory) Seek(off int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		m.pos = off
	}
	return m.pos, nil
}

// chained rewrites a recording, with the same user chain in all samples that lack one.
func chained(r *Reader, user ...uint64) ([]byte, error) {
	var out memory
	w, err := NewChainWriter(&out, r)
	if err != nil {
		return nil, err
	}
	for r.Next() {
		_, e := w.Take(nil)
		if _, err := w.Write(e.Append(nil, user)); err != nil {
			return nil, err
		}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return out.b, w.Close()
}

func mustChain(t *testing.T, in []byte, user ...uint64) []byte {
	t.Helper()
	r, err := NewReader(bytes.NewReader(in), Options{Own: true})
	require.NoError(t, err)
	out, err := chained(r, user...)
	require.NoError(t, err)
	return out
}

// kept is what a rewritten sample must still have.
type kept struct {
	id       SampleID
	ip       uint64
	period   uint64
	raw      string
	branches int
	intr     []uint64
	cgroup   uint64
	name     string
}

func keptOf(s *Sample) kept {
	return kept{s.SampleID, s.IP, s.Period, string(s.Raw), len(s.Branches), slices.Clone(s.IntrRegs.Values), s.Cgroup,
		s.Event.Name}
}

// TestChains: samples keep all fields but registers and stacks, and other records and features stay, whatever
// the recording's mode.
func TestChains(t *testing.T) {
	b := richBuilder()
	b.Comm(perfdatatest.ID{PID: 7, TID: 8, Time: 1, ID: 5}, "prog", true)
	b.Mmap2(perfdatatest.ID{PID: 7, TID: 8, Time: 2, ID: 5}, 0x401000, 0x1000, 0, "/prog")
	b.Add(perfdatatest.Record(18, 0, "namespaces unknown here ",
		b.SampleID(perfdatatest.ID{PID: 7, TID: 8, Time: 3, ID: 5})))
	// the last two: words of user memory
	b.Add(richSample(20, ContextKernel, 0xffffffff81000000, ContextUser, 0x401234, ContextKernel, 8))
	b.Add(richSample(10))
	b.Round()
	plain := b.File()
	pipe := b.Pipe()
	b.Compress(0, 81, 50)
	for name, in := range map[string][]byte{"file": plain, "pipe": pipe, "compressed": b.File()} {
		t.Run(name, func(t *testing.T) {
			out := mustChain(t, in, 0x401234, 0x401099)
			assert.NotContains(t, string(out), "secret")
			r, err := NewReader(bytes.NewReader(out), Options{})
			require.NoError(t, err)
			old, err := NewReader(bytes.NewReader(in), Options{})
			require.NoError(t, err)
			var types []Type
			var chains [][]uint64
			for r.Next() {
				require.True(t, old.Next())
				types = append(types, recordType(r))
				s, ok := r.Record().(*Sample)
				if !ok {
					assert.Equal(t, old.Raw(), r.Raw())
					continue
				}
				assert.Equal(t, keptOf(old.Record().(*Sample)), keptOf(s))
				assert.Empty(t, s.Stack)
				assert.Empty(t, s.UserRegs.Values)
				chains = append(chains, slices.Clone(s.Callchain))
			}
			require.NoError(t, r.Err())
			assert.False(t, old.Next())
			assert.Equal(t, []Type{TypeComm, TypeMmap2, 18, TypeSample, TypeSample}, types)
			assert.Equal(t, [][]uint64{
				{ContextUser, 0x401234, 0x401099},
				{ContextKernel, 0xffffffff81000000, ContextUser, 0x401234, 0x401099},
			}, chains)
			first, second := r.Events()[0], r.Events()[1]
			assert.Equal(t, SampleType(rich.SampleType)&^(SampleRegsUser|SampleStackUser), first.SampleType)
			assert.Equal(t, first.SampleType, second.SampleType)
			assert.Equal(t, []any{uint64(0), uint32(0), []uint64{5}}, []any{first.RegsUser, first.StackUser, first.IDs})
			assert.Zero(t, first.Flags&attrFlagNoUserChain, "readers take the user's part of chains for real")
			assert.Equal(t, "page-faults", second.Name)
			assert.Equal(t, old.Info().Hostname, r.Info().Hostname)
			assert.Equal(t, old.Info().BuildIDs, r.Info().BuildIDs)
			assert.Empty(t, r.Info().Warnings)
			assert.Equal(t, out, mustChain(t, out), "nothing is left to do")
		})
	}
}

// recordType is the type of the current record.
func recordType(r *Reader) Type { return r.rec.header().Type }

// TestChainsWithoutField: an event that has copies of stacks but no call chain gets one.
func TestChainsWithoutField(t *testing.T) {
	b := perfdatatest.Builder{Attrs: []perfdatatest.Attr{{Name: "cycles", RegsUser: 0x100, StackUser: 8,
		SampleType: uint64(SampleIP | SampleTID | SampleRegsUser | SampleStackUser)}}}
	b.Add(perfdatatest.Record(9, 2, uint64(0x10), int32(1), int32(2), uint64(2), uint64(0x10), uint64(8), "a stack.",
		uint64(8)))
	// of a thread of the kernel
	b.Add(perfdatatest.Record(9, 2, uint64(0x20), int32(1), int32(2), uint64(0), uint64(0)))
	r, err := NewReader(bytes.NewReader(mustChain(t, b.File(), 0x10, 0x30)), Options{})
	require.NoError(t, err)
	var chains [][]uint64
	for r.Next() {
		chains = append(chains, slices.Clone(r.Record().(*Sample).Callchain))
	}
	require.NoError(t, r.Err())
	assert.Equal(t, [][]uint64{{ContextUser, 0x10, 0x30}, {}}, chains)
}

// TestChainsLong: a chain ends where the size of records does.
func TestChainsLong(t *testing.T) {
	b := richBuilder()
	b.Add(richSample(10, 0x1, 0x2))
	long := make([]uint64, 9000)
	for i := range long {
		long[i] = uint64(i)
	}
	r, err := NewReader(bytes.NewReader(mustChain(t, b.File(), long...)), Options{})
	require.NoError(t, err)
	require.True(t, r.Next())
	s := r.Record().(*Sample)
	got := s.Callchain[slices.Index(s.Callchain, ContextUser)+1:]
	assert.Greater(t, len(got), 8000)
	assert.Equal(t, long[:len(got)], got)
	assert.Equal(t, uint64(99), s.Cgroup)
	assert.False(t, r.Next())
	require.NoError(t, r.Err())
}

// TestChainsRounds: readers need not hold all records to put them in order.
func TestChainsRounds(t *testing.T) {
	b := richBuilder()
	const n = 3 * roundRecords
	for i := range n {
		b.Add(richSample(uint64(n - i)))
	}
	r, err := NewReader(bytes.NewReader(mustChain(t, b.File(), 0x1)), Options{})
	require.NoError(t, err)
	for last := uint64(0); r.Next(); {
		now := r.Record().(*Sample).Time
		require.Greater(t, now, last)
		last = now
	}
	assert.Equal(t, Stats{Records: n, Rounds: 3}, r.Stats())
}

// TestChainsOwn: what perf itself adds stays where it was, and with it the data that follow.
func TestChainsOwn(t *testing.T) {
	b := richBuilder()
	data := bytes.Repeat([]byte("trace me"), 50_000)
	b.Add(perfdatatest.Record(66, 0, uint32(len(data)), uint32(0)), data) // TRACING_DATA
	b.Add(perfdatatest.Record(79, 0, "a conversion of times..."))         // TIME_CONV
	b.Add(richSample(10))
	// AUXTRACE: its size says less
	b.Add(perfdatatest.Record(71, 0, uint64(16), "auxtrace's fields   ....", "sixteen bytes..."))
	in := b.Data
	off := bytes.Index(in, []byte("sixteen"))
	binary.LittleEndian.PutUint16(in[off-8-24-8+6:], 8+8+24)
	out := mustChain(t, b.Pipe(), 0x1)
	assert.Contains(t, string(out), string(perfdatatest.Record(66, 0, uint32(len(data)), uint32(0)))+string(data))
	assert.Contains(t, string(out), "a conversion of times...")
	assert.Contains(t, string(out), "....sixteen bytes...")
	assert.Equal(t, out, mustChain(t, out))
	cut := b.Pipe()
	r, err := NewReader(bytes.NewReader(cut[:len(cut)-1]), Options{Own: true})
	require.NoError(t, err)
	_, err = chained(r)
	assert.ErrorIs(t, err, ErrTruncated)
}

// TestChainsFolder: a folder becomes one file, which does not claim to be a folder's.
func TestChainsFolder(t *testing.T) {
	dir := t.TempDir()
	b := richBuilder()
	b.Comm(perfdatatest.ID{PID: 7, TID: 8, Time: 1, ID: 5}, "prog", true)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), b.File(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.0"), richSample(30), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.1"), richSample(20), 0o666))
	r, err := Open(dir, Options{Own: true})
	require.NoError(t, err)
	defer r.Close()
	out, err := chained(r, 0x1)
	require.NoError(t, err)
	again, err := NewReader(bytes.NewReader(out), Options{})
	require.NoError(t, err)
	var times []uint64
	for again.Next() {
		if s, ok := again.Record().(*Sample); ok {
			times = append(times, s.Time)
		}
	}
	assert.Equal(t, []uint64{20, 30}, times)
	assert.Empty(t, again.Info().Warnings)
}

// TestChainsTruncated: no beginning of a recording passes for a recording, and none is worse than an error.
func TestChainsTruncated(t *testing.T) {
	b := richBuilder()
	b.Comm(perfdatatest.ID{PID: 7, TID: 8, Time: 1, ID: 5}, "prog", true)
	b.Add(richSample(20), richSample(30))
	whole := b.File()
	for n := range whole {
		r, err := NewReader(bytes.NewReader(whole[:n]), Options{Own: true})
		if err == nil {
			_, err = chained(r, 0x1, 0x2)
		}
		require.Error(t, err, "%d bytes", n)
	}
}

// forward is an output that cannot seek.
type forward struct{ io.Writer }

func (forward) Seek(int64, int) (int64, error) { return 0, errors.New("a pipe") }

func TestChainsToPipe(t *testing.T) {
	b := richBuilder()
	b.Add(richSample(20))
	for _, w := range []io.Writer{struct{ io.Writer }{io.Discard}, forward{io.Discard}} {
		r, err := NewReader(bytes.NewReader(b.File()), Options{Own: true})
		require.NoError(t, err)
		_, err = NewChainWriter(w, r)
		assert.ErrorIs(t, err, ErrNoSeek)
		r, err = NewReader(bytes.NewReader(b.Pipe()), Options{Own: true})
		require.NoError(t, err)
		_, err = NewChainWriter(w, r)
		assert.NoError(t, err)
	}
}
