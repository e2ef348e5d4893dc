//go:build linux && amd64

package stack_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ehasm/ehasm/stack"
)

// The functions of a program that are on the stacks of its threads.
func Example() {
	dir, err := os.MkdirTemp("", "stack")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "waiter")
	cmd := waiter(program)
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()

	target, err := stack.ReadProcess(context.Background(), cmd.Process.Pid, stack.Options{Lines: true})
	if err != nil {
		log.Fatal(err) // no such process, or no right to look at it
	}
	for _, thread := range target.Threads {
		for _, f := range thread.Frames {
			if f.Object != program {
				continue
			}
			for _, in := range f.Inlined {
				fmt.Printf("%s, inlined, at line %d\n", in.Function, in.Line)
			}
			if f.Line > 0 {
				fmt.Printf("%s at line %d\n", f.Function, f.Line)
			}
		}
		fmt.Println(thread.End)
	}
	// Output:
	// wait, inlined, at line 3
	// work at line 4
	// main at line 8
	// outermost frame
}

// waiter starts a program, and returns when it waits.
func waiter(program string) *exec.Cmd { return waiterOf(program) }

// waiterOf is waiter for a program that is linked with flags.
func waiterOf(program string, flags ...string) *exec.Cmd {
	const source = `
#include <unistd.h>
static inline __attribute__((always_inline)) int wait(char *c) { return write(1, "", 1) + read(0, c, 1); }
__attribute__((noinline)) static int work(char *c) { return wait(c) + 1; }

int main(void) {
	char c;
	return work(&c) + 1;
}
`
	file := program + ".c"
	if err := os.WriteFile(file, []byte(source), 0o666); err != nil {
		log.Fatal(err)
	}
	if out, err := exec.Command("gcc", append(flags, "-g", "-O1", "-o", program, file)...).CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program)
	if _, err := cmd.StdinPipe(); err != nil {
		log.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	if _, err := bufio.NewReader(from).ReadByte(); err != nil {
		log.Fatal(err)
	}
	return cmd
}
