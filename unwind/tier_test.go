package unwind

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onDemand has objects compiled after a number of steps.
func onDemand(worth int64) Options {
	return Options{Compile: unwindtest.Compile, Prepare: func(name string, file io.ReaderAt, size int64) ([]byte,
		Stepper, error) {
		s, err := unwindtest.NewStepper(name, file, size, worth)
		return nil, s, err
	}}
}

// walks walks from made-up frames and returns all that came out, in order.
func walks(m *Maps) []string {
	var w Walker
	var all []string
	rnd := rand.New(rand.NewPCG(3, 4))
	pc := func() uint64 {
		places := []uint64{0x401000, 0x401040, 0x401100, 0x401140, 0x401f00, libBase + 0x3000, libBase + 0x3200,
			libBase + 0x3400, 0x10000, 0}
		return places[rnd.IntN(len(places))] + rnd.Uint64N(0x20)
	}
	for range 2000 {
		returns := make([]uint64, 1+rnd.IntN(12))
		for i := range returns {
			returns[i] = pc()
		}
		regs, mem := start(pc()), stack(returns...)
		regs.Reg[abi.RBP], regs.Reg[abi.RAX] = mem.Lo+rnd.Uint64N(64)&^7, mem.Lo+rnd.Uint64N(64)&^7
		if rnd.IntN(20) == 0 {
			regs.Valid &^= 1 << rnd.IntN(abi.NumRegs)
		}
		pcs := make([]uint64, 1+rnd.IntN(12))
		n, cause, object := w.Walk(m, regs, mem, pcs)
		name := ""
		if object != nil {
			name = filepath.Base(object.Name)
		}
		all = append(all, fmt.Sprintf("%#x %v %s", pcs[:n], cause, name))
	}
	return append(all, fmt.Sprint(w.Guessed, w.GuessedStacks))
}

// TestTiers compares what comes out of walks, several at once, whichever way their
// steps are taken.
func TestTiers(t *testing.T) {
	maps := func(opt Options) (*Maps, *Objects) {
		ps, objects, _ := world(t, opt)
		ps.Space(1).Map(0x10000, 0x1000, 0x10000, objects.Object("//anon", nil))
		return ps.Space(1).Maps(), objects
	}
	compiled, _ := maps(Options{})
	want := walks(compiled)
	for _, worth := range []int64{1, 100, 3000, math.MaxInt64} {
		t.Run(fmt.Sprint(worth), func(t *testing.T) {
			opt := onDemand(worth)
			var compiled atomic.Int32
			opt.Compile = func(name string, file io.ReaderAt, size int64) ([]byte, error) {
				compiled.Add(1)
				return unwindtest.Compile(name, file, size)
			}
			m, objects := maps(opt)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { assert.Equal(t, want, walks(m)) })
			}
			all.Wait()
			files := 0
			for _, o := range objects.All() {
				if !o.IsFile() {
					continue
				}
				files++
				if worth < math.MaxInt64 {
					assert.Eventually(t, func() bool { return o.code.Load() != nil }, time.Minute, time.Millisecond,
						o.Name)
				} else {
					assert.Nil(t, o.code.Load())
				}
			}
			assert.Equal(t, 2, files)
			assert.Equal(t, want, walks(m), "afterwards")
			if worth < math.MaxInt64 {
				assert.Equal(t, int32(2), compiled.Load(), "once each")
			}
		})
	}
	t.Run("not to be compiled", func(t *testing.T) {
		opt := onDemand(1)
		tried := make(chan bool, 2)
		opt.Compile = func(string, io.ReaderAt, int64) ([]byte, error) {
			tried <- true
			return nil, errors.New("no")
		}
		m, objects := maps(opt)
		assert.Equal(t, want, walks(m))
		<-tried
		<-tried
		assert.Equal(t, want, walks(m))
		for _, o := range objects.All() {
			if o.IsFile() {
				assert.NoError(t, o.Err())
			}
		}
	})
	t.Run("done after all is over", func(t *testing.T) {
		opt := onDemand(1)
		over, done := make(chan bool), make(chan bool)
		opt.Compile = func(name string, file io.ReaderAt, size int64) ([]byte, error) {
			<-over
			defer func() { done <- true }()
			return unwindtest.Compile(name, file, size)
		}
		m, objects := maps(opt)
		walks(m)
		require.NoError(t, objects.Close())
		close(over)
		<-done
		<-done
		objects.compiling.Lock()
		defer objects.compiling.Unlock()
		for _, o := range objects.All() {
			assert.Nil(t, o.code.Load())
		}
	})
}

// TestPrepare has what Prepare may answer.
func TestPrepare(t *testing.T) {
	opt := Options{Prepare: func(name string, file io.ReaderAt, size int64) ([]byte, Stepper, error) {
		image, err := unwindtest.Compile(name, file, size)
		return image, nil, err
	}, Compile: func(string, io.ReaderAt, int64) ([]byte, error) { panic("there is an eh_elf") }}
	ps, objects, _ := world(t, opt)
	walks(ps.Space(1).Maps())
	o := objects.All()[1]
	assert.NotNil(t, o.code.Load())
	assert.True(t, o.SignalFrame(0x3200))
	assert.False(t, o.SignalFrame(0x3000))

	opt = onDemand(math.MaxInt64)
	_, objects, _ = world(t, opt)
	o = objects.All()[1]
	assert.True(t, o.SignalFrame(0x3200))
	assert.False(t, o.SignalFrame(0x3000))

	failed := errors.New("failed")
	opt.Prepare = func(string, io.ReaderAt, int64) ([]byte, Stepper, error) { return nil, nil, failed }
	_, objects, _ = world(t, opt)
	o = objects.All()[0]
	assert.ErrorIs(t, o.Ready(), failed)
	assert.ErrorIs(t, o.Err(), failed)
	assert.False(t, o.SignalFrame(0x401000))
}

// TestNoCompile: without Compile a Stepper goes on when compiling would pay, and without Prepare
// too an object is not ready.
func TestNoCompile(t *testing.T) {
	opt := onDemand(1)
	ps, _, _ := world(t, opt)
	want := walks(ps.Space(1).Maps())
	opt.Compile = nil
	ps, objects, _ := world(t, opt)
	assert.Equal(t, want, walks(ps.Space(1).Maps()))
	for _, o := range objects.All() {
		o.compile(o.round) // as step would in the background
		assert.Nil(t, o.code.Load())
	}

	o := NewObjects(Options{}).Object(objects.All()[0].Name, nil)
	assert.ErrorIs(t, o.Ready(), errNoMaker)
}

// TestKeptFile reads an object's file after it was prepared.
func TestKeptFile(t *testing.T) {
	var kept io.ReaderAt
	opt := onDemand(math.MaxInt64)
	prepare := opt.Prepare
	opt.Prepare = func(name string, file io.ReaderAt, size int64) ([]byte, Stepper, error) {
		kept = file
		return prepare(name, file, size)
	}
	_, objects, dir := world(t, opt)
	require.NoError(t, objects.All()[1].Ready())
	path := filepath.Join(dir, "lib.so")
	var b [4]byte
	_, err := kept.ReadAt(b[:], 0)
	require.NoError(t, err)
	assert.Equal(t, "\x7fELF", string(b[:]))
	assert.Equal(t, path, kept.(interface{ Name() string }).Name())

	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, path+".old"))
	_, err = kept.ReadAt(b[:], 0)
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, content, 0o666))
	_, err = kept.ReadAt(b[:], 0)
	assert.ErrorIs(t, err, ErrChanged)
}
