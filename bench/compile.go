package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/dwarfcfa"
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

// costVerb as first argument has this program run another and print what it
// took, as a line of JSON before the output.
const costVerb = "cost"

// costMain is the process between: its arguments are the limit and the program's.
// It returns the exit status.
func costMain(args []string) int {
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[1], args[2:]...)
	// Its own process group, so that what it starts ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	c := cost{Wall: time.Since(begin).Seconds(), TimedUp: ctx.Err() != nil}
	if s := cmd.ProcessState; s != nil {
		c.CPU = (s.UserTime() + s.SystemTime()).Seconds()
		if u, ok := s.SysUsage().(*syscall.Rusage); ok {
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

// source is generated text that a compiler makes a shared object of.
type source struct {
	kind  string // the folder, and the driver's name for it
	ext   string
	flags []string
	write func(io.Writer, *dwarfcfa.Table) error
}

func originalSource() source {
	return source{"original", ".c", []string{"-O2", "-fPIC", "-shared"}, writeOriginal}
}

func onetreeSource() source {
	return source{"onetree", ".s", []string{"-shared", "-nostdlib"}, writeOnetree}
}

// shared returns the shared object of a source for an object, which it makes if
// it is not there from an earlier run. Files are named after the build-id.
func (s source) shared(dir string, o *dwarfcfa.Object, t *dwarfcfa.Table, limit time.Duration) (path string, c cost, err error) {
	base := fmt.Sprintf("%s-%s", filepath.Base(o.Name()), hex.EncodeToString(o.BuildID()))
	folder := filepath.Join(dir, s.kind)
	path = filepath.Join(folder, base+".so")
	text := filepath.Join(folder, base+s.ext)
	if old, err := os.ReadFile(path + ".cost"); err == nil && len(o.BuildID()) > 0 {
		if _, err := fmt.Sscan(string(old), &c.Wall, &c.CPU, &c.Peak); err == nil {
			return path, c, nil
		}
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", c, err
	}
	f, err := os.Create(text)
	if err != nil {
		return "", c, err
	}
	if err := errors.Join(s.write(f, t), f.Close()); err != nil {
		return "", c, err
	}
	args := append(append([]string(nil), s.flags...), "-o", path, text)
	if c, err = runCosted(limit, "gcc", args...); err != nil {
		return "", c, err
	}
	line := fmt.Sprintln(c.Wall, c.CPU, c.Peak)
	return path, c, os.WriteFile(path+".cost", []byte(line), 0o666)
}
