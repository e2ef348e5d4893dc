package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// cost is what a program took.
type cost struct {
	Wall    float64 // seconds
	CPU     float64 // seconds, its children included
	Peak    int64   // bytes resident, of the largest process
	TimedUp bool    // stopped at the limit
}

// runCosted runs a program to its end, or for limit. A fresh process of this
// program starts it: a child's peak memory begins with what its parent holds.
func runCosted(limit time.Duration, name string, args ...string) (c cost, err error) {
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	out, err := exec.Command(self, append([]string{costVerb, limit.String(), name}, args...)...).CombinedOutput()
	line, text, _ := strings.Cut(string(out), "\n")
	if jsonErr := json.Unmarshal([]byte(line), &c); jsonErr != nil {
		return c, fmt.Errorf("%s: %w: %s", name, errors.Join(err, jsonErr), out)
	}
	if c.TimedUp {
		return c, fmt.Errorf("%s: stopped after %v", name, limit)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return c, nil
}

// costVerb, as the first argument, makes this program run another and print its
// cost as a line of JSON before the output.
const costVerb = "cost"

// costMain is the intermediate process: its arguments are the limit and the
// program's. It returns the exit status.
func costMain(args []string) int {
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	// Its own process group, so that what it starts ends with it. A compiler driver starts several.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	c := cost{Wall: time.Since(begin).Seconds(), TimedUp: ctx.Err() != nil}
	if s := cmd.ProcessState; s != nil {
		c.CPU = (s.UserTime() + s.SystemTime()).Seconds()
		if u, ok := s.SysUsage().(*syscall.Rusage); ok { // Linux gives kilobytes
			c.Peak = u.Maxrss << 10
		}
	}
	line, _ := json.Marshal(c)
	fmt.Printf("%s\n%s", line, out)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
