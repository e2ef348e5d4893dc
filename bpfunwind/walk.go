//go:build linux && amd64

package bpfunwind

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/ehasm/ehasm/abi"
)

// This file emits the step. The common frame, a plain record whose words lie in the window, comes first and falls
// through; all else is out of line. Each bound is checked even where the tables are proven, since the verifier accepts
// no other access.

// walker emits the function that bpf_loop calls for each two frames. Throughout it r6 is the state. For each frame r9
// becomes the record, r7 the CFA and r8 the lowest address of the block that the record needs.
type walker struct {
	assembler
	chunks    int // the map's file
	maxFrames int
}

// framesPerCall is how many frames a call of the function takes: calls cost as much as a third of a frame.
const framesPerCall = 2

// callsPerTime is how often the clock is looked at, in calls: a power of two. A walk may so take 64 frames more than
// its time allows.
const callsPerTime = 32

// lostValue is what a lost register holds. No frame lies there, at the end of the kernel's half.
const lostValue = -1

// Labels of ends.
const (
	stepName     = "step"
	damaged      = "damaged"
	unreadable   = "unreadable"
	lostRegister = "lostregister"
	blockFailed  = "block"
)

// emit appends the function: its arguments are the number of the call, and the address of the state's address. A result
// of 0 makes bpf_loop go on, 1 ends it (include/uapi/linux/bpf.h, bpf_loop).
func (w *walker) emit() {
	w.label(stepName)
	w.add(
		load(asm.R6, asm.R2, 0, asm.DWord),
		asm.And.Imm(asm.R1, callsPerTime-1),
		asm.JNE.Imm(asm.R1, callsPerTime-1, "frame0"),
		asm.FnKtimeGetNs.Call(),
		load(asm.R1, asm.R6, stateDeadline, asm.DWord),
		asm.JGT.Reg(asm.R0, asm.R1, "late"),
	)
	for i := range framesPerCall {
		w.frame(i)
	}
	w.next()
	w.rare()
	w.ends()
}

// next goes on with the next call.
func (w *walker) next() { w.add(asm.Mov.Imm(asm.R0, 0), asm.Return()) }

// frame emits the step of a frame with a plain record, the i-th of a call.
func (w *walker) frame(i int) {
	local := func(name string) string { return fmt.Sprintf("%s%d", name, i) }
	w.label(local("frame"))
	w.add(
		load(asm.R5, asm.R6, stateHeader+headerCount, asm.Word),
		// maxFrames bounds the program's frames: those of the kernel, which come first, do not count.
		load(asm.R1, asm.R6, stateHeader+headerKernel, asm.Byte),
		move(asm.R2, asm.R5), asm.Sub.Reg(asm.R2, asm.R1),
		asm.JGE.Imm(asm.R2, int32(w.maxFrames), "full"),
		// The pc is looked up less one, unless it was executing.
		load(asm.R8, asm.R6, slotRIP, asm.DWord),
		load(asm.R1, asm.R6, stateExact, asm.Word),
		asm.Add.Reg(asm.R8, asm.R1), asm.Add.Imm(asm.R8, -1),
		move(asm.R7, asm.R8),
		load(asm.R1, asm.R6, stateRegion, asm.DWord), asm.Sub.Reg(asm.R7, asm.R1),
		load(asm.R1, asm.R6, stateSize, asm.Word),
		asm.JLT.Reg(asm.R7, asm.R1, local("found")),
	)
	if i > 0 { // the first frame of the next call finds the region
		w.next()
	} else {
		w.findRegion()
	}
	w.label(local("found"))
	w.push()
	w.findRecord(local)
	w.add(load(asm.R1, asm.R9, byteKind, asm.Byte), asm.JNE.Imm(asm.R1, kindPlain, "special"))
	w.base(asm.R7)
	w.window(local)
	w.restore()
}

// push appends the pc to the frames, of which there are r5.
func (w *walker) push() {
	w.add(
		asm.JGT.Imm(asm.R5, int32(maxKernel+w.maxFrames), damaged), // for the verifier
		move(asm.R2, asm.R5), asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R2, asm.R6),
		load(asm.R3, asm.R6, slotRIP, asm.DWord), store(asm.R2, stateFrames, asm.R3, asm.DWord),
		asm.Add.Imm(asm.R5, 1), store(asm.R6, stateHeader+headerCount, asm.R5, asm.Word),
	)
}

