package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/inspect"
	"github.com/ehasm/ehasm/internal/testing/cdecltest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDumpTypes has gcc judge what is shown of each kind of debug information.
func TestDumpTypes(t *testing.T) {
	src, dir := cdecltest.Source(t), t.TempDir()
	for flag, source := range map[string]string{"-g": "DWARF", "-gbtf": "BTF"} {
		file := cdecltest.Build(t, src, filepath.Join(dir, source), flag, "-O2", "-rdynamic")
		r := ehasm(t, "dump", "--stage=types", file)
		require.Zero(t, r.code, r.stderr)
		var list []string
		for line := range strings.Lines(r.stdout) {
			first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			assert.Equal(t, source, first)
			if source == "DWARF" {
				_, rest, _ = strings.Cut(rest, " ")
			}
			if !strings.Contains(rest, "][") && !strings.Contains(rest, "{...}") {
				list = append(list, rest)
			}
		}
		assert.Greater(t, len(list), 12)
		cdecltest.Compatible(t, src, list)

		r = ehasm(t, "dump", "--stage=types", "--json", file)
		require.Zero(t, r.code, r.stderr)
		var all []inspect.Prototype
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &all))
		assert.Equal(t, strings.Count(r.stdout, "\n")-2, len(all))
		for _, f := range all {
			assert.Equal(t, source, f.Source)
			assert.Contains(t, f.Declaration, strings.TrimSuffix(f.Parameters, ")"))
			if source == "DWARF" && f.Name == "outer" {
				one := ehasm(t, "dump", "--stage=types", "--pc="+f.Address, file)
				assert.Equal(t, "DWARF "+f.Address+" int outer(struct point *list, size_t n)\n", one.stdout)
			}
		}
	}
	none := cdecltest.Build(t, src, filepath.Join(dir, "none"), "-s")
	r := ehasm(t, "dump", "--stage=types", none)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "no debug information and no .BTF section with functions")
	r = ehasm(t, "dump", "--stage=types", "--pc=0x1", filepath.Join(dir, "DWARF"))
	assert.Contains(t, r.stderr, "0x1: no function with debug information begins there")
	require.NoError(t, os.WriteFile(none, []byte("plain text"), 0o666))
	r = ehasm(t, "dump", "--stage=types", none)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "neither an ELF file nor BTF")
	require.NoError(t, os.WriteFile(none, []byte("\x7fELF\x02\x01\x01"), 0o666))
	r = ehasm(t, "dump", "--stage=types", none)
	assert.Equal(t, 1, r.code)
	assert.Regexp(t, `^ehasm: \S+: truncated: [^\n]*\n$`, r.stderr)
}
