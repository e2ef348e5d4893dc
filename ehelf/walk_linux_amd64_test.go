package ehelf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/thunk"
)

func load(t testing.TB) *ehelf.EhElf {
	t.Helper()
	o, err := ehelf.FromBytes(image(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return o
}

const bias = 0x7f00_0000_0000

// deepStack returns a window with n frames of the hand-made row, the last of
// which leaves the object, and the registers of the first.
func deepStack(n int) (abi.Regs, ehelf.Memory, []uint64) {
	const lo = 0x7ffc_1234_5008
	window := make([]byte, 16*n)
	pcs := make([]uint64, n)
	for i := range n {
		pcs[i] = bias + elfouttest.Low + uint64(i*7%0xff0) + 2
		if i == n-1 {
			pcs[i] = 0x1234
		}
		binary.LittleEndian.PutUint64(window[16*i:], pcs[i])
		binary.LittleEndian.PutUint64(window[16*i+8:], uint64(1000+i))
	}
	return frame(lo), ehelf.Memory{Lo: lo, Bytes: window}, pcs
}

func frame(rsp uint64) abi.Regs {
	r := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	for i := range r.Reg {
		r.Reg[i] = uint64(i) * 0x1111
	}
	r.Reg[abi.RIP] = bias + elfouttest.Low + 0x20
	r.Reg[abi.RSP] = rsp
	return r
}

func TestWalkWindow(t *testing.T) {
	o := load(t)
	for _, n := range []int{1, 2, 30, 1000} {
		regs, mem, want := deepStack(n)
		pcs := make([]uint64, n+5)
		require.Equal(t, n, o.Walk(&regs, &mem, bias, pcs))
		require.Equal(t, want, pcs[:n])
		require.Equal(t, abi.StatusNoInfo, regs.Status)
		require.Equal(t, mem.Lo+uint64(16*n), regs.Reg[abi.RSP])
		require.Equal(t, uint64(1000+n-1), regs.Reg[abi.RBP])
		require.Equal(t, uint64(0x3333), regs.Reg[abi.RBX])
		require.Zero(t, regs.Exact)
	}
	regs, mem, want := deepStack(9)
	pcs := make([]uint64, 4)
	require.Equal(t, 4, o.Walk(&regs, &mem, bias, pcs))
	require.Equal(t, abi.StatusOK, regs.Status)
	require.Equal(t, want[:4], pcs)
	require.Equal(t, 0, o.Walk(&regs, &mem, bias, nil))
	require.Equal(t, abi.StatusOK, regs.Status)
	require.Equal(t, 4, o.Walk(&regs, &mem, bias, pcs))
	require.Equal(t, want[4:8], pcs)
}

func TestStatuses(t *testing.T) {
	o := load(t)
	_, mem, _ := deepStack(3)
	for name, c := range map[string]struct {
		pc     uint64
		exact  uint16
		rsp    uint64
		status abi.Status
	}{
		"ok":             {elfouttest.Low + 1, 1, mem.Lo, abi.StatusOK},
		"outermost":      {elfouttest.Low, 1, mem.Lo, abi.StatusOutermost},
		"outermost, ret": {elfouttest.Low + 1, 0, mem.Lo, abi.StatusOutermost},
		"below":          {elfouttest.Low, 0, mem.Lo, abi.StatusNoInfo},
		"last":           {elfouttest.High, 0, mem.Lo, abi.StatusOK},
		"above":          {elfouttest.High, 1, mem.Lo, abi.StatusNoInfo},
		"unreadable":     {elfouttest.Low + 1, 1, mem.Lo + 41, abi.StatusUnreadable},
		"below window":   {elfouttest.Low + 1, 1, mem.Lo - 1, abi.StatusUnreadable},
		"wild":           {elfouttest.Low + 1, 1, ^uint64(3), abi.StatusUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			regs := frame(c.rsp)
			regs.Reg[abi.RIP], regs.Exact = bias+c.pc, c.exact
			before := regs
			require.Equal(t, c.status, o.Step(&regs, &mem, bias))
			if c.status != abi.StatusOK {
				before.Status = c.status
				require.Equal(t, before, regs)
			}
		})
	}
	t.Run("empty window", func(t *testing.T) {
		regs := frame(0)
		require.Equal(t, abi.StatusUnreadable, o.Step(&regs, &ehelf.Memory{}, bias))
	})
	t.Run("register lost", func(t *testing.T) {
		regs := frame(mem.Lo + 40)
		require.Equal(t, abi.StatusOK, o.Step(&regs, &ehelf.Memory{Lo: mem.Lo, Bytes: mem.Bytes}, bias))
		regs = frame(mem.Lo + 32)
		require.Equal(t, abi.StatusOK, o.Step(&regs, &ehelf.Memory{Lo: mem.Lo, Bytes: mem.Bytes[:40]}, bias))
		require.Equal(t, abi.AllRegs&^(1<<abi.RBP), regs.Valid)
	})
}

// TestWalkRead compares walks with windows of all sizes and a Read that knows
// the rest with the walk that has it all in the window.
func TestWalkRead(t *testing.T) {
	o := load(t)
	const n = 40
	regs, whole, _ := deepStack(n)
	wantRegs, wantPCs := regs, make([]uint64, n+3)
	wantSteps := o.Walk(&wantRegs, &whole, bias, wantPCs)
	require.Equal(t, n, wantSteps)
	for size := 0; size <= len(whole.Bytes); size += 5 {
		var asked []uint64
		part := ehelf.Memory{Lo: whole.Lo, Bytes: whole.Bytes[:size], Read: func(addr uint64) (uint64, bool) {
			asked = append(asked, addr)
			if off := addr - whole.Lo; off <= uint64(len(whole.Bytes)-8) {
				return binary.LittleEndian.Uint64(whole.Bytes[off:]), true
			}
			return 0, false
		}}
		got, pcs := regs, make([]uint64, n+3)
		require.Equal(t, wantSteps, o.Walk(&got, &part, bias, pcs), "window of %d", size)
		require.Equal(t, wantRegs, got)
		require.Equal(t, wantPCs, pcs)
		var want []uint64
		for off := size / 8 * 8; off < len(whole.Bytes); off += 8 {
			want = append(want, whole.Lo+uint64(off))
		}
		require.Equal(t, want, asked, "window of %d", size)
	}
}

// TestWalkReadUnreadable checks that an answer "unreadable" of Read counts.
func TestWalkReadUnreadable(t *testing.T) {
	o := load(t)
	const lo, lost, end = 0x9000, 0x9000 + 5*16 + 8, 0x9000 + 9*16
	mem := ehelf.Memory{Read: func(addr uint64) (uint64, bool) {
		return bias + elfouttest.Low + 0x44, addr != lost && addr < end
	}}
	regs, pcs := frame(lo), make([]uint64, 100)
	require.Equal(t, 9, o.Walk(&regs, &mem, bias, pcs))
	require.Equal(t, abi.StatusUnreadable, regs.Status)
	require.Equal(t, abi.AllRegs, regs.Valid)
	regs = frame(lo)
	require.Equal(t, 6, o.Walk(&regs, &mem, bias, pcs[:6]))
	require.Equal(t, abi.AllRegs&^(1<<abi.RBP), regs.Valid)
}

// TestWalkReadChanges has window memory change between the runs of one step.
func TestWalkReadChanges(t *testing.T) {
	o := load(t)
	window := make([]byte, 16)
	const lo = 0x9000
	mem := ehelf.Memory{Lo: lo, Bytes: window}
	rng := rand.New(rand.NewPCG(1, 2))
	mem.Read = func(addr uint64) (uint64, bool) {
		binary.LittleEndian.PutUint64(window, bias+elfouttest.Low+rng.Uint64()%0x1200)
		return bias + elfouttest.Low + rng.Uint64()%0x1100, rng.Uint64()%8 != 0
	}
	for range 1000 {
		binary.LittleEndian.PutUint64(window, bias+elfouttest.Low+5)
		regs, pcs := frame(lo-16*(rng.Uint64()%4)), make([]uint64, 50)
		require.LessOrEqual(t, o.Walk(&regs, &mem, bias, pcs), 50)
	}
}

func TestWalkRaw(t *testing.T) {
	o := load(t)
	regs, mem, want := deepStack(5)
	raw := abi.Memory{
		Lo: mem.Lo, Size: uint64(len(mem.Bytes)), Bytes: uintptr(unsafe.Pointer(&mem.Bytes[0])),
	}
	var pin runtime.Pinner
	pin.Pin(&mem.Bytes[0])
	defer pin.Unpin()
	require.Equal(t, uint64(5), o.WalkRaw(&regs, &raw, bias, nil, 100))
	require.Equal(t, abi.StatusNoInfo, regs.Status)

	regs, _, _ = deepStack(5)
	pcs := make([]uint64, 5)
	require.Equal(t, uint64(5), o.WalkRaw(&regs, &raw, bias, &pcs[0], 5))
	require.Equal(t, want, pcs)

	// A C callback that answers for hashed memory, against the same from Go.
	for seed := range uint64(2000) {
		seed := &seed
		cRegs := frame(0x5000 + *seed)
		goRegs := cRegs
		pin.Pin(seed)
		raw := abi.Memory{Read: thunk.HashReadThunk(), Arg: uintptr(unsafe.Pointer(seed))}
		n := o.WalkRaw(&cRegs, &raw, bias, &pcs[0], 1)
		var pc [1]uint64
		require.Equal(t, int(n), o.Walk(&goRegs, &ehelf.Memory{Read: func(addr uint64) (uint64, bool) {
			return thunk.HashRead(*seed, addr)
		}}, bias, pc[:]))
		require.Equal(t, goRegs, cRegs)
	}
}

func TestStepContext(t *testing.T) {
	o := load(t)
	ctx := abi.Context{RIP: 1, RSP: 0x4321, RBP: 3, RBX: 4}
	got := o.StepContext(ctx, elfouttest.Low+5, thunk.HashDerefThunk())
	require.Equal(t, abi.Context{Flags: 0xf, RIP: thunk.HashDeref(0x4321), RSP: 0x4329, RBP: 3, RBX: 4}, got)

	words := []uint64{77}
	var pin runtime.Pinner
	pin.Pin(&words[0])
	defer pin.Unpin()
	ctx.RSP = uint64(uintptr(unsafe.Pointer(&words[0])))
	got = o.StepContext(ctx, elfouttest.Low+5, 0)
	require.Equal(t, uint64(77), got.RIP)

	require.NotZero(t, o.StepContext(ctx, elfouttest.High, 0).Flags&abi.ContextError)
}

// TestThunksEqualTwins has generated code call the C functions: a step of the
// hand-made row reads rip at rsp and rbp at rsp+8.
func TestThunksEqualTwins(t *testing.T) {
	o := load(t)
	rng := rand.New(rand.NewPCG(3, 4))
	seed := new(uint64)
	var pin runtime.Pinner
	pin.Pin(seed)
	defer pin.Unpin()
	unreadable := 0
	for range 20000 {
		addr := rng.Uint64() >> (rng.Uint64() % 64)
		*seed = rng.Uint64()
		regs := frame(addr)
		n := o.WalkRaw(&regs, &abi.Memory{Read: thunk.HashReadThunk(), Arg: uintptr(unsafe.Pointer(seed))}, bias, nil,
			1)
		if rip, ok := thunk.HashRead(*seed, addr); ok {
			require.Equal(t, uint64(1), n)
			require.Equal(t, rip, regs.Reg[abi.RIP])
			rbp, ok := thunk.HashRead(*seed, addr+8)
			require.Equal(t, ok, regs.Valid>>abi.RBP&1 == 1)
			if ok {
				require.Equal(t, rbp, regs.Reg[abi.RBP])
			}
		} else {
			unreadable++
			require.Equal(t, uint64(0), n)
			require.Equal(t, abi.StatusUnreadable, regs.Status)
		}
		got := o.StepContext(abi.Context{RSP: addr}, elfouttest.Low+5, thunk.HashDerefThunk())
		require.Equal(t, thunk.HashDeref(addr), got.RIP)
	}
	require.InDelta(t, 2500, unreadable, 250)
}

// TestClosed checks that a closed object answers and does not crash.
func TestClosed(t *testing.T) {
	o, err := ehelf.FromBytes(image(t))
	require.NoError(t, err)
	require.NoError(t, o.Close())
	require.NoError(t, o.Close())
	regs, mem, _ := deepStack(2)
	require.Equal(t, abi.StatusNoInfo, o.Step(&regs, &mem, bias))
	require.Zero(t, o.WalkRaw(&regs, &abi.Memory{}, bias, nil, 9))
	require.Equal(t, uint8(abi.ContextError), o.StepContext(abi.Context{}, 5, 0).Flags)
}

// TestWindowGuard walks from every offset near the ends of a window that lies
// between two inaccessible pages.
func TestWindowGuard(t *testing.T) {
	o := load(t)
	const page = 0x1000
	mem, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	defer syscall.Munmap(mem)
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[2*page:], syscall.PROT_NONE))
	window := mem[page : 2*page]
	for i := range window {
		window[i] = byte(i * 3)
	}
	for _, lo := range []uint64{0, 0x5000, ^uint64(0) - page + 1, uint64(uintptr(unsafe.Pointer(&window[0])))} {
		for off := -40; off < page+40; off++ {
			regs := frame(lo + uint64(off))
			o.Walk(&regs, &ehelf.Memory{Lo: lo, Bytes: window}, bias, make([]uint64, 3))
		}
	}
}

