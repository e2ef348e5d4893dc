package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// breakpadRecords returns the rules of a symbol file by address.
func breakpadRecords(t *testing.T, path string) (head string, rules map[uint64]string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	rules = map[uint64]string{}
	record := regexp.MustCompile(`^STACK CFI INIT ([0-9a-f]+) ([0-9a-f]+) (.*)$`)
	for line := range strings.Lines(string(text)) {
		m := record.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			head += line
			continue
		}
		start, _ := strconv.ParseUint(m[1], 16, 64)
		size, _ := strconv.ParseUint(m[2], 16, 64)
		for pc := start; pc < start+size; pc++ {
			rules[pc] = m[3]
		}
	}
	return head, rules
}

// below reports whether a slot, such as c-40, is below the stack pointer, which is n bytes below the CFA: the register is
// restored.
func below(slot, n string) bool {
	off, err := strconv.Atoi(strings.TrimPrefix(slot, "c"))
	size, _ := strconv.Atoi(n)
	return err == nil && off < -size
}

// rulesOf makes the rules of a line of readelf's rows; "" if it has an expression or the end of the stack.
func rulesOf(columns, values []string) string {
	sum := func(name, text string) string {
		n, _ := strconv.Atoi(text)
		if n < 0 {
			return fmt.Sprintf("%s %d -", name, -n)
		}
		return fmt.Sprintf("%s %d +", name, n)
	}
	cfa := regexp.MustCompile(`^(r[a-z0-9]+)([-+][0-9]+)$`).FindStringSubmatch(values[0])
	if cfa == nil {
		return ""
	}
	rules := ".cfa: " + sum("$"+cfa[1], cfa[2])
	for i, name := range columns[1:] {
		switch v := values[i+1]; {
		case v == "u" && name != "ra", v == "s", cfa[1] == "rsp" && below(v, cfa[2]):
		case strings.HasPrefix(v, "c") && name == "ra":
			rules += " .ra: " + sum(".cfa", v[1:]) + " ^"
		case strings.HasPrefix(v, "c"):
			rules += " $" + name + ": " + sum(".cfa", v[1:]) + " ^"
		default:
			return ""
		}
	}
	return rules
}

// TestConvertBreakpad compares the records with the rows of readelf.
func TestConvertBreakpad(t *testing.T) {
	testtool.Need(t, "readelf")
	const object = "/bin/ls"
	out := filepath.Join(t.TempDir(), "ls.sym")
	r := ehasm(t, "convert", "--to=breakpad", object, "-o", out)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Contains(t, r.stdout, "Breakpad, ")
	head, rules := breakpadRecords(t, out)
	note, err := exec.Command("readelf", "-n", object).Output()
	require.NoError(t, err)
	id := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindSubmatch(note)
	require.NotNil(t, id)
	assert.Contains(t, head, "INFO CODE_ID "+strings.ToUpper(string(id[1]))+" ls\n")
	assert.Regexp(t, `^MODULE Linux x86_64 [0-9A-F]{32}0 ls\n`, head)

	text, err := exec.Command("readelf", "--debug-dump=frames-interp", object).Output()
	require.NoError(t, err)
	compared := 0
	var columns []string
	inFDE := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case strings.Contains(line, " CIE "), strings.Contains(line, " FDE "):
			inFDE = strings.Contains(line, " FDE ")
		case len(f) > 1 && f[0] == "LOC":
			columns = f[1:]
		case inFDE && len(f) == len(columns)+1 && len(f[0]) == 16:
			pc, err := strconv.ParseUint(f[0], 16, 64)
			require.NoError(t, err)
			if want := rulesOf(columns, f[1:]); want != "" {
				assert.Equal(t, want, rules[pc], "%x", pc)
				compared++
			}
		}
	}
	assert.Greater(t, compared, 500)
}
