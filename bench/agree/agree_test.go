package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a program that writes text for script, for script --format=json and
// script --frame-pointers=gaps others.
func fake(t *testing.T, path, text, json, gaps string) {
	t.Helper()
	body := "#!/bin/sh\ncase $* in *json*) cat <<'E'\n" + json + "E\n;; *gaps*) cat <<'E'\n" + gaps +
		"E\n;; *) cat <<'E'\n" + text + "E\n;; esac\n"
	require.NoError(t, os.WriteFile(path, []byte(body), 0o755))
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const kernel = "\tffffffff81000000 do_syscall_64+0x1 ([kernel.kallsyms])\n"
	const f, g, start = "\t  10 f+0x1 (/a b)\n", "\t  20 g+0x1 (/a b)\n", "\t  30 [unknown] (/a b)\n"
	head := func(time string) string { return "a b   1 " + time + ":  1 cycles: \n" }
	perf := head("1.0") + kernel + f + g + start + "\tffffffffffffffff [unknown] ([unknown])\n\n" + // the same
		head("2.0") + f + "\n" + // stops early
		head("3.0") + f + g + "\n" + // goes on
		head("4.0") + g + start + "\n" + // other
		head("5.0") + kernel + "\n"
	fake(t, filepath.Join(dir, "perf"), perf, "", "")
	ours := head("1.0") + kernel + f + "\t  20 g@plt+0x1 (/a b)\n" + start + "\n" + head("2.0") + f + g + start +
		"\n" + head("3.0") + f + "\n" +
		head("4.0") + f + g + "\n" + head("5.0") + kernel + "\n"
	gaps := strings.Replace(ours, head("2.0")+f+g+start, head("2.0")+f, 1)
	ehasm := filepath.Join(dir, "ehasm")
	ends := `{"end":"outermost frame"}{"end":"outermost frame"}{"end":"memory not readable"}{"end":"memory not readable"}{}` + "\n"
	fake(t, ehasm, ours, ends, gaps)
	c := comparison{data: "x", ehasm: ehasm}
	r, err := c.run()
	require.NoError(t, err)
	assert.Equal(t, &result{samples: 5, same: 2, sameGaps: 3, deeper: 1, shallower: 1, other: 1, frames: 3, lines: 2,
		perfOutermost: 2, ourOutermost: 2, onlyPerf: 1}, r)

	fake(t, ehasm, head("7.0")+f+"\n", ends, gaps)
	c = comparison{data: "x", ehasm: ehasm}
	_, err = c.run()
	assert.ErrorContains(t, err, "sample 0")
	c = comparison{data: "x", ehasm: filepath.Join(dir, "absent")}
	_, err = c.run()
	assert.Error(t, err)
}
