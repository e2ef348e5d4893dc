//go:build unix

package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// change is a piece of a source and what takes its place.
type change struct{ file, from, to string }

// restless makes each walk use what the thread remembers, also after walks that missed often, and the thread forget
// soon.
var restless = change{"recall.c", "ROW_BITS = 9, TRAIL = 1024, START_BITS = 7, MISS = 12",
	"ROW_BITS = 4, TRAIL = 100, START_BITS = 3, MISS = 0"}

// recallMutants leave out a condition of PROOF.md each. Two are not among them: this libc has no row where contexts
// begin, and a walk that a handler disturbs (busy) seldom differs, as it stops at the first empty row.
var recallMutants = map[string]change{
	"generation":       {"recall.c", "m->generation != t->generation", "m->generation == 0"},
	"end of the stack": {"recall.c", "if (at > last)", "if (0)"},
	"CFA rises":        {"recall.c", " || at < rsp)", ")"},
	"own stack": {"recall.c", " || rsp >= end || rsp - RED_ZONE < ehu_own_stack_.lo || ehu_own_stack_.hi != end)",
		")"},
	"other rows":         {"recall.c", "{.pc = pc, .base = OTHER}", "{.pc = pc, .to = 8, .base = RSP}"},
	"rbp far below":      {"recall.c", "8 * below <= RED_ZONE && ", ""},
	"next in the trail":  {"recall.c", "__builtin_expect(r[1].pc == pc, 1)", "r[1].pc != 0"},
	"start in it":        {"recall.c", "if (r->pc != pc && (r = after", "if (r->pc == 0 && (r = after"},
	"row of an address":  {"recall.c", "if (r->pc != pc && !learn", "if (r->pc == 0 && !learn"},
	"place in the trail": {"recall.c", "&& m->trail[r->at].pc == pc)", "&& m->trail[r->at].pc != 0)"},
	"interrupted frame":  {"recall.c", "start->exact || ", ""},
	"no return address":  {"recall.c", "{ OTHER, RSP, RBP, END }", "{ RSP, OTHER, RBP, END }"},
}

// recall builds testdata/recall.c with changed sources and runs it.
func recall(t *testing.T, k *kit, seconds, seed string, changes ...change) (string, error) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"testdata/recall.c", "-Isrc", "-Wno-unused", "-Wl,--wrap=ehu_recall_"}
	sources := map[string]string{}
	for _, c := range changes {
		if sources[c.file] == "" {
			source, err := os.ReadFile(filepath.Join("src", c.file))
			require.NoError(t, err)
			sources[c.file] = string(source)
			args = append(args, filepath.Join(dir, c.file))
		}
		require.Equal(t, 1, strings.Count(sources[c.file], c.from), c.from)
		sources[c.file] = strings.Replace(sources[c.file], c.from, c.to, 1)
	}
	for file, source := range sources {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(source), 0o644))
	}
	program := filepath.Join(dir, "recall")
	command := k.gcc("recall", append(args, k.path("libehunwind.a"), "-pthread", "-o", program)...)
	require.Empty(t, runAll([][]string{command, {k.path("ehasm"), "build", "-q", "-o", dir, program}}))
	return k.run(t, dir+":"+k.path("eh-recall"), nil, program, seconds, seed, k.path("recalled-40.so"),
		k.path("recalled-88.so"))
}

// TestRecall: walks by remembered rows are those of a cursor, which remembers nothing, while threads walk, load, fork,
// jump out of handlers and switch stacks, and while a handler changes all that is remembered at any instruction of a
// walk. Without one of their conditions, they are not.
func TestRecall(t *testing.T) {
	k := makeKit(t)
	for _, frame := range []string{"40", "88"} {
		library := k.path("recalled-" + frame + ".so")
		require.Empty(t, runAll([][]string{
			{"gcc", "-O2", "-shared", "-fPIC", `-DFRAME="` + frame + `"`, "-o", library, "testdata/recalled.c"},
			{k.path("ehasm"), "build", "-q", "--deps", "-o", k.path("eh-recall"), library, k.path("libehunwind.so")},
		}))
	}
	const right = `^[1-9]\d+ walks, [1-9]\d+ in handlers, [1-9]\d{3,} and [1-9]\d{3,} frames recalled, 0 wrong\n$`
	for seed, changes := range map[string][]change{"1": {restless}, "2": nil} {
		out, err := recall(t, k, "2", seed, changes...)
		require.NoError(t, err, "%s", out)
		assert.Regexp(t, right, out)
	}
	for name, mutant := range recallMutants {
		t.Run(name, func(t *testing.T) {
			out, err := recall(t, k, "0", "1", restless, mutant)
			assert.Error(t, err, "survives: %s", out)
		})
	}
}
