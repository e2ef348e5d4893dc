// Package plan decides what the machine code of an eh_elf looks like without
// knowing any instruction: which rows are steps on the fast path, which code
// they share, and how a pc finds its row.
//
// A pc is looked up in two stages. Its page (256 bytes of text) is an index into a
// table; the page then tells the row from the low byte of the pc. Pages are shared
// if they are equal, and a page that holds one row needs no code. If rows are few
// and far apart, the pages' table would be most of the file: then long runs of
// pages in one range are left out of it.
package plan

import (
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// PageBits is the binary logarithm of the bytes of text that one page covers, at most:
// the rest of the pc inside a page is compared as one byte.
const PageBits = 8

// PageSize is the number of bytes of text that one page covers, at most.
const PageSize = 1 << PageBits

// maxSpan is the largest distance in bytes between the lowest and the highest
// pc of one object that a plan covers; the x86-64 small code model allows 2 GiB
// (psABI §3.5.1).
const maxSpan = 1<<31 - PageSize

// ErrSpan is wrapped by errors about objects that span too many addresses.
var ErrSpan = errors.New("the pcs span too many addresses")

// Plan is everything that becomes code.
type Plan struct {
	Table *dwarfcfa.Table // what was planned, for its expressions and rows
	Low   dwarfcfa.Addr   // lowest pc covered
	High  dwarfcfa.Addr   // one past the highest pc covered
	Base  dwarfcfa.Addr   // Low rounded down to a multiple of PageSize

	PageBits uint // of this plan's pages

	Dispatch Dispatch

	// Segments cover all pages, in order. There is one, with a table, except for
	// objects whose table would be most of the file.
	Segments []Segment
	Trees    []Tree   // distinct pages, in order of first use
	Blocks   []Block  // what a page leads to; Blocks[0] stops with abi.StatusNoInfo
	Weights  []uint64 // of Blocks: how often they are led to, about
	Tails    []Tail   // distinct, in order of first use

	// Packed pages name blocks by ids: IDs[id] is the block, the most used ones first;
	// id 0 to maxShortID take a byte. IDOf is the inverse, noID for a block that no
	// page leads to. Both are empty with DispatchTree.
	IDs  []uint32
	IDOf []uint32
}

// Dispatch says how the code finds the row block of a pc.
type Dispatch uint8

const (
	// DispatchTree compares a page's keys by a tree of machine instructions.
	DispatchTree Dispatch = iota
	// DispatchPacked keeps a page's keys and the ids of its targets as data, compared 16 at a time.
	DispatchPacked
)

// PackedKeys is the largest number of keys that a page has with DispatchPacked.
const PackedKeys = 238

// noID stands for no id in Plan.IDOf.
const noID = ^uint32(0)

// maxShortID is the highest id that fits a page's short form.
const maxShortID = 255

func (d Dispatch) String() string {
	if d == DispatchPacked {
		return "packed"
	}
	return "tree"
}

// ParseDispatch is the inverse of String.
func ParseDispatch(s string) (Dispatch, error) {
	for _, d := range []Dispatch{DispatchTree, DispatchPacked} {
		if s == d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown dispatch %q: want tree or packed", s)
}

// Tree is a distinct page. Keys[i] is the low byte at which
// Targets[i+1] begins to hold; Targets[0] holds from the page's start.
type Tree struct {
	Keys    []uint8  // ascending
	Targets []uint32 // block numbers; one more than Keys; neighbours differ
	Nodes   []Node   // of the decision tree, Nodes[0] the root; empty if there are no Keys, and with DispatchPacked
}

// Node sends low bytes below Key to Left, others to Right.
type Node struct {
	Key         uint8
	LeftNext    bool // Left, the heavier side, follows in the code, and Right is branched to
	Left, Right Child
}

// Child is a node (its number) or, negative, a leaf: the complement of an index
// into Targets.
type Child int32

// Leaf returns the index into Targets and whether c is a leaf.
func (c Child) Leaf() (int, bool) { return int(^c), c < 0 }

// BlockKind says what a row becomes.
type BlockKind uint8

const (
	// BlockStop ends the walk with Status.
	BlockStop BlockKind = iota
	// BlockFast computes the CFA from Base and Offset and continues in Tail.
	BlockFast
	// BlockSlow leaves the row to the slow path, on all registers in memory.
	BlockSlow
)

// Block is the code of one row of the table.
type Block struct {
	Kind   BlockKind
	Status int16  // BlockStop: abi.Status
	Base   uint8  // BlockFast: abi.RSP or abi.RBP
	Offset int32  // BlockFast: the CFA is Base + Offset
	Tail   uint32 // BlockFast: index into Plan.Tails
	Row    uint32 // BlockFast, BlockSlow: index into Table.Rows
}

// FastRegs are the registers that a Tail restores, by DWARF number: the
// callee-saved ones (psABI figure 3.4) without rsp.
var FastRegs = [NumFast]uint8{3, 6, 12, 13, 14, 15}

// NumFast is the number of FastRegs.
const NumFast = 6

// Tail restores registers from below the CFA once the CFA is known. Offsets are
// relative to the CFA, in bytes, at most -8; 0 means the register keeps its value.
type Tail struct {
	// Depth is 0 if every slot lies between the frame's rsp and the CFA, so
	// that only the CFA is compared with the window. Otherwise slots reach down
	// to CFA-Depth, which is compared, too.
	Depth int32
	// Base is the register that the CFA was computed from, abi.RSP or abi.RBP.
	Base  uint8
	RA    int32
	Saves [NumFast]int32
}
