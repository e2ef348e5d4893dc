//go:build linux && amd64

package record

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestJIT: a program makes a function that calls back into the program, and does nothing else. Stacks are whole if its
// jitdump file has rows for the function, or if the function's code tells; a function that never returns tells nothing.
func TestJIT(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "jitted.c"), filepath.Join(dir, "jitted")
	require.NoError(t, os.WriteFile(src, []byte(jitted), 0o666))
	out, err := exec.Command("gcc", "-O1", "-fomit-frame-pointer", "-o", bin, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for mode, whole := range map[string]bool{"rows": true, "returns": true, "neither": false} {
		t.Run(mode, func(t *testing.T) {
			opt := options(t)
			opt.Settings.Pointers = unwind.Never
			p := recordCommand(t, opt, fmt.Sprintf("cd %s && exec %s %s", dir, bin, mode))
			c := &p.Counts
			// The shell, and the program's start, take what time they will: the samples in spin count.
			all, through := spinSamples(t, text(t, p, "folded"))
			require.Greater(t, all, 50)
			if whole {
				assert.GreaterOrEqual(t, float64(through), 0.98*float64(all), "%v", c.Ends)
				assert.Zero(t, c.Guessed)
			} else {
				assert.Zero(t, through)
				assert.GreaterOrEqual(t, c.Ends[unwind.NoObject], uint64(all), "%v", c.Ends)
			}
		})
	}
}

// spinSamples counts the samples of folded stacks that have spin, and of these those that have main.
func spinSamples(t *testing.T, folded string) (all, through int) {
	for stack, n := range testtool.Folded(t, folded) {
		if !strings.Contains(stack, ";spin") {
			continue
		}
		all += n
		if strings.Contains(stack, ";main;") {
			through += n
		}
	}
	return all, through
}

// TestForgetCode: a sample that comes after the exit of a process's first thread opens its jitdump file again, but not
// for ever.
func TestForgetCode(t *testing.T) {
	path, le := filepath.Join(t.TempDir(), "jit-1.dump"), binary.LittleEndian
	b := make([]byte, 40+16+40+2+1)
	for offset, v := range map[int]uint32{0: 0x4a695444, 8: 40, 44: uint32(len(b)) - 40, 72: 0x1000, 80: 1} {
		le.PutUint32(b[offset:], v)
	}
	b[len(b)-1] = 0xc3 // ret
	require.NoError(t, os.WriteFile(path, b, 0o600))
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	tr.files.limits = jit.NewLimits(1)
	known := func(code *jit.Code) bool {
		regs := abi.Regs{Valid: abi.AllRegs}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = 0x1000, 0x9000
		status, _ := code.Step(&regs, &ehelf.Memory{Lo: 0x9000, Bytes: make([]byte, 64)})
		return status == abi.StatusOK
	}
	process := func(pid int32) *jit.Code {
		code := &jit.Code{Limits: tr.files.limits}
		code.AddDump(symbols.Written{Path: path, PID: pid})
		tr.process(pid).code = code
		return code
	}
	first := process(1)
	for range 2 {
		assert.True(t, known(first))
		assert.False(t, known(process(2)))
		tr.exit(1, 1)
	}
	assert.True(t, known(first))
	tr.drop(1)
	assert.True(t, known(process(2)))
	tr.process(3).known = true
	tr.task(&perfdata.Task{Header: perfdata.Header{Type: perfdata.TypeFork}, PID: 2, TID: 2, PPID: 3, PTID: 3})
	assert.True(t, known(process(4)))
}

const jitted = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile long sum;
static int returns;
__attribute__((noinline)) void spin(void) {
	for (int i = 0; i < 150000000; i++) sum += i;
	if (!returns) _exit(0);
}

// sub $24, %rsp; call *%rdi; then add $24, %rsp; ret, or a loop for ever.
static const unsigned char returning[] = {0x48, 0x83, 0xec, 0x18, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x18, 0xc3};
static const unsigned char looping[] = {0x48, 0x83, 0xec, 0x18, 0xff, 0xd7, 0xeb, 0xfe};
// A CIE (CFA = rsp+8), an FDE of 8 bytes of code (from the fourth on CFA = rsp+32), and the end.
static const unsigned char rows[48] = {0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
	0x10, 0, 0, 0, 0x1c, 0, 0, 0, 0xd8, 0xff, 0xff, 0xff, 8, 0, 0, 0, 0, 0x44, 0x0e, 0x20};

static void prefix(FILE *f, uint32_t id, uint32_t size) {
	uint32_t p[4] = {id, 16 + size};
	fwrite(p, sizeof p, 1, f);
}

int main(int argc, char **argv) {
	returns = !strcmp(argv[1], "returns");
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t size = returns ? sizeof returning : sizeof looping;
	memcpy(code, returns ? returning : looping, size);
	char name[64];
	snprintf(name, sizeof name, "jit-%d.dump", getpid());
	FILE *f = fopen(name, "w+");
	uint32_t head[10] = {0x4a695444, 1, sizeof head, 62, 0, getpid()};
	fwrite(head, sizeof head, 1, f);
	fflush(f);
	mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(f), 0);
	if (!strcmp(argv[1], "rows")) {
		const uint64_t index = 20, sizes[3] = {sizeof rows + index, index, 0};
		const char made[20] = {1, 0x1b, 3, 0x3b};
		prefix(f, 4, sizeof sizes + sizeof rows + sizeof made);
		fwrite(sizes, sizeof sizes, 1, f);
		fwrite(rows, sizeof rows, 1, f);
		fwrite(made, sizeof made, 1, f);
	}
	uint64_t load[5] = {getpid() | (uint64_t)getpid() << 32, (uint64_t)code, (uint64_t)code, size, 1};
	prefix(f, 0, sizeof load + 5 + size);
	fwrite(load, sizeof load, 1, f);
	fwrite("made", 5, 1, f);
	fwrite(code, size, 1, f);
	fflush(f);
	((void (*)(void (*)(void)))code)(spin);
	return (int)sum & 1;
}
`
