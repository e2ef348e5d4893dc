// Stacks writes the stacks of all threads of a process: a small ehasm stack, by the public API.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/ehasm/ehasm/stack"
)

func run(pid int) error {
	target, err := stack.ReadProcess(context.Background(), pid, stack.Options{Lines: true})
	if err != nil {
		return err // no such process, or no right to look at it
	}
	for _, thread := range target.Threads {
		fmt.Printf("thread %d: %s\n", thread.TID, thread.State)
		for _, f := range thread.Frames {
			for _, in := range f.Inlined {
				fmt.Printf("%#x %s\n", f.PC, in.Function)
			}
			fmt.Printf("%#x %s\n", f.PC, f.Function)
		}
		fmt.Println(thread.End)
	}
	return nil
}

func main() {
	pid, err := 0, error(nil)
	if len(os.Args) == 2 {
		pid, err = strconv.Atoi(os.Args[1])
	}
	if pid == 0 || err != nil {
		fmt.Fprintln(os.Stderr, "usage: stacks PID")
		os.Exit(2)
	}
	if err := run(pid); err != nil {
		fmt.Fprintln(os.Stderr, "stacks:", err)
		os.Exit(1)
	}
}
