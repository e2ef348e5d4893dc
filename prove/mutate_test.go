package prove

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/rowtest"
)

// area is a stretch of a file that mutants are drawn from.
type area struct {
	name     string
	from, to int
}

// areas are the parts of an image as its section headers have them.
func areas(t testing.TB, image []byte) []area {
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	list := []area{{"headers", 0, 64 + 56*len(f.Progs)}}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			list = append(list, area{s.Name, int(s.Offset), int(s.Offset + s.Size)})
		}
	}
	return list
}

// small are tables of few rows: the fast path, the slow path, and expressions.
func small() *dwarfcfa.Table {
	rbp := rowtest.Row(abi.RBP, 16, abi.RBP)
	slow := rowtest.Row(abi.RBX, 32, abi.R12)
	expr := rowtest.Row(abi.RSP, 16)
	expr.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1}
	return &dwarfcfa.Table{
		Exprs: []dwarfcfa.Expr{{}, {Ops: []dwarfcfa.ExprOp{
			{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: 8}, {Code: dwarfcfa.OpReg, Reg: abi.RIP}, {Code: dwarfcfa.OpConst, Arg: 15}, {Code: dwarfcfa.OpAnd},
			{Code: dwarfcfa.OpConst, Arg: 11}, {Code: dwarfcfa.OpGe}, {Code: dwarfcfa.OpConst, Arg: 3}, {Code: dwarfcfa.OpShl}, {Code: dwarfcfa.OpPlus},
		}}},
		Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rbp, slow, expr},
		Ranges: []dwarfcfa.Range{
			{Start: 0x1000, End: 0x1004, Row: 0}, {Start: 0x1004, End: 0x1080, Row: 1}, {Start: 0x1080, End: 0x10f0, Row: 0},
			{Start: 0x1110, End: 0x1310, Row: 2}, {Start: 0x1310, End: 0x1320, Row: 3},
		},
	}
}

// TestMutantsOfCode proves mutants of the code and data of a small file: a byte of each
// 97 bits. TestEveryBit, which is longer, tries all. An accepted mutant of the text must
// differ in a byte that no path reaches.
func TestMutantsOfCode(t *testing.T) {
	table := small()
	for _, v := range variants() {
		image := compile(t, table, v)
		_, err := Image(image, table)
		require.NoError(t, err)
		accepted := 0
		total := 0
		for _, a := range areas(t, image) {
			if a.name != ".text" && a.name != ".rodata" {
				continue
			}
			for bit := 8 * a.from; bit < 8*a.to; bit += 97 {
				total++
				image[bit/8] ^= 1 << (bit % 8)
				if _, err := Image(image, table); err == nil {
					accepted++
				}
				image[bit/8] ^= 1 << (bit % 8)
			}
		}
		t.Logf("%s: %d of %d accepted", v.name, accepted, total)
		require.Less(t, accepted, total/10, v.name)
	}
}

// mutantsEnv asks for the long run: PROVE_MUTANTS=N tries N random mutants of each
// file named in PROVE_FILES, PROVE_MUTANTS=bits every bit of three small images.
// Accepted mutants are written to PROVE_ACCEPTED for judging by running them.
const mutantsEnv = "PROVE_MUTANTS"

func TestManyMutants(t *testing.T) {
	n := os.Getenv(mutantsEnv)
	if n == "" {
		return // make prove-mutants
	}
	out, err := os.Create(os.Getenv("PROVE_ACCEPTED"))
	require.NoError(t, err)
	defer out.Close()
	if n == "bits" {
		for _, v := range variants()[:3] {
			image := compile(t, small(), v)
			var list []mutant
			for bit := range 8 * len(image) {
				list = append(list, mutant{at: bit / 8, b: []byte{image[bit/8] ^ 1<<(bit%8)}})
			}
			judge(t, v.name, image, small(), list, out)
		}
		return
	}
	count, err := strconv.Atoi(n)
	require.NoError(t, err)
	for _, path := range strings.Fields(os.Getenv("PROVE_FILES")) {
		v := variants()[0]
		if strings.Contains(path, "libstdc++") {
			v = variant{name: "packed", plan: plan.Options{Dispatch: plan.DispatchPacked}, src: v.src}
		}
		table := tableOf(t, path)
		image := compile(t, table, v)
		rng := rand.New(rand.NewPCG(uint64(len(image)), 7))
		list := make([]mutant, count)
		parts := areas(t, image)
		for i := range list {
			a := parts[rng.IntN(len(parts))]
			m := mutant{at: a.from + rng.IntN(a.to-a.from)}
			for k := range 1 + rng.IntN(2) {
				if m.at+k < a.to {
					m.b = append(m.b, byte(rng.Uint32()))
				}
			}
			list[i] = m
		}
		judge(t, path, image, table, list, out)
	}
}

// mutant puts bytes at a place of an image.
type mutant struct {
	at int
	b  []byte
}

// judge proves mutants on all processors and prints what became of them by area.
func judge(t *testing.T, name string, image []byte, table *dwarfcfa.Table, list []mutant, out *os.File) {
	parts := areas(t, image)
	areaOf := func(at int) int {
		for i, a := range parts {
			if at >= a.from && at < a.to {
				return i
			}
		}
		return len(parts)
	}
	j := newJury(t, name, image, table)
	verdicts := map[string]int{}
	results := make([][2]atomic.Int64, len(parts)+1)
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	begin := time.Now()
	limit := time.Duration(1 << 62)
	if s, err := time.ParseDuration(os.Getenv("PROVE_TIME")); err == nil {
		limit = s
	}
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			own := bytes.Clone(image)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(list) || time.Since(begin) > limit {
					return
				}
				m := list[i]
				if bytes.Equal(image[m.at:m.at+len(m.b)], m.b) {
					continue
				}
				copy(own[m.at:], m.b)
				_, err := Image(own, table)
				copy(own[m.at:], image[m.at:m.at+len(m.b)])
				r := &results[areaOf(m.at)]
				r[0].Add(1)
				if err != nil {
					r[1].Add(1)
					continue
				}
				verdict, err := j.judge(parts, areaOf(m.at), m)
				mu.Lock()
				fmt.Fprintf(out, "%s %d %x %s\n", name, m.at, m.b, verdict)
				verdicts[verdict]++
				if err != nil {
					t.Errorf("%s: accepted, and wrong: %d %x: %v", name, m.at, m.b, err)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	for i := range results {
		n, rejected := results[i][0].Load(), results[i][1].Load()
		where := "between sections"
		if i < len(parts) {
			where = parts[i].name
		}
		if n > 0 {
			fmt.Printf("%s: %-20s %8d mutants, %8d rejected, %6d accepted\n", name, where, n, rejected, n-rejected)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(verdicts)) {
		fmt.Printf("%s: accepted: %s: %d\n", name, v, verdicts[v])
	}
}

func BenchmarkImage(b *testing.B) {
	for _, path := range strings.Fields(os.Getenv("PROVE_FILES")) {
		b.Run(path, func(b *testing.B) {
			table := tableOf(b, path)
			image := compile(b, table, variants()[0])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Image(image, table); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
