package bpfunwind

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// lookup does what the program does with a pc of the part.
func (p *part) lookup(pc uint64) record {
	page := int((pc - p.start) >> pageShift)
	i := p.first(page)
	for i < p.first(page+1) && uint64(p.data[p.entries+2*int(i)]) <= pc&(pageSize-1) {
		i++
	}
	return p.record(i - 1)
}

// lookup returns the record of a pc.
func (ts *Tables) lookup(pc uint64) record {
	for i := range ts.parts {
		if p := &ts.parts[i]; pc >= p.start && pc < p.end() {
			return p.lookup(pc)
		}
	}
	return record{}
}

// everyPC compares the tables' records with the rows, pc by pc.
func everyPC(ts *Tables, t *dwarfcfa.Table) error {
	p := &prover{table: t, steps: make([]step, len(t.Rows)), have: make([]bool, len(t.Rows))}
	for i := range ts.parts {
		part := &ts.parts[i]
		for pc := part.start; pc < part.end(); pc++ {
			r := part.lookup(pc)
			found, ok := t.Lookup(dwarfcfa.Addr(pc))
			if !ok {
				if err := noRow(pc, r); err != nil {
					return err
				}
			} else if err := p.means(r, found.Row); err != nil {
				return err
			}
		}
	}
	for _, r := range t.Ranges {
		for _, pc := range []uint64{uint64(r.Start), uint64(r.End) - 1} {
			if err := p.means(ts.lookup(pc), r.Row); err != nil {
				return err
			}
		}
	}
	return nil
}

func randomTable(r *rand.Rand, maxRanges int) *dwarfcfa.Table {
	data := make([]byte, 1+r.IntN(60*maxRanges))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return rowtest.Table(data, maxRanges)
}

// TestRandomTables: tables with every kind of rule are made and proven, and hold the right record at each pc.
func TestRandomTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := [numKinds]int{}
	for range 300 {
		table := randomTable(r, 40)
		ts, err := Make(table)
		require.NoError(t, err)
		require.NoError(t, everyPC(ts, table))
		for i := range table.Rows {
			s := stepOf(table, &table.Rows[i])
			rec := encode(s)
			kinds[rec[byteKind]&^flagStale]++
			if rec[byteKind] != kindNoRecord {
				got, err := rec.decode()
				require.NoError(t, err)
				require.Equal(t, s, got)
			}
		}
	}
	for _, kind := range []int{kindPlain, kindEnd, kindNoRecord, kindShifted, kindVolatile} {
		assert.NotZero(t, kinds[kind], "kind %d", kind)
	}
}

// TestTableMutants changes bytes of tables: the proof refuses what differs at any pc.
func TestTableMutants(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n, harmless := 20000, 0
	if testing.Short() {
		n = 2000
	}
	for n > 0 {
		table := randomTable(r, 12)
		ts, err := Make(table)
		require.NoError(t, err)
		for range 50 {
			n--
			p := &ts.parts[r.IntN(len(ts.parts))]
			i, old := r.IntN(len(p.data)), byte(0)
			old = p.data[i]
			p.data[i] = byte(r.Uint32())
			if p.data[i] != old && ts.Prove(table) == nil {
				require.NoError(t, everyPC(ts, table), "byte %d of the part at %#x: %#x instead of %#x", i, p.start, p.data[i],
					old)
				harmless++
			}
			p.data[i] = old
		}
	}
	t.Log("mutants that are accepted, and right:", harmless)
}

// TestBinary: tables are the same after a file; damaged ones are refused, or stay within their bytes.
func TestBinary(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		table := stepTable(r, 1+r.IntN(300))
		ts, err := Make(table)
		require.NoError(t, err)
		b, err := ts.AppendBinary([]byte("before"))
		require.NoError(t, err)
		b = b[len("before"):]
		same, err := ParseTables(b)
		require.NoError(t, err)
		require.Equal(t, ts, same)
		require.NoError(t, same.Prove(table))
		_, err = ParseTables(b[:r.IntN(len(b))])
		require.Error(t, err)
		for range 20 {
			offset := r.IntN(len(b))
			old := b[offset]
			b[offset] = byte(r.Uint32())
			if damaged, err := ParseTables(b); err == nil {
				for i := range damaged.parts {
					p := &damaged.parts[i]
					for pc := p.start; pc < p.end() && pc < p.start+2000; pc++ {
						p.lookup(pc)
					}
				}
			}
			b[offset] = old
		}
	}
	_, err := ParseTables(nil)
	require.Error(t, err)
}

// TestRealTables makes and proves the tables of files.
func TestRealTables(t *testing.T) {
	files := filepath.SplitList(os.Getenv("BPFUNWIND_FILES"))
	if len(files) == 0 {
		files = []string{"/lib/x86_64-linux-gnu/libc.so.6"}
	}
	for _, name := range files {
		o, err := dwarfcfa.Open(name)
		require.NoError(t, err)
		defer o.Close()
		table, report, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
		require.NoError(t, err)
		start := time.Now()
		ts, err := compile(table)
		require.NoError(t, err)
		made := time.Since(start)
		start = time.Now()
		require.NoError(t, ts.Prove(table))
		proved := time.Since(start)
		size := report.SectionSize + report.HdrSize
		t.Logf("%s: %d ranges, %d parts, %d bytes, %.2f of %s; made in %v, proven in %v; %s", name, len(table.Ranges),
			len(ts.parts), ts.Size(),
			float64(ts.Size())/float64(size), report.Source, made, proved, withoutRecord(table))
	}
}

// withoutRecord says how much of the code has rows without a record.
func withoutRecord(t *dwarfcfa.Table) string {
	rows, bytes, all := map[uint32]bool{}, uint64(0), uint64(0)
	text := ""
	for _, r := range t.Ranges {
		n := uint64(r.End - r.Start)
		all += n
		if encode(stepOf(t, &t.Rows[r.Row]))[byteKind] == kindNoRecord {
			if !rows[r.Row] && len(rows) < 12 {
				text += "\n" + t.RowText(r.Row)
			}
			rows[r.Row] = true
			bytes += n
		}
	}

	return fmt.Sprintf("without a record: %d rows, %d of %d bytes%s", len(rows), bytes, all, text)
}
