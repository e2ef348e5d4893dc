package perfdata_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/perfdata"
)

// What a recording holds, in the order of time. perfdata.Open reads a file; a recording
// made for the example takes its place.
func Example() {
	r, err := perfdata.NewReader(bytes.NewReader(exampleRecording()), perfdata.Options{})
	if err != nil {
		log.Fatal(err)
	}
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

func exampleRecording() []byte {
	sampled := perfdata.SampleIdentifier | perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime |
		perfdata.SamplePeriod | perfdata.SampleRegsUser | perfdata.SampleStackUser
	b := &perfdatatest.Builder{Attrs: []perfdatatest.Attr{
		{Name: "cycles", SampleType: uint64(sampled), RegsUser: 1 << 8, StackUser: 16, IDs: []uint64{5}},
	}}
	id := perfdatatest.ID{PID: 10, TID: 11, Time: 100, ID: 5}
	b.Comm(id, "prog", true)
	id.Time = 110
	b.Mmap2(id, 0x400000, 0x1000, 0, "/bin/prog")
	b.Add(perfdatatest.Record(9, 2, uint64(5), uint64(0x400123), int32(10), int32(11), uint64(120), uint64(1),
		uint64(2), uint64(0x400123), // registers
		uint64(16), "stackstackstack!", uint64(8)))
	return b.File()
}

// A recording without copies of stacks. The call chain is what an unwinder makes of
// the registers and the copy; here, of the first register alone.
func ExampleChainWriter() {
	r, err := perfdata.NewReader(bytes.NewReader(exampleRecording()), perfdata.Options{Own: true})
	if err != nil {
		log.Fatal(err)
	}
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
