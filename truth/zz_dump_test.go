package main

import (
	"fmt"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/synth"
	"os"
	"testing"
)

func TestZZ(t *testing.T) {
	p := os.Getenv("P")
	var lo, hi uint64
	fmt.Sscanf(os.Getenv("R"), "%x-%x", &lo, &hi)
	o, _ := dwarfcfa.Open(p)
	r, err := synth.Of(o, synth.Options{All: os.Getenv("ALL") != ""})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d functions wanted %d answered %d declined %+v\n", len(r.Functions), r.Wanted, r.Answered, r.Declined)
	for _, f := range r.Functions {
		for _, x := range f.Ranges {
			if uint64(x.End) > lo && uint64(x.Start) < hi {
				fmt.Printf("%s %#x-%#x %+v\n", f.Name, x.Start, x.End, x.Row)
			}
		}
	}
}
