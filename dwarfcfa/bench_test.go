package dwarfcfa

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// benchFiles returns the inputs of the benchmarks, those present.
func benchFiles() map[string]string {
	files := map[string]string{
		"libc":      "/lib/x86_64-linux-gnu/libc.so.6",
		"libstdc++": "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	}
	home, _ := os.UserHomeDir()
	if m, _ := filepath.Glob(filepath.Join(home, ".rustup/toolchains/*/lib/librustc_driver-*.so")); len(m) > 0 {
		files["librustc_driver"] = m[0]
	}
	for name, path := range files {
		if _, err := os.Stat(path); err != nil {
			delete(files, name)
		}
	}
	return files
}

// BenchmarkStages times each stage of making a table on its own; all is the
// way from the file to the table.
func BenchmarkStages(b *testing.B) {
	for name, path := range benchFiles() {
		o, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		s, err := o.Section(SourceAuto)
		if err != nil {
			b.Fatal(err)
		}
		var rep Report
		code := o.codeImage()
		source := newCFISource(s)
		spans := findSpans(source, code, &rep)
		stage := func(stage string, f func(b *testing.B)) {
			b.Run("stage="+stage+"/file="+name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(s.Size())
				f(b)
			})
		}
		stage("open", func(b *testing.B) {
			for b.Loop() {
				o, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := o.Section(SourceAuto); err != nil {
					b.Fatal(err)
				}
				o.Close()
			}
		})
		stage("entries", func(b *testing.B) {
			for b.Loop() {
				if len(source.collect(&rep)) == 0 {
					b.Fatal("no FDEs")
				}
			}
		})
		stage("rows", func(b *testing.B) {
			in := NewInterp()
			var n countRows
			for b.Loop() {
				n = 0
				for i := range spans {
					if err := source.interpret(&spans[i], in, &n); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(n), "rows")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
		})
		stage("normalise", func(b *testing.B) {
			for b.Loop() {
				t := newTableBuilder(source, &Report{})
				t.interpret(spans)
				if len(t.ranges) == 0 {
					b.Fatal("no ranges")
				}
			}
		})
		stage("dump", func(b *testing.B) {
			for b.Loop() {
				if err := DumpRows(io.Discard, s, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		stage("all", func(b *testing.B) {
			for b.Loop() {
				o, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				if _, _, err := BuildTable(o, BuildOptions{}); err != nil {
					b.Fatal(err)
				}
				o.Close()
			}
		})
		o.Close()
	}
}

type countRows int

func (n *countRows) row(start, end Addr, st *state) { *n++ }

// BenchmarkStep times the reference evaluator on rows all over libc.
func BenchmarkStep(b *testing.B) {
	path, ok := benchFiles()["libc"]
	if !ok {
		b.Skip("needs a libc")
	}
	o, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	table, _, err := BuildTable(o, BuildOptions{})
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		regs := frame(0)
		i = (i + 7919) % len(table.Ranges)
		regs.Reg[16] = uint64(table.Ranges[i].Start) + 1
		table.Step(&regs, stack{}, 0)
	}
}

// BenchmarkLazy times making the table on demand, and a step by it.
func BenchmarkLazy(b *testing.B) {
	for name, path := range benchFiles() {
		o, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/make", func(b *testing.B) {
			for b.Loop() {
				if _, err := NewLazyTable(o, SourceAuto); err != nil {
					b.Fatal(err)
				}
			}
		})
		table, err := NewLazyTable(o, SourceAuto)
		if err != nil {
			b.Fatal(err)
		}
		spans := table.section.spans
		for _, count := range []int{100, 10000} {
			b.Run(fmt.Sprintf("%s/step, %d pcs", name, count), func(b *testing.B) {
				i := 0
				for b.Loop() {
					regs := frame(0)
					i = (i + 7919) % count
					sp := &spans[i*31%len(spans)]
					regs.Reg[16] = uint64(sp.start+sp.end()) / 2
					table.Step(&regs, stack{}, 0)
				}
			})
		}
		o.Close()
	}
}
