// Package layers holds the test of which package may import which.
package layers

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImports checks the table of ARCHITECTURE.md.
func TestImports(t *testing.T) {
	for pkg, allowed := range map[string][]string{
		"abi":                 {},
		"dwarfcfa":            {"abi"},
		"dwarfcfa/readelfcmp": {"abi", "dwarfcfa"},
		"asmgen/plan":         {"abi", "dwarfcfa"},
		"asmgen":              {"abi", "dwarfcfa", "asmgen/plan", "asmgen/goenv"},
		"asmgen/goenv":        {},
		"elfout":              {"abi", "dwarfcfa", "asmgen", "asmgen/plan", "asmgen/goenv"},
		"ehelf":               {"abi"},
		"ehelf/thunk":         {},
		"verify":              {"abi", "dwarfcfa", "ehelf", "ehelf/thunk"},
		"internal/find":       {"abi"},
		"perfdata":            {},
		"unwind":              {"abi", "ehelf"},
		"internal/symbols":    {},
		"internal/flamegraph": {},
		"internal/srcline":    {},
		"internal/script":     {"abi", "ehelf", "perfdata", "unwind", "internal/symbols", "internal/srcline", "internal/flamegraph"},
	} {
		out, err := exec.Command("go", "list", "-deps", "ehasm/"+pkg).Output()
		require.NoError(t, err, pkg)
		for dep := range strings.FieldsSeq(string(out)) {
			name, own := strings.CutPrefix(dep, "ehasm/")
			if own && name != pkg {
				assert.Contains(t, allowed, name, "%s imports %s", pkg, name)
			}
		}
	}
}
