package bpfunwind_test

import (
	"bufio"
	"debug/elf"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// The stacks with which a process calls the kernel. It needs CAP_BPF and CAP_PERFMON.
func Example() {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	check(err)
	check(cat.Start())
	defer cat.Wait()
	defer in.Close()
	time.Sleep(100 * time.Millisecond) // until it waits for input

	unwinder, err := bpfunwind.Load(bpfunwind.Options{})
	check(err)
	defer unwinder.Close()
	_, err = unwinder.MapProcess(uint32(cat.Process.Pid), mappings(unwinder, cat.Process.Pid))
	check(err)

	program, err := unwinder.NewProgram(bpfunwind.Source{Kind: bpfunwind.RawTracepoint})
	check(err)
	defer program.Close()
	tracepoint, err := program.AttachTracepoint("sys_enter")
	check(err)
	defer tracepoint.Close()
	fmt.Fprintln(in, "text")

	whole := 0
	for end := time.Now().Add(10 * time.Second); whole < 2 && time.Now().Before(end); {
		check(unwinder.Read(10*time.Millisecond, func(s *bpfunwind.Sample) {
			if s.Outcome == bpfunwind.EndOfStack && len(s.User) > 3 { // from the call to the program's entry
				whole++
			}
		}))
	}
	fmt.Println(whole >= 2)
	// Output: true
}

// mappings returns the code of a process, with tables made for it.
func mappings(unwinder *bpfunwind.Unwinder, pid int) (list []bpfunwind.Mapping) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	check(err)
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "r-xp" || fields[5][0] != '/' {
			continue
		}
		m := bpfunwind.Mapping{}
		var offset uint64
		fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.Start, &m.End, &offset)

		object, err := dwarfcfa.Open(fields[5])
		check(err)
		table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
		check(err)
		tables, err := bpfunwind.Make(table)
		check(err)
		m.Tables, err = unwinder.AddTables(tables)
		check(err)
		m.Bias = m.Start - linkTime(object, offset)
		check(object.Close())
		list = append(list, m)
	}
	return list
}

// linkTime returns the link-time address of what lies at an offset of the file.
func linkTime(object *dwarfcfa.File, offset uint64) uint64 {
	file, err := elf.NewFile(object.File())
	check(err)
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && p.Off <= offset && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr
		}
	}
	log.Fatalf("nothing is loaded from %#x", offset)
	return 0
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