// findRegion finds the region of the pc in r8, and leaves the pc's distance from its start in r7. r5 stays. It keeps
// the region in the state, where the next frames of the same object find it at once. With at most 64 or 512 regions,
// the search begins later: few processes have more objects.
func (w *walker) findRegion() {
	const stack = -16
	w.add(store(asm.RFP, stack, asm.R5, asm.DWord), load(asm.R1, asm.R6, stateView, asm.Word))
	w.chunk(asm.R9, w.chunks, asm.R1)
	w.add(
		load(asm.R4, asm.R6, stateView+8, asm.Word),
		load(asm.R5, asm.R6, stateView+4, asm.Word),
		set(asm.R6, statePosition, 0),
		asm.JLT.Imm(asm.R4, 65, "regions64"), asm.JLT.Imm(asm.R4, 513, "regions512"),
	)
	place := func(dst asm.Register) { // of the region whose number is in r1
		w.add(move(dst, asm.R1), asm.LSh.Imm(dst, 5), asm.Add.Reg(dst, asm.R5),
			asm.JGT.Imm(dst, chunkSize-regionSize, damaged),
			asm.Add.Reg(dst, asm.R9))
	}
	w.search(maxRegions/2, map[int]string{256: "regions512", 32: "regions64"}, func(next string) {
		place(asm.R2)
		w.add(load(asm.R2, asm.R2, 0, asm.DWord), asm.JGT.Reg(asm.R2, asm.R8, next))
	})
	w.add(load(asm.R1, asm.R6, statePosition, asm.Word))
	place(asm.R2)
	for offset := 0; offset < regionSize; offset += 8 {
		w.add(load(asm.R1, asm.R2, offset, asm.DWord), store(asm.R6, stateRegion+offset, asm.R1, asm.DWord))
	}
	w.add(
		load(asm.R5, asm.RFP, stack, asm.DWord),
		move(asm.R7, asm.R8), load(asm.R1, asm.R6, stateRegion, asm.DWord), asm.Sub.Reg(asm.R7, asm.R1),
		load(asm.R1, asm.R6, stateSize, asm.Word), asm.JGE.Reg(asm.R7, asm.R1, "noregion"),
	)
}

// findRecord leaves the record in r9 of the pc that lies r7 behind the region's start.
func (w *walker) findRecord(local func(string) string) {
	w.add(load(asm.R8, asm.R6, stateChunk, asm.Word), asm.JGE.Imm(asm.R8, maxChunks, "norow"))
	w.chunk(asm.R9, w.chunks, asm.R8)
	w.add(
		// The page's entries: from r3 to r4.
		move(asm.R1, asm.R7), asm.RSh.Imm(asm.R1, pageShift), asm.LSh.Imm(asm.R1, 2),
		load(asm.R2, asm.R6, stateIndex, asm.Word), asm.Add.Reg(asm.R1, asm.R2),
		asm.JGT.Imm(asm.R1, chunkSize-8, damaged), asm.Add.Reg(asm.R1, asm.R9),
		load(asm.R3, asm.R1, 0, asm.Word), load(asm.R4, asm.R1, 4, asm.Word),
		load(asm.R5, asm.R6, stateEntries, asm.Word),
		asm.And.Imm(asm.R7, pageSize-1),
		asm.Add.Imm(asm.R3, -1), store(asm.R6, statePosition, asm.R3, asm.Word),
		move(asm.R1, asm.R4), asm.Sub.Reg(asm.R1, asm.R3),
		asm.JLT.Imm(asm.R1, 5, local("entries4")), asm.JLT.Imm(asm.R1, 17, local("entries16")),
	)
	place := func(dst asm.Register) { // of the entry whose number is in r1
		w.add(move(dst, asm.R1), asm.LSh.Imm(dst, 1), asm.Add.Reg(dst, asm.R5), asm.JGT.Imm(dst, chunkSize-2, damaged),
			asm.Add.Reg(dst, asm.R9))
	}
	w.search(pageSize, map[int]string{8: local("entries16"), 2: local("entries4")}, func(next string) {
		place(asm.R2)
		w.add(load(asm.R2, asm.R2, 0, asm.Byte), asm.JGT.Reg(asm.R2, asm.R7, next))
	})
	w.add(load(asm.R1, asm.R6, statePosition, asm.Word))
	place(asm.R2)
	w.add(
		load(asm.R1, asm.R2, 1, asm.Byte), asm.LSh.Imm(asm.R1, 4),
		load(asm.R2, asm.R6, stateRecords, asm.Word), asm.Add.Reg(asm.R1, asm.R2),
		asm.JGT.Imm(asm.R1, chunkSize-recordSize, damaged), asm.Add.Reg(asm.R9, asm.R1),
	)
}

