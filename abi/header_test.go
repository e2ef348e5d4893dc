package abi_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// headerValues are C expressions over runtime/include/eh_elf.h and what this package
// says of them.
func headerValues() []struct {
	expr string
	want int64
} {
	type value = struct {
		expr string
		want int64
	}
	offset := func(typ, field string, want uintptr) value {
		return value{fmt.Sprintf("offsetof(%s, %s)", typ, field), int64(want)}
	}
	size := func(typ string, want uintptr) value { return value{fmt.Sprintf("sizeof(%s)", typ), int64(want)} }
	values := []value{
		{"EH_ELF_VERSION", abi.Version},
		{"EH_ELF_NUM_REGS", abi.NumRegs},

		size("eh_elf_regs_t", abi.RegsSize),
		offset("eh_elf_regs_t", "reg", abi.RegsReg),
		size("((eh_elf_regs_t *)0)->reg", unsafe.Sizeof(abi.Regs{}.Reg)),
		offset("eh_elf_regs_t", "valid", abi.RegsValid),
		offset("eh_elf_regs_t", "exact", abi.RegsExact),
		offset("eh_elf_regs_t", "status", abi.RegsStatus),

		size("eh_elf_memory_t", abi.MemoryLen),
		offset("eh_elf_memory_t", "lo", abi.MemoryLo),
		offset("eh_elf_memory_t", "size", abi.MemorySize),
		offset("eh_elf_memory_t", "bytes", abi.MemoryBytes),
		offset("eh_elf_memory_t", "read", abi.MemoryRead),
		offset("eh_elf_memory_t", "arg", abi.MemoryArg),

		size("unwind_context_t", abi.ContextSize),
		offset("unwind_context_t", "flags", abi.ContextFlagsOff),
		offset("unwind_context_t", "rip", abi.ContextRIPOff),
		offset("unwind_context_t", "rsp", abi.ContextRSPOff),
		offset("unwind_context_t", "rbp", abi.ContextRBPOff),
		offset("unwind_context_t", "rbx", abi.ContextRBXOff),

		{"EH_ELF_FLAG_RIP", abi.ContextRIP},
		{"EH_ELF_FLAG_RSP", abi.ContextRSP},
		{"EH_ELF_FLAG_RBP", abi.ContextRBP},
		{"EH_ELF_FLAG_RBX", abi.ContextRBX},
		{"EH_ELF_FLAG_ERROR", abi.ContextError},

		{"EH_ELF_OK", int64(abi.StatusOK)},
		{"EH_ELF_OUTERMOST", int64(abi.StatusOutermost)},
		{"EH_ELF_NO_INFO", int64(abi.StatusNoInfo)},
		{"EH_ELF_UNREADABLE", int64(abi.StatusUnreadable)},
		{"EH_ELF_BAD_REGISTER", int64(abi.StatusBadRegister)},
		{"EH_ELF_NOT_COMPILED", int64(abi.StatusNotCompiled)},

		{"EH_ELF_NOTE_IDENTITY", abi.NoteIdentity},
		{"EH_ELF_NOTE_NO_DEREF", int64(abi.FlagNoDeref)},
		{"EH_ELF_NOTE_PACKED", int64(abi.FlagPacked)},
		{"EH_ELF_NOTE_SITES", int64(abi.FlagSites)},
		{"EH_ELF_NOTE_SITES_TYPE", abi.NoteSites},
		{"EH_ELF_SITES_VERSION", abi.SitesVersion},
		size("eh_elf_sites_note_t", abi.SitesNoteSize),
		offset("eh_elf_sites_note_t", "addr", 8),
		offset("eh_elf_sites_note_t", "size", 16),
		{"EH_ELF_NOTE_BUILD_ID", buildIDOffset()},
		offset("eh_elf_note_t", "version", 0),
		offset("eh_elf_note_t", "flags", 4),
		offset("eh_elf_note_t", "low", 8),
		offset("eh_elf_note_t", "high", 16),
		offset("eh_elf_note_t", "ranges", 24),
		offset("eh_elf_note_t", "rows", 28),
		offset("eh_elf_note_t", "build_id_size", 32),

		{"EH_ELF_MAX_PARTS", abi.MaxParts},
		size("eh_elf_part_t", unsafe.Sizeof(abi.Part{})),
		offset("eh_elf_part_t", "low", unsafe.Offsetof(abi.Part{}.Low)),
		offset("eh_elf_part_t", "size", unsafe.Offsetof(abi.Part{}.Size)),
		offset("eh_elf_part_t", "hash", unsafe.Offsetof(abi.Part{}.Hash)),
		{"EH_ELF_NOTE_BUILD_ID + 4 + EH_ELF_NOTE_CONTENT + sizeof(eh_elf_part_t)", int64(len(abi.Note{}.Bytes()))},
	}
	for i := range abi.NumRegs {
		values = append(values, value{"EH_ELF_" + strings.ToUpper(abi.RegName(i)), int64(i)})
	}
	return values
}

