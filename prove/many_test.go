package prove

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// What the long run is asked for by.
const (
	// N: the number of random mutants of each of PROVE_FILES; bits: every bit of five small images
	mutantsEnv = "PROVE_MUTANTS"
	fromEnv    = "PROVE_FROM"    // the number of the first one: mutants are numbered, for runs in pieces
	timeEnv    = "PROVE_TIME"    // no mutant is begun after that
	variantEnv = "PROVE_VARIANT" // how the files are compiled; by default as trees, and libstdc++ packed
	sampledEnv = "PROVE_SAMPLED" // how many of each file's mutants of code and data are also run at samples of states
)

// TestManyMutants proves mutants. The accepted ones are judged, and written to
// PROVE_ACCEPTED.
func TestManyMutants(t *testing.T) {
	n := os.Getenv(mutantsEnv)
	if n == "" {
		return // make prove-mutants
	}
	out, err := os.OpenFile(os.Getenv("PROVE_ACCEPTED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer out.Close()
	debug.SetGCPercent(400)
	until := time.Now().Add(1000 * time.Hour)
	if d := os.Getenv(timeEnv); d != "" {
		limit, err := time.ParseDuration(d)
		require.NoError(t, err)
		until = time.Now().Add(limit)
	}
	if n == "bits" {
		for _, v := range variants() {
			if v.name == "relro" {
				continue
			}
			s := newSubject(t, v.name, small(), v, out)
			s.tryAll(until, 8*len(s.image), func(bit int) mutant {
				return mutant{{bit / 8, []byte{s.image[bit/8] ^ 1<<(bit%8)}}}
			})
			s.print()
		}
		return
	}
	count, err := strconv.Atoi(n)
	require.NoError(t, err)
	var subjects []*subject
	for _, path := range strings.Fields(os.Getenv("PROVE_FILES")) {
		v := variants()[0]
		if strings.Contains(path, "libstdc++") {
			v = variants()[1]
		}
		if name := os.Getenv(variantEnv); name != "" {
			i := slices.IndexFunc(variants(), func(v variant) bool { return v.name == name })
			require.GreaterOrEqual(t, i, 0, "no variant %q", name)
			v = variants()[i]
		}
		s := newSubject(t, path+" "+v.name, tableOf(t, path), v, out)
		s.sampled.Store(envInt(t, sampledEnv))
		subjects = append(subjects, s)
	}
	// The files take turns, so that a run that is ended has gone through all of them.
	const piece = 5000
	first := int(envInt(t, fromEnv))
	for done := 0; done < count && time.Now().Before(until); done += piece {
		for _, s := range subjects {
			s.tryAll(until, min(piece, count-done), func(i int) mutant { return s.random(first + done + i) })
			s.print()
		}
	}
}

func envInt(t *testing.T, name string) int64 {
	if os.Getenv(name) == "" {
		return 0
	}
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	require.NoError(t, err)
	return n
}

// mutant puts bytes at places of an image.
type mutant []struct {
	offset int
	b      []byte
}

func (m mutant) apply(to []byte) {
	for _, p := range m {
		copy(to[p.offset:], p.b)
	}
}

func (m mutant) undo(to, from []byte) {
	for _, p := range m {
		copy(to[p.offset:], from[p.offset:p.offset+len(p.b)])
	}
}

// subject is an image whose mutants are tried.
type subject struct {
	t       *testing.T
	name    string
	image   []byte
	table   *dwarfcfa.Table
	parts   []area // by section
	areas   []area // finer
	entries area   // the table of pages
	out     *os.File
	inst    []uint8      // by place: how long the instruction is that the proof has taken there
	unread  []bool       // bytes of text and data that the proof does not go by
	sampled atomic.Int64 // how many are still to be run, too
	jury    *jury

	mu       sync.Mutex
	verdicts map[string]int
	results  map[string]*tally
	took     time.Duration
	judging  time.Duration // of all processors
	wrong    int
}

// tally counts what became of the mutants of an area.
type tally struct{ tried, refused, run, runPassed, runRefusedOnly int }

// newSubject compiles a table and finds the areas of the image: by section, and in code
// and data by what the emitter's marks say.
func newSubject(t *testing.T, name string, table *dwarfcfa.Table, v variant, out *os.File) *subject {
	v.src.Bare = false // areas, and what is accepted, are judged by sections
	p, err := plan.Build(table, v.plan)
	require.NoError(t, err)
	code, err := asmgen.Assemble(p, v.asm)
	require.NoError(t, err)
	image, err := elfout.New(code, v.src)
	require.NoError(t, err)
	s := &subject{t: t, name: name, image: image.Bytes(), table: table, out: out, verdicts: map[string]int{},
		results: map[string]*tally{}}
	s.parts = areas(t, s.image)
	s.findUnread()
	s.jury = newJury(t, s.name, s.image, s.table)
	s.jury.inst, s.jury.unread = s.inst, s.unread
	for _, a := range s.parts {
		switch a.name {
		case ".text":
			s.areas = append(s.areas, textAreas(code, a)...)
		case ".rodata":
			end := a.from
			for _, seg := range p.Segments {
				end += 4 * len(seg.Table)
			}
			s.entries = area{"page table", a.from, end}
			s.areas = append(s.areas, s.entries)
			if end < a.to {
				s.areas = append(s.areas, area{"descriptors and records", end, a.to})
			}
		default:
			s.areas = append(s.areas, a)
		}
	}
	return s
}

// findUnread proves the image, noting what the proof goes by, and then with all else of
// text and data overwritten. That these are also run at every pc judges every mutant of
// bytes that are not read.
func (s *subject) findUnread() {
	im, err := openImage(s.image)
	require.NoError(s.t, err)
	p := newProver(im, s.table)
	s.unread, s.inst = make([]bool, len(s.image)), make([]uint8, len(s.image))
	for _, a := range s.parts {
		for off := a.from; off < a.to && (a.name == ".text" || a.name == ".rodata"); off++ {
			s.unread[off] = true
		}
	}
	im.cover = func(addr, n uint64) {
		if addr >= im.exec.Vaddr {
			addr -= im.exec.Vaddr - im.exec.Off
			s.inst[addr] = uint8(n)
		}
		for pos := addr; pos < min(addr+n, uint64(len(s.unread))); pos++ {
			s.unread[pos] = false
		}
	}
	p.x.cover = im.cover
	require.NoError(s.t, p.prove())
	rng := rand.New(rand.NewPCG(8, 9))
	for _, fill := range []func() byte{func() byte { return 0xcc }, func() byte { return 0x90 },
		func() byte { return byte(rng.Uint32()) }} {
		other := bytes.Clone(s.image)
		count := 0
		for i, unread := range s.unread {
			if unread {
				other[i] = fill()
				count++
			}
		}
		_, err := Image(other, s.table)
		require.NoError(s.t, err)
		j := newJury(s.t, s.name, other, s.table)
		require.NoError(s.t, j.run(other, true))
		j.close()
		s.t.Logf("%s: %d bytes of text and data are not read; overwritten at once, it runs as the table says at every pc",
			s.name, count)
	}
}

// textAreas cuts the text at the marks: shared code, rows, trees, expressions.
func textAreas(code *asmgen.Code, text area) (list []area) {
	kindOf := func(name string) string {
		switch {
		case strings.HasPrefix(name, "block_"), strings.HasPrefix(name, "tail_"):
			return "rows"
		case strings.HasPrefix(name, "tree_"):
			return "trees"
		case strings.HasPrefix(name, "expression_"):
			return "expressions"
		}
		return "shared code"
	}
	add := func(kind string, from, to int) {
		if n := len(list); n > 0 && list[n-1].name == kind {
			list[n-1].to = to
		} else if from < to {
			list = append(list, area{kind, from, to})
		}
	}
	kind, off := "shared code", text.from
	for _, m := range slices.SortedStableFunc(slices.Values(code.Marks),
		func(a, b asmgen.Mark) int { return cmp.Compare(a.Off, b.Off) }) {
		next := text.from + int(m.Off)
		add(kind, off, next)
		kind, off = kindOf(m.Name), next
	}
	add(kind, off, text.to)
	return list
}

// areaOf returns the area of a place.
func areaOf(list []area, off int) string {
	for _, a := range list {
		if off >= a.from && off < a.to {
			return a.name
		}
	}
	return "between sections"
}

// random returns a mutant of one or two bytes at a place of an area, each area as likely as
// another; or swaps two entries of the table of pages.
func (s *subject) random(i int) mutant {
	rng := rand.New(rand.NewPCG(uint64(len(s.image)), uint64(i)))
	names := map[string][]area{}
	for _, a := range s.areas {
		names[a.name] = append(names[a.name], a)
	}
	kinds := append(slices.Sorted(maps.Keys(names)), "entries swapped")
	for {
		kind := kinds[rng.IntN(len(kinds))]
		var m mutant
		if kind == "entries swapped" {
			a, b := s.entries.from+4*rng.IntN((s.entries.to-s.entries.from)/4),
				s.entries.from+4*rng.IntN((s.entries.to-s.entries.from)/4)
			m = mutant{{a, bytes.Clone(s.image[b : b+4])}, {b, bytes.Clone(s.image[a : a+4])}}
		} else {
			size := 0
			for _, a := range names[kind] {
				size += a.to - a.from
			}
			off := rng.IntN(size)
			for _, a := range names[kind] {
				if off < a.to-a.from {
					place := a.from + off
					b := make([]byte, min(1+rng.IntN(2), a.to-place))
					for k := range b {
						b[k] = byte(rng.Uint32())
					}
					m = mutant{{place, b}}
					break
				}
				off -= a.to - a.from
			}
		}
		for _, p := range m {
			if !bytes.Equal(s.image[p.offset:p.offset+len(p.b)], p.b) {
				return m
			}
		}
	}
}

// tryAll proves mutants on all processors and judges what is accepted.
func (s *subject) tryAll(until time.Time, count int, of func(i int) mutant) {
	begin := time.Now()
	var next, judging atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			own := bytes.Clone(s.image)
			for time.Now().Before(until) {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				m := of(i)
				m.apply(own)
				_, err := Image(own, s.table)
				m.undo(own, s.image)
				from := time.Now()
				s.note(m, err)
				judging.Add(int64(time.Since(from)))
			}
		})
	}
	wg.Wait()
	s.took += time.Since(begin)
	s.judging += time.Duration(judging.Load())
}