// base leaves base + offset in dst. The offset is sign-extended from 32 bits by two shifts.
func (w *walker) base(dst asm.Register) {
	w.add(
		load(dst, asm.R9, byteBase, asm.Byte), asm.Add.Reg(dst, asm.R6), load(dst, dst, 0, asm.DWord),
		asm.JEq.Imm(dst, lostValue, lostRegister),
		load(asm.R1, asm.R9, byteOff, asm.Word), asm.LSh.Imm(asm.R1, 32), asm.ArSh.Imm(asm.R1, 32), asm.Add.Reg(dst, asm.R1),
	)
}

// window copies the block below the CFA in r7 to the words, from the window. If it does not lie there, the window is
// read anew: to the end of its page, if the frame is close to those before.
func (w *walker) window(local func(string) string) {
	// In bytes, above the window's end: callers' frames follow one another, so one read of a page serves many. A frame
	// further away, as behind a large array, is read alone.
	const close = 512
	w.label(local("window"))
	w.add(
		load(asm.R2, asm.R9, byteSize, asm.Byte), asm.JGT.Imm(asm.R2, maxFast, "plain"),
		load(asm.R3, asm.R6, stateWindow, asm.DWord), load(asm.R4, asm.R6, stateLength, asm.Word),
		move(asm.R1, asm.R7), asm.Sub.Reg(asm.R1, asm.R3),
		asm.JGT.Reg(asm.R1, asm.R4, local("refill")), asm.JLT.Reg(asm.R1, asm.R2, local("refill")),
		asm.JGT.Imm(asm.R1, windowMax, damaged), // for the verifier
		asm.Ja.Label(local("inside")),
	)
	w.label(local("refill"))
	w.add(
		move(asm.R8, asm.R7), asm.Sub.Reg(asm.R8, asm.R2),
		asm.Add.Reg(asm.R3, asm.R4), move(asm.R1, asm.R8), asm.Sub.Reg(asm.R1, asm.R3),
		asm.JGT.Imm(asm.R1, close, local("block")),
		move(asm.R2, asm.R7), asm.Add.Imm(asm.R2, -1), asm.Or.Imm(asm.R2, windowCap-1), asm.Add.Imm(asm.R2, 1),
		asm.Sub.Reg(asm.R2, asm.R8),
	)
	w.label(local("block"))
	w.add(asm.JGT.Imm(asm.R2, windowMax, damaged), store(asm.R6, statePosition, asm.R2, asm.Word), move(asm.R3, asm.R8))
	w.field(asm.R1, asm.R6, stateBytes)
	w.readUser(blockFailed)
	w.add(
		store(asm.R6, stateWindow, asm.R8, asm.DWord),
		load(asm.R1, asm.R6, statePosition, asm.Word), store(asm.R6, stateLength, asm.R1, asm.Word),
		load(asm.R1, asm.R9, byteSize, asm.Byte),
	)
	w.label(local("inside"))
	w.add(asm.Add.Reg(asm.R1, asm.R6))
	for offset := 8; offset <= maxFast; offset += 8 {
		w.add(load(asm.R2, asm.R1, stateBytes-offset, asm.DWord), store(asm.R6, wordsEnd-offset, asm.R2, asm.DWord))
	}
}

// restore gives the registers the caller's values. All sources are read before. r7 is the CFA. Eight columns take all
// registers but r6, r9 and the frame pointer.
func (w *walker) restore() {
	w.add(store(asm.R6, slotCFA, asm.R7, asm.DWord))
	free := []asm.Register{asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5, asm.R7, asm.R8}
	for i := range numColumns {
		w.add(load(free[i], asm.R9, sourceByte(i), asm.Byte), asm.Add.Reg(free[i], asm.R6),
			load(free[i], free[i], 0, asm.DWord))
	}
	for i := range numColumns {
		w.add(store(asm.R6, int(slots[register(i)]), free[i], asm.DWord))
	}
	w.add(set(asm.R6, stateExact, 0))
}