// headerProgram prints the value of each expression, and uses every prototype.
func headerProgram() string {
	var b strings.Builder
	b.WriteString("#include \"eh_elf.h\"\n#include \"eh_elf.h\"\n#include <stdio.h>\n")
	b.WriteString(`
eh_elf_walk_t *walk(int linked) { return linked ? _eh_elf_walk : NULL; }
#ifdef EH_ELF_NO_DEREF
eh_elf_step_direct_t *step(int linked) { return linked ? _eh_elf : NULL; }
#else
eh_elf_step_t *step(int linked) { return linked ? _eh_elf : NULL; }
#endif
`)
	b.WriteString("int main(void)\n{\n")
	for _, v := range headerValues() {
		fmt.Fprintf(&b, "    printf(\"%%ld\\n\", (long)(%s));\n", v.expr)
	}
	fmt.Fprintf(&b, "    puts(EH_ELF_SUFFIX); puts(EH_ELF_NOTE_OWNER);\n    return 0;\n}\n")
	return b.String()
}

// headerStubs stands in for an eh_elf at link time.
const headerStubs = "void _eh_elf(void);\nvoid _eh_elf(void) {}\nvoid _eh_elf_walk(void);\nvoid _eh_elf_walk(void) {}\n"

func TestHeader(t *testing.T) {
	testtool.Need(t, "gcc", "g++")
	testtool.DependsOn(t, "../runtime/include")
	include, err := filepath.Abs("../runtime/include")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	strict := []string{"-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wstrict-prototypes"}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		require.NoError(t, err, "%s %q: %s", name, args, out)
		return string(out)
	}
	stubs := write("stubs.c", headerStubs)
	stubsObject := filepath.Join(dir, "stubs.o")
	run("gcc", "-c", stubs, "-o", stubsObject)

	for _, build := range []struct {
		name     string
		compiler string
		source   string
		args     []string
	}{
		{"C11", "gcc", write("c.c", headerProgram()), append([]string{"-std=c11"}, strict...)},
		{"C11-no-deref", "gcc", write("d.c", headerProgram()),
			append([]string{"-std=c11", "-DEH_ELF_NO_DEREF"}, strict...)},
		{"C23", "gcc", write("e.c", headerProgram()), append([]string{"-std=c2x"}, strict...)},
		{"C++11", "g++", write("c.cc", headerProgram()), append([]string{"-std=c++11"}, strict[:5]...)},
		{"C++20", "g++", write("d.cc", headerProgram()), append([]string{"-std=c++20"}, strict[:5]...)},
	} {
		t.Run(build.name, func(t *testing.T) {
			exe := filepath.Join(dir, build.name)
			run(build.compiler, append(build.args, "-I", include, "-o", exe, build.source, stubsObject)...)
			lines := strings.Fields(run(exe))
			values := headerValues()
			require.Len(t, lines, len(values)+2)
			for i, v := range values {
				require.Equal(t, fmt.Sprint(v.want), lines[i], v.expr)
			}
			require.Equal(t, []string{abi.Suffix, abi.NoteOwner}, lines[len(values):])
		})
	}

	// Nothing but the two freestanding headers is needed.
	run("gcc", "-std=c11", "-ffreestanding", "-fsyntax-only", "-I", include, write("free.c", "#include \"eh_elf.h\"\n"))
}

// buildIDOffset finds where an encoded note holds the build-id.
func buildIDOffset() int64 {
	mark := []byte("\xaa\xbb\xcc\xdd")
	return int64(bytes.Index(abi.Note{BuildID: mark}.Bytes(), mark))
}