// print says what became of the mutants so far, by area.
func (s *subject) print() {
	total := tally{}
	for _, name := range slices.Sorted(maps.Keys(s.results)) {
		r := s.results[name]
		fmt.Printf("%s: %-24s %8d mutants, %8d refused, %6d accepted", s.name, name, r.tried, r.refused,
			r.tried-r.refused)
		if r.run > 0 {
			fmt.Printf("; %d of them run at samples, %d let pass, %d of these refused by the proof", r.run,
				r.runPassed, r.runRefusedOnly)
		}
		fmt.Println()
		total.tried += r.tried
		total.refused += r.refused
	}
	for _, v := range slices.Sorted(maps.Keys(s.verdicts)) {
		fmt.Printf("%s: accepted: %s: %d\n", s.name, v, s.verdicts[v])
	}
	fmt.Printf("%s: so far %d mutants, %d refused, %d wrong, %v, %v of it judging\n", s.name, total.tried,
		total.refused, s.wrong,
		s.took.Round(time.Second), s.judging.Round(time.Second))
}

func (s *subject) isUnread(m mutant) bool {
	for _, p := range m {
		for i := range p.b {
			if !s.unread[p.offset+i] && s.image[p.offset+i] != p.b[i] {
				return false
			}
		}
	}
	return true
}

