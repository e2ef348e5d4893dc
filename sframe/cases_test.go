package sframe

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cases is a folder of sections that GNU as and ld made, each with objdump's reading: the format of
// lib/testcases of the repository jiegec/simple-frame-rs, which has them of binutils 2.40 to 2.46.
var cases = flag.String("cases", "",
	"compare the sections in the *.json files of a `FOLDER` with what objdump said of them")

// TestCases compares rows with those that binutils' own reader of each version shows.
func TestCases(t *testing.T) {
	if *cases == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(*cases, "*.json"))
	require.NoError(t, err)
	compared, rows, other := map[uint8]int{}, 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var c struct {
			Base        uint64 `json:"section_base"`
			Content     []int  `json:"content"`
			GroundTruth string `json:"groundtruth"`
		}
		require.NoError(t, json.Unmarshal(text, &c), file)
		b := make([]byte, len(c.Content))
		for i, v := range c.Content {
			b[i] = byte(v)
		}
		if len(b) > 4 && b[4] != abiAMD64 {
			other++
			continue
		}
		list, err := decode(c.Base, b)
		require.NoError(t, err, file)
		want := objdumpRows(t, c.GroundTruth)
		assert.Equal(t, want, shown(list), file)
		assert.Equal(t, want, python(t, c.Base, b)[0], "rows.py on %s", file)
		compared[b[2]]++
		rows += len(want)
	}
	t.Logf("sections by version: %v, functions and rows: %d; %d for other processors", compared, rows, other)
	assert.NotEmpty(t, compared)
}

// python has rows.py read sections.
func python(t *testing.T, addr uint64, sections ...[]byte) (all [][]string) {
	testtool.Need(t, "python3")
	dir := t.TempDir()
	args := []string{"testdata/rows.py", fmt.Sprint(addr)}
	for i, b := range sections {
		file := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(file, b, 0o600))
		args = append(args, file)
	}
	out, err := exec.Command("python3", args...).Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasSuffix(line, ":") {
			all = append(all, nil)
			continue
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	require.Len(t, all, len(sections))
	return all
}

// TestPython has rows.py, which follows binutils' header and not this package, read what is
// written.
func TestPython(t *testing.T) {
	const addr = 0x4000
	r := rand.New(rand.NewPCG(8, 9))
	var sections [][]byte
	var want [][]string
	for i := range 300 {
		opt := Options{Version: uint8(1 + i%3), Addr: addr}
		opt.PCRel = opt.Version > 1 && r.IntN(2) == 0
		entries := randomEntries(r, opt.Version)
		b, err := Encode(opt, entries)
		require.NoError(t, err)
		sections, want = append(sections, b), append(want, shown(entries))
	}
	got := python(t, addr, sections...)
	for i := range want {
		require.Equal(t, want[i], got[i])
	}
}

// objdumpRows takes what matters out of objdump's text.
func objdumpRows(t *testing.T, text string) (list []string) {
	function := regexp.MustCompile(`^\s*func idx \[\d+\]: pc = 0x([0-9a-f]+), size = (\d+) bytes(?:, attr = "(\w+)")?`)
	row := regexp.MustCompile(`^\s*([0-9a-f]{16})\s+(\S+)\s+(\S+)\s+(\S*)\s*$`)
	for line := range strings.Lines(text) {
		if m := function.FindStringSubmatch(line); m != nil {
			list = append(list, fmt.Sprintf("%s +%s signal=%v", m[1], m[2], strings.Contains(m[3], "S")))
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		addr, err := strconv.ParseUint(m[1], 16, 64)
		require.NoError(t, err)
		if m[2]+m[3] == "RAundefined" {
			list = append(list, fmt.Sprintf("  %x outermost", addr))
			continue
		}
		if m[4] == "f" || m[4] == "U" || m[4] == "u" { // fixed: the header's
			m[4] = "(c-8)"
		}
		for _, i := range []int{3, 4} {
			if strings.HasPrefix(m[i], "c") { // a saved register, without the parentheses that others have
				m[i] = "(" + m[i] + ")"
			}
		}
		list = append(list, fmt.Sprintf("  %x %s %s %s", addr, m[2], m[3], m[4]))
	}
	return list
}

// shown writes entries in the same way.
func shown(entries []Entry) (list []string) {
	rule := func(r Rule) string {
		s := fmt.Sprintf("c%+d", r.Offset)
		switch {
		case r.Base == NotSaved:
			return "u"
		case r.Base == OnReg:
			name := map[uint8]string{6: "fp", 7: "sp"}[r.Reg]
			if name == "" {
				name = fmt.Sprint("r", r.Reg)
			}
			s = fmt.Sprintf("%s%+d", name, r.Offset)
		}
		if r.Deref {
			s = "(" + s + ")"
		}
		return s
	}
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%x +%d signal=%v", e.Start, e.Size, e.Signal))
		for _, r := range e.Rows {
			addr := uint64(r.Start)
			if e.Repeat == 0 {
				addr += e.Start
			}
			if r.Outermost {
				list = append(list, fmt.Sprintf("  %x outermost", addr))
			} else {
				list = append(list, fmt.Sprintf("  %x %s %s %s", addr, rule(r.CFA), rule(r.FP), rule(r.RA)))
			}
		}
	}
	return list
}