// TestStackMoves walks from fresh goroutines, whose stack has to grow at
// different depths of the call, with everything on the stack.
func TestStackMoves(t *testing.T) {
	o := load(t)
	const lo = 0x9000
	var wg sync.WaitGroup
	for depth := range 200 {
		wg.Go(func() { atDepth(t, o, depth, lo) })
	}
	wg.Wait()
}

//go:noinline
func atDepth(t *testing.T, o *ehelf.EhElf, depth int, lo uint64) byte {
	var pad [56]byte
	if depth > 0 {
		return atDepth(t, o, depth-1, lo) + pad[depth%len(pad)]
	}
	var window [64]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(window[16*i:], bias+elfouttest.Low+uint64(8*i+2))
		binary.LittleEndian.PutUint64(window[16*i+8:], uint64(i))
	}
	var pcs [4]uint64
	regs, mem := frame(lo), ehelf.Memory{Lo: lo, Bytes: window[:]}
	if n := o.Walk(&regs, &mem, bias, pcs[:]); n != 4 || pcs[3] != bias+elfouttest.Low+26 || regs.Reg[abi.RBP] != 3 {
		t.Errorf("%d steps, %#x", n, pcs)
	}
	return pad[0]
}

// TestWalkAllocatesNothing holds the fast way free of the heap.
func TestWalkAllocatesNothing(t *testing.T) {
	o := load(t)
	_, mem, _ := deepStack(30)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var pcs [40]uint64
		regs := frame(mem.Lo)
		if o.Walk(&regs, &mem, bias, pcs[:]) != 30 {
			t.Fail()
		}
	}))
}