// note judges a mutant that was accepted and counts it.
func (s *subject) note(m mutant, refused error) {
	j := s.jury
	name := areaOf(s.areas, m[0].offset)
	if len(m) > 1 {
		name = "entries swapped"
	}
	part := areaOf(s.parts, m[0].offset)
	var verdict string
	var wrong error
	switch {
	case refused == nil && s.isUnread(m):
		verdict = part + ": bytes that are not read"
	case refused == nil:
		verdict, wrong = j.judge(part, m)
	}
	run, passed := false, false
	if (part == ".text" || part == ".rodata") && s.sampled.Add(-1) >= 0 {
		mutated := bytes.Clone(s.image)
		m.apply(mutated)
		run, passed = true, j.run(mutated, false) == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.results[name]
	if r == nil {
		r = &tally{}
		s.results[name] = r
	}
	r.tried++
	if run {
		r.run++
		if passed {
			r.runPassed++
			if refused != nil {
				r.runRefusedOnly++
			}
		}
	}
	if refused != nil {
		r.refused++
		return
	}
	if !s.isUnread(m) {
		fmt.Fprintf(s.out, "%s %s %v: %s, wrong: %v\n", s.name, name, m, verdict, wrong)
	}
	s.verdicts[verdict]++
	if wrong != nil {
		s.wrong++
		s.t.Errorf("%s: accepted, and wrong: %v: %v", s.name, m, wrong)
	}
}
