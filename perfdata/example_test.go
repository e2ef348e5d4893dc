package perfdata_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ehasm/ehasm/perfdata"
)

// What a recording holds, in the order of time.
func Example() {
	r, err := perfdata.Open("testdata/example.perf.data", perfdata.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for r.Next() {
		switch rec := r.Record().(type) { // valid until Next is called again
		case *perfdata.Comm:
			fmt.Printf("%d is %s\n", rec.PID, rec.Name)
		case *perfdata.Mmap:
			fmt.Printf("%d maps %s at %#x\n", rec.PID, rec.Name, rec.Addr)
		case *perfdata.Sample:
			fmt.Printf("%d at %#x: %s, %d bytes of stack\n", rec.TID, rec.IP, rec.Event.Name, len(rec.Stack))
		}
	}
	if err := r.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 10 is prog
	// 10 maps /bin/prog at 0x400000
	// 11 at 0x400123: cycles, 8 bytes of stack
}

// A recording without copies of stacks. The call chain is what an unwinder makes of
// the registers and the copy; here, of the first register alone.
func ExampleChainWriter() {
	r, err := perfdata.Open("testdata/example.perf.data", perfdata.Options{Own: true})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	out, err := os.CreateTemp("", "chains")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(out.Name())
	w, err := perfdata.NewChainWriter(out, r)
	if err != nil {
		log.Fatal(err)
	}
	var buf []byte
	for r.Next() {
		var chain []uint64
		if s, ok := r.Record().(*perfdata.Sample); ok {
			chain = s.UserRegs.Values[:1]
		}
		taken, entry := w.Take(buf[:0])
		if _, err := w.Write(entry.Append(nil, chain)); err != nil {
			log.Fatal(err)
		}
		buf = taken
	}
	if err := errors.Join(r.Err(), w.Close()); err != nil {
		log.Fatal(err)
	}
	again, err := perfdata.Open(out.Name(), perfdata.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer again.Close()
	for again.Next() {
		if s, ok := again.Record().(*perfdata.Sample); ok {
			fmt.Printf("%d bytes of stack, chain %#x\n", len(s.Stack), s.Callchain)
		}
	}
	// Output:
	// 0 bytes of stack, chain [0xfffffffffffffe00 0x400123]
}
