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

// restless makes each walk use the thread's memory, also after walks that met much new, and the thread forget soon.
var restless = change{"recall.c", "TRAIL = 1664, PLACE_BITS = 11, NEW = 12", "TRAIL = 60, PLACE_BITS = 10, NEW = 0"}

// short makes it forget sooner.
var short = change{"recall.c", "TRAIL = 1664, PLACE_BITS = 11, NEW = 12", "TRAIL = 28, PLACE_BITS = 10, NEW = 0"}

// linked leaves links where they are.
var linked = change{"recall.c", "if (a.links)", "if (0)"}

// crowded has two places, so that frames are looked for where others are.
var crowded = change{"recall.c", "PLACE_BITS = 11, NEW = 12", "PLACE_BITS = 1, NEW = 0"}

// recallMutants leave out a condition of PROOF.md each.
var recallMutants = map[string][]change{
	"generation": {{"recall.c", "m->generation != generation ||", "m->generation == 0 ||"},
		{"recall.c", "m->generation != atomic_load_explicit(&ehu_generation_, memory_order_acquire) || ", ""}},
	"loaded meanwhile": {{"recall.c",
		"        way.e = NULL; /* it may have been replaced since the walk began */\n        way.to = pcs;\n", ""}},
	"another end":       {{"recall.c", " || m->end != end) {", ") {"}, {"recall.c", " || m->end != end ||\n        !is_at", " ||\n        !is_at"}},
	"end of the stack":  {{"recall.c", " || at > w->end - 8", ""}},
	"CFA rises":         {{"recall.c", " || at < w->rsp", ""}},
	"own stack":         {{"recall.c", " || rsp < ehu_own_stack_.lo", ""}},
	"memory in use":     {{"recall.c", "    m->rest = BUSY;\n", ""}},
	"context start":     {{"recall.c", "o->walk && pc != ehu_context_start_", "o->walk"}},
	"other rows":        {{"recall.c", "if (base == OTHER || ", "if ("}},
	"rbp far below":     {{"recall.c", "8 * below <= RED_ZONE && ", ""}},
	"rbp below rsp":     {{"recall.c", " || save < w->rsp", ""}},
	"a word":            {{"recall.c", "    if (__builtin_expect(pc != e[n].word, 0)) \\", "    if (0) \\"}},
	"a word behind rbp": {{"recall.c", "if (a->pc != next->word) {", "if (0) {"}},
	"a word by links":   {{"recall.c", "        if (a->pc != next->word)\n            goto out;", "        if (0)\n            goto out;"}},
	"rbp":               {{"recall.c", "if ((next->above > base ? word_below(end, next) : a->rbp) != next->word)", "if (0)"}},
	"rbp before a gap":  {{"recall.c", " && w->gap[-1].kind != CHECK", " && 0"}},
	"rbp is restored":   {{"recall.c", "    for (; e != a->from; e--)\n", "    for (; 0; e--)\n"}},
	"word of a link":    {{"recall.c", "a->pc != next->word || there->word != a->pc", "there->word != next->word"}},
	"frame of a link":   {{"recall.c", "there->word != a->pc || there->above != next->above || there->kind != FRAME", "0"}},
	"rsp of a link":     {{"recall.c", " || there->above != next->above", ""}},
	"room for a link":   {{"recall.c", " && !(w->writes && place == m->tail + 1)", ""}},
	"end of the trail":  {{"recall.c", "            close_run(m, (struct ehu_entry){.kind = STOP});\n        m->tail = 0;", "            w->by = 0;\n        m->tail = 0;"}},
	"pc":                {{"recall.c", "return e->word == pc && e->above", "return e->above"}},
	"rsp":               {{"recall.c", "e->above == above && e->kind", "e->kind"}},
	"is a frame":        {{"recall.c", " && e->kind == FRAME;", ";"}},
	"full, but no code": {{"recall.c", "o == FULL ? a.next->kind == STOP", "o == FULL ? 0"}},
	"room in the array": {{"recall.c", "e + (n < room ? n : room);", "e + n;"}},
	"end of walks":      {{"recall.c", ": o != ENDED)", ": 0)"}},
	"interrupted":       {{"recall.c", "m->rest || start->exact ||", "m->rest ||"}},
	"no address":        {{"recall.c", "enum { OTHER /* not plain, or none */, BY_RSP, BY", "enum { BY_RSP, OTHER, BY"}},
	"row of a pc": {{"recall.c",
		"(PC_BITS - ROW_BITS)];\n    uint64_t known = __atomic_load_n(row, __ATOMIC_RELAXED);\n    if (known >> TAG_SHIFT == tag",
		"(PC_BITS - 2)];\n    uint64_t known = __atomic_load_n(row, __ATOMIC_RELAXED);\n    if (known != 0"}},
}

// recall builds testdata/recall.c with changed sources and runs it.
func recall(t *testing.T, k *kit, seconds, seed string, changes ...change) (string, error) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"testdata/recall.c", "-Isrc", "-Wno-unused"}
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
	return k.run(t, dir+":"+k.path("eh-recall"), nil, "timeout", "60", program, seconds, seed, k.path("recalled-40.so"),
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
	const right = `^[1-9]\d+ walks, [1-9]\d+ in handlers, [1-9]\d+ and [1-9]\d+ recalled, 0 wrong\n$`
	for seed, changes := range map[string][]change{"1": {restless}, "2": nil} {
		out, err := recall(t, k, "2", seed, changes...)
		require.NoError(t, err, "%s", out)
		assert.Regexp(t, right, out)
	}
	for name, mutant := range recallMutants {
		t.Run(name, func(t *testing.T) {
			memory := restless
			switch name {
			case "room for a link":
				memory = short
			case "another end":
				memory = crowded
			}
			out, err := recall(t, k, "0", "1", append(mutant, memory, linked)...)
			assert.Error(t, err, "survives: %s", out)
		})
	}
}
