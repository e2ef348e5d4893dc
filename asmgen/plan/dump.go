package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Lookup returns the number of the block that a pc leads to.
func (p *Plan) Lookup(pc dwarfcfa.Addr) uint32 {
	if pc < p.Base || pc >= p.High {
		return 0
	}
	// A pc in the object, so some segment has it.
	s := p.SegmentOf(pc)
	if s.Table == nil {
		return s.Block
	}
	return p.Trees[p.TreeOf(s, pc)].lookup(uint8(pc - p.Base))
}

// lookup does what the code does: it follows the nodes, or counts keys.
func (t *Tree) lookup(low uint8) uint32 {
	// Trees without nodes: packed, or a page of one range.
	if len(t.Nodes) == 0 {
		n := 0
		for n < len(t.Keys) && t.Keys[n] <= low {
			n++
		}
		return t.Targets[n]
	}
	// The root is node 0.
	child := Child(0)
	for {
		leaf, ok := child.Leaf()
		if ok {
			return t.Targets[leaf]
		}
		if n := t.Nodes[child]; low < n.Key {
			child = n.Left
		} else {
			child = n.Right
		}
	}
}

// BlockInfo is a block for dumps.
type BlockInfo struct {
	Block int    `json:"block"`
	Kind  string `json:"kind"` // stop, fast or slow
	Text  string `json:"text"`
	Tail  *int   `json:"tail,omitempty"`
}

// PageInfo is a page for dumps, or a segment without a table.
type PageInfo struct {
	Page   string     `json:"page"`            // address of its first byte
	Until  string     `json:"until,omitempty"` // a segment without a table: address of its end
	Tree   uint32     `json:"tree"`            // 0 for a segment without a table
	Ranges []LeafInfo `json:"ranges"`
}

// LeafInfo says from where a row block holds in a page, and how many
// comparisons lead to it.
type LeafInfo struct {
	Start       string `json:"start"`
	Block       uint32 `json:"block"`
	Comparisons int    `json:"comparisons"` // 0 with DispatchPacked
}

// Info is a plan for dumps.
type Info struct {
	Blocks []BlockInfo `json:"blocks"`
	Tails  []string    `json:"tails"`
	Pages  []PageInfo  `json:"pages"`
}

// Describe returns the plan, or the parts for one pc.
func (p *Plan) Describe(pc *dwarfcfa.Addr) Info {
	info := Info{Blocks: []BlockInfo{}, Tails: []string{}, Pages: []PageInfo{}}
	// The block of the pc; pages and tails are chosen by it.
	only := uint32(0)
	if pc != nil {
		only = p.Lookup(*pc)
	}
	for i := range p.Blocks {
		if pc != nil && uint32(i) != only {
			continue
		}
		b := &p.Blocks[i]
		bi := BlockInfo{Block: i, Kind: "stop", Text: abi.Status(b.Status).String()}
		if b.Kind != BlockStop {
			bi.Kind, bi.Text = "slow", p.Table.RowText(b.Row)
		}
		if b.Kind == BlockFast {
			tail := int(b.Tail)
			bi.Kind, bi.Tail = "fast", &tail
		}
		info.Blocks = append(info.Blocks, bi)
	}
	for i := range p.Tails {
		if pc == nil || info.Blocks[0].Tail != nil && *info.Blocks[0].Tail == i {
			info.Tails = append(info.Tails, fmt.Sprintf("tail %d: %s", i, p.Tails[i].String()))
		}
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		start := p.Base + dwarfcfa.Addr(s.First)<<p.PageBits
		// A segment without a table is one entry.
		if end := start + dwarfcfa.Addr(s.Pages)<<p.PageBits; s.Table == nil && (pc == nil || *pc >= start && *pc < end) {
			text := fmt.Sprintf("%#x", uint64(start))
			info.Pages = append(info.Pages, PageInfo{Page: text, Until: fmt.Sprintf("%#x", uint64(end)),
				Ranges: []LeafInfo{{Start: text, Block: s.Block}}})
		}
		// A page of a table: start moves with it.
		for _, tree := range s.Table {
			if pc == nil || *pc >= start && *pc-start < 1<<p.PageBits {
				info.Pages = append(info.Pages, p.page(start, tree))
			}
			start += 1 << p.PageBits
		}
	}
	return info
}

// page describes a page that begins at start.
func (p *Plan) page(start dwarfcfa.Addr, tree uint32) PageInfo {
	t := &p.Trees[tree]
	out := PageInfo{Page: fmt.Sprintf("%#x", uint64(start)), Tree: tree}
	depths := make([]int, len(t.Targets))
	// down sets the number of comparisons from the root to each leaf.
	var down func(c Child, depth int)
	down = func(c Child, depth int) {
		if leaf, ok := c.Leaf(); ok {
			depths[leaf] = depth
			return
		}
		down(t.Nodes[c].Left, depth+1)
		down(t.Nodes[c].Right, depth+1)
	}
	if len(t.Nodes) > 0 {
		down(0, 0)
	}
	for i, target := range t.Targets {
		addr := start
		// Keys are low bytes of addresses in the page; the first range begins with the page.
		if i > 0 {
			addr = addr&^(PageSize-1) + dwarfcfa.Addr(t.Keys[i-1])
		}
		out.Ranges = append(out.Ranges, LeafInfo{fmt.Sprintf("%#x", uint64(addr)), target, depths[i]})
	}
	return out
}

// String renders a tail as rules.
func (t *Tail) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s: rip=[c%+d]", abi.RegName(int(t.Base)), t.RA)
	for i, off := range t.Saves {
		if off != 0 {
			fmt.Fprintf(&b, " %s=[c%+d]", abi.RegName(int(FastRegs[i])), off)
		}
	}
	if t.Depth > 0 {
		fmt.Fprintf(&b, ", window checked from c%+d", -t.Depth)
	}
	return b.String()
}

// Dump writes the plan as text, or the parts for one pc.
func (p *Plan) Dump(w io.Writer, pc *dwarfcfa.Addr) error {
	info := p.Describe(pc)
	out := bufio.NewWriter(w)
	for _, b := range info.Blocks {
		fmt.Fprintf(out, "block %d: %s: %s", b.Block, b.Kind, b.Text)
		if b.Tail != nil {
			fmt.Fprintf(out, ", tail %d", *b.Tail)
		}
		fmt.Fprintln(out)
	}
	for _, t := range info.Tails {
		fmt.Fprintln(out, t)
	}
	for _, page := range info.Pages {
		if page.Until != "" {
			fmt.Fprintf(out, "pages %s to %s, not in the table: block %d\n", page.Page, page.Until, page.Ranges[0].Block)
			continue
		}
		fmt.Fprintf(out, "page %s: tree %d\n", page.Page, page.Tree)
		for _, r := range page.Ranges {
			if fmt.Fprintf(out, "  %s: block %d", r.Start, r.Block); p.Dispatch == DispatchTree {
				fmt.Fprintf(out, " after %d comparisons", r.Comparisons)
			}
			fmt.Fprintln(out)
		}
	}
	return out.Flush()
}
