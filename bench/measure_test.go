package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFirstWalk: a long first walk, which fills a contender's tables, is not what is measured.
func TestFirstWalk(t *testing.T) {
	const source = `#include "%s"
size_t bench_on(const struct stack *s, size_t (*fn)(void *), void *arg) { (void)s; return fn(arg); }
static long walks;
static size_t walk(const struct stack *s, uint64_t *pcs, size_t max)
{
	(void)s, (void)pcs, (void)max;
	for (double begin = clock_ns(); walks == 0 && clock_ns() - begin < 5e7;)
		;
	walks++;
	return 1;
}
int main(int argc, char **argv)
{
	struct stack one = {0}, *list = &one;
	struct set set = {"", &list, 1};
	struct measure m;
	bench_measure_init();
	bench_measure(&(struct contender){"slow", walk, NULL}, &set, argv[argc - 1], &m);
	printf("%%ld", walks);
	return 0;
}
`
	dir := t.TempDir()
	measure, err := filepath.Abs("driver/measure.c")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.c"), fmt.Appendf(nil, source, measure), 0o600))
	out, err := exec.Command("gcc", "-O1", "-o", filepath.Join(dir, "m"), filepath.Join(dir, "m.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, pattern := range []string{"hot", "turn"} {
		out, err := exec.Command(filepath.Join(dir, "m"), pattern).Output()
		require.NoError(t, err)
		var walks int
		_, err = fmt.Sscan(string(out), &walks)
		require.NoError(t, err)
		assert.Greater(t, walks, 100, pattern)
	}
}
