package sites

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/lsda"
)

// This file makes the table from FDEs and LSDAs. What it cannot decide, a throw asks of the personality routine (Ask),
// or leaves to libgcc (HandOver): no frame that might catch is passed over.

// Addr is a link-time address of the object.
type Addr = dwarfcfa.Addr

// Kind is the action of an unwinder in a frame whose pc lies in a site, if the personality routine is one of libstdc++,
// libc++abi or libgcc. Only HandOver is for others, too: which routine it is, is known at run time alone.
type Kind uint8

const (
	Skip          Kind = iota // passes over it
	Cleanup                   // enters the pad in the second phase, with selector 0
	Action                    // the personality routine decides by type; there is no cleanup
	ActionCleanup             // the same, but the pad is a cleanup for other types
	HandOver                  // another unwinder must do it
	Ask                       // calls the personality routine in each phase; also for each pc in no site
)

func (k Kind) String() string {
	if int(k) < len(kindNames()) {
		return kindNames()[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// kindNames are the names in dumps, by Kind.
func kindNames() []string {
	return []string{"skip", "cleanup", "action", "action+cleanup", "hand-over", "ask"}
}

// HasPad reports whether sites of the kind have a landing pad.
func (k Kind) HasPad() bool { return k == Cleanup || k == Action || k == ActionCleanup }

// Site is a range of pcs of calls, [Start, End).
type Site struct {
	Start, End Addr
	Kind       Kind
	Pad        Addr // Kind.HasPad: inside the function
	// Kind.HasPad and Ask: bytes of arguments that are popped before the pad, a multiple of 8, at most MaxArgs
	Args uint64
}

// MaxArgs is the largest Site.Args that a table can hold. They are from DW_CFA_GNU_args_size: bytes pushed for a call,
// which the pad's code does not expect on the stack.
const MaxArgs = 8 * (1<<16 - 1)

// Function is the range of an FDE that exceptions do not simply pass through.
type Function struct {
	Start, End  Addr // [Start, End): the FDE's, up to the next FDE
	Personality int  // index in Table.Personalities; -1: there is none, and all of it is HandOver
	LSDA        Addr // 0: none
	Sites       []Site
}

// Personality is a personality routine that FDEs name.
type Personality struct {
	Addr     Addr // of the routine, or of its pointer
	Indirect bool // Addr is the address of its pointer
}

// Table is the table of an object. Functions ascend and are disjoint, and so
// are the sites of each.
type Table struct {
	Personalities []Personality
	Functions     []Function
}

// LSDAs yields the addresses of the areas that the functions of t have. t may be nil.
func (t *Table) LSDAs() iter.Seq[Addr] {
	return func(yield func(Addr) bool) {
		for i := 0; t != nil && i < len(t.Functions); i++ {
			if f := &t.Functions[i]; f.LSDA != 0 && !yield(f.LSDA) {
				return
			}
		}
	}
}

// Report counts functions that could not be decoded, with reasons.
type Report struct {
	// functions whose exception table cannot be read: the personality routine, or another unwinder, does it
	BadLSDAs int
	Details  []error // one for each of the first maxDetails
}

// Bounds: of the details of a report, and of routines in a table. Objects have one to three
// routines.
const (
	maxDetails       = 100
	maxPersonalities = 250
) // functions with further ones are handed over

// Build makes the table of an object. sections are those that its rows come from; exceptions use only .eh_frame. A bad
// LSDA is no error, but counts in the Report; its function asks.
func Build(o *dwarfcfa.File, sections []*dwarfcfa.Section) (*Table, *Report) {
	b := builder{o: o, r: lsda.NewReader(o), index: make(map[Personality]int), rep: &Report{}, t: &Table{}}
	all, lost := functions(sections)
	for _, x := range all {
		if x.fde != nil {
			b.add(x)
		}
	}
	var rest []extent
	for _, s := range sections { // rows of .debug_frame are no use to an exception: there it finds no FDE
		if s.Source() == dwarfcfa.SourceDebugFrame {
			rest, _ = extents(s)
		}
	}
	if lost { // an FDE that cannot be read may be of any code; that may have rows from elsewhere
		rest = nil
		for start, end := range o.Code() {
			rest = append(rest, extent{start: start, end: end})
		}
	}
	b.handOver(rest, all)
	slices.SortFunc(b.t.Functions, func(a, c Function) int { return cmp.Compare(a.Start, c.Start) })
	return b.t, b.rep
}

// extent is the range of an FDE; fde is nil if it has no personality routine.
type extent struct {
	start, end Addr
	offset     uint64 // of the FDE in its section
	fde        *dwarfcfa.FDE
}

// functions returns the FDEs that exceptions use, ascending and disjoint. Those without a personality bound the ranges
// of the others. lost reports whether there are FDEs that cannot be read.
func functions(sections []*dwarfcfa.Section) (all []extent, lost bool) {
	for _, s := range sections {
		if s.Source() != dwarfcfa.SourceEHFrame {
			continue
		}
		found, bad := extents(s)
		lost = lost || bad
		for _, x := range found {
			if n := len(all); n > 0 && all[n-1].start == x.start { // of equal starts one counts, as for rows
				if offset, ok := s.Named(x.start); ok && offset == x.offset {
					all[n-1] = x
				}
				continue
			}
			all = append(all, x)
		}
	}
	for i := range len(all) - 1 { // a function ends where the next begins, as a search by start addresses has it
		all[i].end = min(all[i].end, all[i+1].start)
	}
	return all, lost
}

// extents returns the FDEs of a section that cover code, ascending by their starts.
func extents(s *dwarfcfa.Section) (all []extent, lost bool) {
	for e, err := range s.Entries() {
		lost = lost || err != nil && !e.IsCIE
		if err != nil || e.FDE == nil || e.FDE.Start == e.FDE.End {
			continue
		}
		x := extent{start: e.FDE.Start, end: e.FDE.End, offset: e.Offset}
		if e.FDE.CIE.PersonalityEncoding != dwarfcfa.PEOmit {
			f := *e.FDE
			x.fde = &f
		}
		all = append(all, x)
	}
	slices.SortStableFunc(all, func(a, c extent) int { return cmp.Compare(a.start, c.start) })
	return all, lost
}

// builder makes the table of one object.
type builder struct {
	o     *dwarfcfa.File
	r     *lsda.Reader
	t     *Table
	rep   *Report
	index map[Personality]int // of t.Personalities
}

// personality returns the number of a CIE's personality routine in the table; -1 if it cannot be called. A direct
// address outside of the object's code is what a relocation fills in; the file does not say with what.
func (b *builder) personality(c *dwarfcfa.CIE) int {
	p := Personality{Addr: c.Personality, Indirect: c.PersonalityIndirect}
	i, ok := b.index[p]
	if !ok {
		if len(b.t.Personalities) == maxPersonalities || !p.Indirect && !b.isCode(p.Addr) {
			return -1
		}
		i = len(b.t.Personalities)
		b.index[p] = i
		b.t.Personalities = append(b.t.Personalities, p)
	}
	return i
}

// add makes the function of an FDE with a personality routine.
func (b *builder) add(x extent) {
	f := Function{Start: x.start, End: x.end, Personality: b.personality(x.fde.CIE)}
	// Another unwinder must do all of it: it knows where the area is.
	if unknown := x.fde.HasLSDA && x.fde.LSDA == 0; unknown || f.Personality < 0 {
		if unknown {
			_, err := b.r.Table(x.fde)
			b.bad(err)
		}
		f.Personality = -1
		b.t.Functions = append(b.t.Functions, f)
		return
	}
	f.LSDA = x.fde.LSDA
	var err error
	if f.Sites, err = b.sites(x); err != nil {
		b.bad(err)
		f.Sites = b.asks(x)
	}
	b.t.Functions = append(b.t.Functions, f)
}

// isCode reports whether the object has code at an address.
func (b *builder) isCode(a Addr) bool {
	for start, end := range b.o.Code() {
		if a >= start && a < end {
			return true
		}
	}
	return false
}

// bad counts a function whose tables cannot be read.
func (b *builder) bad(err error) {
	b.rep.BadLSDAs++
	if len(b.rep.Details) < maxDetails {
		b.rep.Details = append(b.rep.Details, err)
	}
}

// asks returns the sites of a function all of which is Ask: those with arguments on the stack.
func (b *builder) asks(x extent) []Site {
	args, err := x.fde.ArgsSizes()
	if err != nil {
		return []Site{{Start: x.start, End: x.end, Kind: HandOver}}
	}
	var sites []Site
	for s := range withArgs(Site{Start: x.start, End: x.end, Kind: Ask}, args) {
		if s.Kind != Ask || s.Args != 0 {
			sites = append(sites, s)
		}
	}
	return sites
}

// sites returns the call sites of a function. Without an area it is one site without a pad.
func (b *builder) sites(x extent) ([]Site, error) {
	table, err := b.r.Table(x.fde)
	if err != nil {
		return nil, err
	}
	args, err := x.fde.ArgsSizes()
	if err != nil {
		return nil, err
	}
	ranges := []lsda.Site{{Start: x.start, End: x.end}}
	if table != nil {
		ranges = table.Effective()
	}
	var sites []Site
	for _, s := range ranges {
		site := Site{Start: s.Start, End: min(s.End, x.end), Kind: Skip}
		if site.Start >= site.End {
			continue
		}
		if s.Pad != 0 {
			site.Pad = s.Pad
			switch {
			// A pad elsewhere, such as a cold part of the function, is left to the routine.
			case s.Pad < x.start || s.Pad >= x.end:
				site.Kind, site.Pad = Ask, 0
			case s.Action == 0:
				site.Kind = Cleanup
			default:
				if site.Kind = actionKind(table, s); !site.Kind.HasPad() {
					site.Pad = 0
				}
			}
		}
		for piece := range withArgs(site, args) {
			sites = join(sites, piece)
		}
	}
	return sites, nil
}

// join adds a site, or makes the last one longer if it says the same.
func join(sites []Site, s Site) []Site {
	if n := len(sites); n > 0 && sites[n-1].End == s.Start {
		if last := &sites[n-1]; last.Kind == s.Kind && last.Pad == s.Pad && last.Args == s.Args {
			last.End = s.End
			return sites
		}
	}
	return append(sites, s)
}

// actionKind looks at the actions of a site.
func actionKind(t *lsda.Table, s lsda.Site) Kind {
	chain, err := t.Chain(s)
	if err != nil {
		return Ask
	}
	kind := Action
	for _, filter := range chain {
		switch {
		case filter < 0:
			return Ask // an exception specification
		case filter == 0:
			kind = ActionCleanup
		}
	}
	// Only a cleanup: no type has to be compared.
	if kind == ActionCleanup && len(chain) == 1 {
		return Cleanup
	}
	return kind
}

// withArgs yields the site in pieces, cut where the arguments on the stack change. A routine that does not
// pass over a Skip as all known ones do is asked where there are some.
func withArgs(s Site, args []dwarfcfa.ArgsSize) iter.Seq[Site] {
	return func(yield func(Site) bool) {
		if s.Kind == HandOver {
			yield(s)
			return
		}
		i, size := 0, uint64(0)
		for addr := s.Start; addr < s.End; {
			for ; i < len(args) && args[i].Start <= addr; i++ {
				size = args[i].Size
			}
			end := s.End
			if i < len(args) {
				end = min(end, args[i].Start)
			}
			piece := Site{Start: addr, End: end, Kind: s.Kind, Pad: s.Pad, Args: size}
			if piece.Kind == Skip && size != 0 {
				piece.Kind = Ask
			}
			// Such arguments do not fit the table.
			if size%8 != 0 || size > MaxArgs {
				piece.Kind, piece.Pad, piece.Args = HandOver, 0, 0
			}
			if !yield(piece) {
				return
			}
			addr = end
		}
	}
}

// handOver adds the code of list, which ascends, that .eh_frame does not cover: an
// exception finds the end of the stack there, while a walk goes on.
func (b *builder) handOver(list, covered []extent) {
	var addr Addr // all below is done
	add := func(start, end Addr) {
		if start < end {
			b.t.Functions = append(b.t.Functions, Function{Start: start, End: end, Personality: -1})
		}
	}
	next := 0
	for _, d := range list {
		start := max(d.start, addr)
		for next > 0 && covered[next-1].end > start {
			next--
		}
		for ; next < len(covered) && covered[next].start < d.end; next++ {
			if covered[next].end > start {
				add(start, covered[next].start)
				start = max(start, covered[next].end)
			}
		}
		add(start, d.end)
		addr = max(addr, d.end)
	}
}
