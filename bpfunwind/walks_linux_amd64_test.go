package bpfunwind

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"
)

// recursion calls itself N times in frames of 100 bytes or of 4 KB, and works at the end: N BYTES TIMES.
const recursion = `
#include <stdlib.h>
static volatile unsigned sink;
__attribute__((noinline)) static void leaf(long n) { for (long i = 0; i < n; i++) sink += i * i; }
__attribute__((noinline)) static unsigned small(int n, long w) { volatile char b[64]; b[0] = n; if (!n) { leaf(w); return b[0]; } return (small(n - 1, w) + b[0]) * 3; }
__attribute__((noinline)) static unsigned big(int n, long w) { volatile char b[4000]; b[0] = n; b[3999] = 1; if (!n) { leaf(w); return b[0]; } return (big(n - 1, w) + b[3999]) * 3; }
int main(int c, char **v) { int n = atoi(v[1]), bytes = atoi(v[2]); for (long i = atol(v[3]); i > 0; i--) sink += bytes < 1000 ? small(n, 50000000) : big(n, 50000000); }
`

// TestDeep samples recursions: each stack that was not cut by a limit ends at the outermost frame, and those of the
// leaf have all frames.
func TestDeep(t *testing.T) {
	program := compileC(t, recursion, "-O1", "-fomit-frame-pointer")
	for _, c := range testtool.Sweep([]struct{ frames, bytes string }{{"5000", "4000"}, {"3000", "100"}, {"5000", "100"},
		{"3000", "4000"}}) {
		n, err := strconv.Atoi(c.frames)
		require.NoError(t, err)
		s := newSession(t, Options{MaxTime: 1e8, RingSize: 1 << 25}) // for all samples
		run := func(times string) {
			s.run("/bin/sh", "-c", "ulimit -s unlimited; exec "+program+" "+c.frames+" "+c.bytes+" "+times)
		}
		run("1") // so that tables are there
		s.sample(997, Source{}, 0)
		outcomes, deep := map[Outcome]int{}, 0
		s.onSample = func(w *Sample) {
			outcomes[w.Outcome]++
			if w.Outcome == EndOfStack && len(w.User) > n {
				deep++
			}
		}
		run("6")
		stats, err := s.u.Stats()
		require.NoError(t, err)
		t.Logf("%s frames of %s bytes: %v, %d deep; %+v", c.frames, c.bytes, outcomes, deep, stats)
		assert.Greater(t, deep, 10)
		assert.Zero(t, stats.Lost+stats.Nested)
	}
}

// copiesEnv has commands, a line each, whose samples are compared; and so often.
const copiesEnv = "BPFUNWIND_COMMANDS"

// TestCopies walks each sample twice, in the kernel and in perf's copy of the same stack with Table.Step. A stack
// differs only where the copy is cut.
func TestCopies(t *testing.T) {
	commands := []string{fmt.Sprintf(`perl -e 'sub f { my $n = shift; return $n ? f($n - 1) + length(join ",", sort { $a <=> $b } 1 .. 50) : 0 } f(40) for 1 .. %d'`,
		testtool.Few(12000, 4000))}
	if list := os.Getenv(copiesEnv); list != "" {
		commands = strings.Split(strings.TrimSpace(list), "\n")
	}
	for _, command := range commands {
		s := newSession(t, Options{Copies: ^Outcomes(0), RingSize: 1 << 23})
		s.run("/bin/sh", "-c", command) // so that tables are there
		waiting := map[uint32][]Sample{}
		s.onSample = func(w *Sample) {
			kept := *w
			kept.User = slices.Clone(w.User)
			waiting[w.CPU] = append(waiting[w.CPU], kept)
		}
		counts := map[string]int{}
		s.onCopy = func(p *perfdata.Sample) {
			if p.UserRegs.ABI != perfdata.ABI64 {
				counts["not 64-bit code"]++
				return
			}
			regs := registersOf(p)
			queue := waiting[p.CPU]
			i := slices.IndexFunc(queue, func(w Sample) bool {
				near := int64(w.Time-p.Time) < 5e4 && int64(p.Time-w.Time) < 5e4 // less than from one sample to the next
				return w.TID == uint32(p.TID) && near && len(w.User) > 0 && w.User[0] == regs.Reg[abi.RIP]
			})
			if i < 0 {
				counts["no walk: code not known yet"]++
				return
			}
			w := queue[i]
			waiting[p.CPU] = queue[i+1:]
			pcs, end := reference(s.views[w.View], p, 8192)
			common := min(len(pcs), len(w.User))
			same := slices.Equal(pcs[:common], w.User[:common])
			switch {
			case same && len(pcs) == len(w.User) && end == w.Outcome:
				counts["equal"]++
				counts["equal, "+end.String()]++
			case same && end == Unreadable && len(w.User) >= len(pcs):
				counts["copy cut, the walk goes on"]++
			case w.Outcome == NoRecord && same, w.Outcome == Remapped:
				counts[w.Outcome.String()]++
			default:
				counts["differ"]++
				t.Logf("walk %v, %d frames, kept %v: %x\ncopy %v, %d frames: %x", w.Outcome, len(w.User), w.Kept, w.User, end,
					len(pcs), pcs)
			}
		}
		s.sample(1999, Source{Kernel: true}, 65528)
		s.run("/bin/sh", "-c", command)
		stats, err := s.u.Stats()
		require.NoError(t, err)
		t.Logf("%s: %v; %+v", command, counts, stats)
		assert.Zero(t, counts["differ"])
		assert.Greater(t, counts["equal"], 100)
	}
}