// TestUnderSignals walks on several goroutines while a CPU profile runs and the
// garbage collector stops the world again and again, so that SIGPROF and the
// preemption signal arrive in the foreign code.
func TestUnderSignals(t *testing.T) {
	if pprof.StartCPUProfile(discard{}) == nil {
		defer pprof.StopCPUProfile()
	}
	o := load(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var walks, collections atomic.Int64
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				// Fresh memory each time, so that a lost reference would show.
				_, mem, want := deepStack(2000)
				for range 20 {
					regs, pcs := frame(mem.Lo), make([]uint64, 2000)
					n := o.Walk(&regs, &mem, bias, pcs)
					if n != 2000 || pcs[1234] != want[1234] || regs.Reg[abi.RBP] != 2999 {
						t.Errorf("%d steps", n)
						return
					}
					walks.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			runtime.GC()
			collections.Add(1)
		}
	})
	time.Sleep(time.Duration(testtool.Few(1500, 200)) * time.Millisecond)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d walks of 2000 steps, %d collections", walks.Load(), collections.Load())
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkWalk(b *testing.B) {
	o := load(b)
	regs0, mem, _ := deepStack(30)
	pcs := make([]uint64, 30)
	b.ReportAllocs()
	for b.Loop() {
		regs := regs0
		if o.Walk(&regs, &mem, bias, pcs) != 30 {
			b.Fatal("walk")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/30, "ns/step")
}

func BenchmarkWalkRead(b *testing.B) {
	o := load(b)
	regs0, mem, _ := deepStack(30)
	whole := mem.Bytes
	mem.Bytes = nil
	mem.Read = func(addr uint64) (uint64, bool) {
		off := addr - mem.Lo
		if off > uint64(len(whole)-8) {
			return 0, false
		}
		return binary.LittleEndian.Uint64(whole[off:]), true
	}
	pcs := make([]uint64, 30)
	b.ReportAllocs()
	for b.Loop() {
		regs := regs0
		if o.Walk(&regs, &mem, bias, pcs) != 30 {
			b.Fatal("walk")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/30, "ns/step")
}
