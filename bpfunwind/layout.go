package bpfunwind

// This file has the layouts that the program and its readers share. A BPF program has no structs; all fields are loads
// and stores at these offsets.

// The program's state, one for each walk that is in progress: byte offsets. The slots of records come first.
const (
	stateExact    = slotsEnd         // u32: the pc was executing, or it is a return address
	stateStale    = slotsEnd + 4     // u32: see flagStale
	stateRegion   = slotsEnd + 8     // the region of the last pc
	stateSize     = stateRegion + 8  // u32, its bytes; 0: none yet
	stateChunk    = stateRegion + 12 // u32
	stateIndex    = stateRegion + 16 // u32
	stateEntries  = stateRegion + 20 // u32
	stateRecords  = stateRegion + 24 // u32
	stateView     = 304              // what the map of processes says, see view
	statePosition = 320              // u32, of a search
	stateOutcome  = 324              // u32
	stateDeadline = 328              // u64, ns
	stateBusy     = 336              // u64: a walk is in progress
	stateWindow   = 344              // u64: the address of the bytes of the stack in the window
	stateLength   = 352              // u32: their number
	stateSignal   = 360              // the registers of a signal frame
	stateCounts   = 512              // u64 each: walks by outcome, then frames, then samples lost
	stateBytes    = 768              // the window's
	windowCap     = 4096             // how much is read at once, unless one frame needs more
	windowMax     = windowCap + wordsEnd
	stateHeader   = 5120 // a sample begins here
	stateFrames   = stateHeader + headerSize

	countFrames = NumOutcomes
	countLost   = NumOutcomes + 1
	numCounts   = NumOutcomes + 2
)

// The header of a sample: byte offsets.
const (
	headerTime    = 0  // u64, ns
	headerThread  = 8  // u32; the process is the u32 behind it
	headerCount   = 16 // u32: frames in all
	headerView    = 20 // u32
	headerSource  = 24 // u32
	headerKernel  = 28 // u8: frames of the kernel, which come first
	headerOutcome = 29 // u8
	headerKept    = 30 // u8
	headerPeriod  = 32 // u64
	headerSize    = 40
)

// maxKernel bounds the frames of the kernel in a sample: the default of kernel.perf_event_max_stack, 127.
const maxKernel = 127

// stateLen returns the size of a state in bytes. One more frame than maxFrames: a walk that ends in an unknown region
// notes its pc, too.
func stateLen(maxFrames int) int { return stateFrames + 8*(maxKernel+maxFrames+1) }

// region is a range of a process's code: 32 bytes in a chunk, ascending.
//
//	u64 start, u32 size, u32 chunk, u32 index, u32 entries, u32 records, u32 unused
//
// The three are offsets in the chunk of the arrays of a part, the index from the region's first page on.
const regionSize = 32

// noChunk is the chunk of a region whose pcs have no row.
const noChunk = 1<<32 - 1

// view says where the regions of a process are: the value of the map of processes.
//
//	u32 chunk, u32 offset, u32 number of regions, u32 generation
//
// Without regions samples come with copies. Without a generation there are none: the process has not begun yet.
const (
	viewRegions    = 8
	viewGeneration = 12
	viewSize       = 16
)

const (
	chunkSize  = 1 << 20
	maxChunks  = 1 << 14
	maxRegions = 1 << 14 // of a process
	maxSlots   = 4       // states of a CPU
)
