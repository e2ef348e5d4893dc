//go:build !linux

package verify

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
)

// target is the memory of a made-up process. The code cannot run on this host.
type target struct {
	area                            []byte
	room, host, lo, off, size, bias uint64
	seed                            *uint64
	filled                          bool
}

// newTarget fails: see ehelf.ErrUnsupportedHost.
func newTarget(int64, *rng) (*target, error) { return nil, ehelf.ErrUnsupportedHost }

func (*target) close()                           {}
func (*target) put(off, word uint64)             {}
func (*target) place(*rng)                       {}
func (*target) open(off, size uint64)            {}
func (*target) fillAll(*rng)                     {}
func (*target) fill(uint64, *dwarfcfa.Row, *rng) {}
func (*target) raw() *abi.Memory                 { return nil }
func (*target) ReadWord(uint64) (uint64, bool)   { return 0, false }
func (*target) String() string                   { return "" }