// rare emits what all kinds but plain need. r1 is the kind.
func (w *walker) rare() {
	w.label("special")
	// Registers that a call may change have their values in frames that were interrupted. In others they may still.
	w.add(
		move(asm.R2, asm.R1), asm.And.Imm(asm.R1, flagStale-1), asm.JNE.Imm(asm.R1, kindVolatile, "stale"),
		load(asm.R3, asm.R6, stateExact, asm.Word), asm.JNE.Imm(asm.R3, 0, "stale"),
		load(asm.R3, asm.R6, stateStale, asm.Word), asm.JNE.Imm(asm.R3, 0, lostRegister),
		asm.StoreImm(asm.R6, stateHeader+headerKept, 1, asm.Byte),
	)
	w.label("stale")
	w.add(asm.JLT.Imm(asm.R2, flagStale, "kinds"), set(asm.R6, stateStale, 1))
	w.label("kinds")
	w.add(
		asm.JEq.Imm(asm.R1, kindEnd, "outermost"),
		asm.JEq.Imm(asm.R1, kindPlain, "plain"),
		asm.JEq.Imm(asm.R1, kindShifted, "shifted"), asm.JEq.Imm(asm.R1, kindVolatile, "shifted"),
		asm.JEq.Imm(asm.R1, kindDeref, "deref"), asm.JEq.Imm(asm.R1, kindPLT, "plt"),
		asm.JEq.Imm(asm.R1, kindDRAP, "drap"), asm.JEq.Imm(asm.R1, kindSignal, "signal"),
		asm.JEq.Imm(asm.R1, kindNoRow, "norow"), asm.JEq.Imm(asm.R1, kindNoRecord, "norecord"),
		asm.Ja.Label(damaged),
	)

	w.label("shifted")
	w.base(asm.R7)
	w.add(move(asm.R8, asm.R7))
	w.extraWords(asm.R8)
	w.add(asm.Ja.Label("read"))

	w.label("deref")
	w.deref()
	w.add(load(asm.R1, asm.R9, byteExtra, asm.Byte), asm.Add.Reg(asm.R7, asm.R1), move(asm.R8, asm.R7),
		asm.Ja.Label("read"))

	// ld's row of .plt: byteExtra is where in an entry of 16 bytes the push of its number has been done
	// (bfd's elf64-x86-64.c, elf_x86_64_eh_frame_lazy_plt).
	w.label("plt")
	w.base(asm.R7)
	w.add(
		load(asm.R1, asm.R6, slotRIP, asm.DWord), asm.And.Imm(asm.R1, 15), load(asm.R2, asm.R9, byteExtra, asm.Byte),
		move(asm.R8, asm.R7), asm.JLT.Reg(asm.R1, asm.R2, "read"),
		asm.Add.Imm(asm.R7, 8), move(asm.R8, asm.R7), asm.Ja.Label("read"),
	)

	w.label("plain")
	w.base(asm.R7)
	w.add(move(asm.R8, asm.R7))
	// The block ends at r8.
	w.label("read")
	w.add(
		load(asm.R2, asm.R9, byteSize, asm.Byte), asm.JEq.Imm(asm.R2, 0, "restore"), asm.JGT.Imm(asm.R2, wordsEnd, damaged),
		asm.Sub.Reg(asm.R8, asm.R2), move(asm.R3, asm.R8),
		asm.Mov.Imm(asm.R1, wordsEnd), asm.Sub.Reg(asm.R1, asm.R2), asm.Add.Reg(asm.R1, asm.R6),
	)
	w.readUser(blockFailed)
	w.label("restore")
	w.restore()
	w.next()

	// A function that GCC aligns the stack of: the register or word that holds the CFA is the DRAP (gcc/config/i386,
	// dynamic realign argument pointer).
	w.label("drap")
	w.deref()
	w.add(move(asm.R1, asm.R6), asm.Add.Imm(asm.R1, placeRA), asm.Mov.Imm(asm.R2, 8), move(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, -8))
	w.readUser(unreadable)
	w.add(load(asm.R3, asm.R9, byteBase, asm.Byte), asm.Add.Reg(asm.R3, asm.R6), load(asm.R3, asm.R3, 0, asm.DWord))
	w.extraWords(asm.R3)
	w.add(load(asm.R2, asm.R9, byteSize, asm.Byte), asm.And.Imm(asm.R2, flagSaved-1),
		asm.JGT.Imm(asm.R2, placeSaved, damaged), move(asm.R1, asm.R6))
	w.readUser("incomplete")
	w.add(load(asm.R2, asm.R9, byteSize, asm.Byte), asm.JLT.Imm(asm.R2, flagSaved, "restore"),
		move(asm.R1, asm.R6), asm.Add.Imm(asm.R1, placeSaved), asm.Mov.Imm(asm.R2, 8), move(asm.R3, asm.R7),
		asm.Add.Imm(asm.R3, -16))
	w.readUser("incomplete")
	w.add(asm.Ja.Label("restore"))

	w.signal()
}

