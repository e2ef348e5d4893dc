package live

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// steppedByGDB has gdb run the program to a breakpoint in walk_work and print, for
// each of n instructions from there on, where it is and the backtrace.
func steppedByGDB(t *testing.T, exe, ehElfs, breakpoint string, n string) []string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "gdb")
	require.NoError(t, os.WriteFile(script, []byte(`
set pagination off
set confirm off
set width 0
set debuginfod enabled off
break walk_work
run
break `+breakpoint+`
continue
delete
set $i = 0
while $i < `+n+`
echo @\n
info symbol $pc
bt
stepi
set $i = $i + 1
end
kill
`), 0o644))
	cmd := exec.Command("gdb", "-nx", "-batch", "-x", script, "--args", exe, "walk")
	cmd.Env = append(os.Environ(), "LC_ALL=C", "EH_ELFS="+ehElfs)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(string(out), "@\n")[1:]
}

// TestGDB looks at walks with gdb: at every instruction of _eh_elf_walk, and of
// the callback that it calls, the backtrace leads to main.
func TestGDB(t *testing.T) {
	testtool.Need(t, "gdb")
	exe := program(t, t.TempDir(), variants[0].flags...)
	ehElfs := compileAll(t, exe, asmgen.Options{})
	frame := regexp.MustCompile(`(?m)^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(.*`)
	symbol := regexp.MustCompile(`^(\S+)(?: \+ \d+)? in section \.text(?: of (\S+))?\n`)

	for _, c := range []struct{ name, breakpoint, steps string }{
		{"walk", "_eh_elf_walk", "600"},
		{"chain", "_eh_elf_chain_1", "400"},
		{"callback", "read_copy", "1500"},
		{"step", "_eh_elf", "300"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inside := map[string]int{} // instructions by function
			places := map[string]int{} // distinct ones in eh_elfs, by file
			seen := map[string]bool{}
			for i, text := range steppedByGDB(t, exe, ehElfs, c.breakpoint, c.steps) {
				match := symbol.FindStringSubmatch(text)
				require.NotNil(t, match, "step %d: %s", i, text)
				var names []string
				for _, m := range frame.FindAllStringSubmatch(text, -1) {
					names = append(names, m[1])
				}
				if names[0] == "__libc_start_call_main" {
					break // main has returned
				}
				stack := strings.Join(names, " ")
				require.NotContains(t, text, "corrupt")
				require.Regexp(t, `(^| )main$`, stack, "step %d: %s", i, text)
				inside[names[0]]++
				file := filepath.Base(match[2])
				if !strings.HasSuffix(file, ".eh_elf.so") {
					continue
				}
				// gdb knows the function and the file, and who called it.
				require.Contains(t, []string{"_eh_elf_walk", "_eh_elf_chain_1", "_eh_elf"}, match[1], text)
				require.Equal(t, match[1], names[0], text)
				require.Regexp(t,
					`^(_eh_elf )?(_eh_elf_walk |_eh_elf_chain_1 )*(_eh_elf )?(walk_with |chain_call walk_chain )?walk_work (walk_only )?main$`, stack, text)
				if !seen[match[0]] {
					seen[match[0]] = true
					places[file]++
				}
			}
			t.Log(inside, places)
			require.Greater(t, inside["_eh_elf_walk"]+inside["_eh_elf"], 60)
			require.Greater(t, places["live.eh_elf.so"], 60)
			if c.breakpoint != "_eh_elf" {
				require.Greater(t, places["libc.so.6.eh_elf.so"], 20)
			}
			if c.name == "chain" {
				require.Equal(t, 8, inside["_eh_elf_chain_1"]) // four for each entry
				require.Positive(t, inside["chain_next"])
			}
			if c.name != "walk" && c.name != "chain" {
				require.Positive(t, inside["read_copy"]) // called by the generated code
			}
		})
	}
}