// deref leaves the word at base + offset in r7. The walk ends as Unreadable if it can't be read.
func (w *walker) deref() {
	w.base(asm.R3)
	w.add(move(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 8))
	w.readUser(unreadable)
	w.add(load(asm.R7, asm.R6, 0, asm.DWord))
}

// extraWords adds 8 times the signed byte extra to dst.
func (w *walker) extraWords(dst asm.Register) {
	w.add(load(asm.R1, asm.R9, byteExtra, asm.Byte), asm.LSh.Imm(asm.R1, 56), asm.ArSh.Imm(asm.R1, 53),
		asm.Add.Reg(dst, asm.R1))
}

// signal emits the step over the frame of a signal handler's return. If the whole context can't be read, rip and rsp,
// side by side in it, tell whether the walk is lost or only incomplete.
func (w *walker) signal() {
	w.label("signal")
	w.add(load(asm.R3, asm.R6, slotRSP, asm.DWord), asm.Add.Imm(asm.R3, sigcontextAt), asm.Mov.Imm(asm.R2, 8*abi.NumRegs))
	w.field(asm.R1, asm.R6, stateSignal)
	w.readUser("sigfailed")
	for i, reg := range sigcontext {
		w.add(load(asm.R1, asm.R6, stateSignal+8*i, asm.DWord), store(asm.R6, int(slots[reg]), asm.R1, asm.DWord))
	}
	w.add(set(asm.R6, stateExact, 1), set(asm.R6, stateStale, 0))
	w.next()

	w.label("sigfailed")
	w.add(load(asm.R3, asm.R6, slotRSP, asm.DWord), asm.Add.Imm(asm.R3, sigRSP), asm.Mov.Imm(asm.R2, 16))
	w.field(asm.R1, asm.R6, stateSignal)
	w.readUser(unreadable)
	w.add(asm.Ja.Label("incomplete"))
}

// ends emits the ends of walks. Each outcome has one end, wherever a step fails.
func (w *walker) ends() {
	// The block from r8 on is unreadable; perhaps not the return address in it.
	w.label(blockFailed)
	w.add(
		load(asm.R3, asm.R9, byteRA, asm.Byte), asm.JGE.Imm(asm.R3, wordsEnd, "incomplete"),
		load(asm.R1, asm.R9, byteSize, asm.Byte), asm.Add.Reg(asm.R3, asm.R1), asm.Add.Imm(asm.R3, -wordsEnd),
		asm.Add.Reg(asm.R3, asm.R8),
		move(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 8),
	)
	w.readUser(unreadable)
	w.add(asm.Ja.Label("incomplete"))

	// r5 is the number of frames.
	w.label("noregion")
	w.add(
		load(asm.R1, asm.R6, slotRIP, asm.DWord), asm.JEq.Imm(asm.R1, lostValue, lostRegister),
		asm.JNE.Imm(asm.R1, 0, "unknown"),
		load(asm.R1, asm.R6, stateExact, asm.Word), asm.JEq.Imm(asm.R1, 0, "null"),
	)
	w.label("unknown")
	w.push()
	w.end(NoRegion)
	w.label("null")
	w.add(load(asm.R1, asm.R6, int(slots[abi.RBP]), asm.DWord), asm.JNE.Imm(asm.R1, 0, "switched"))
	w.end(NullReturn)
	for _, e := range []struct {
		label string
		Outcome
	}{
		{"outermost", EndOfStack}, {"switched", Switched}, {"norow", NoRow}, {"norecord", NoRecord}, {unreadable, Unreadable},
		{"incomplete", Incomplete}, {lostRegister, LostRegister}, {"full", FrameLimit}, {"late", TimeLimit},
		{damaged, Damaged},
	} {
		w.label(e.label)
		w.end(e.Outcome)
	}
	w.label("end")
	w.add(store(asm.R6, stateOutcome, asm.R1, asm.Word), asm.Mov.Imm(asm.R0, 1), asm.Return())
}

// end ends the walk. r1 is the outcome.
func (w *walker) end(o Outcome) { w.add(asm.Mov.Imm(asm.R1, int32(o)), asm.Ja.Label("end")) }
