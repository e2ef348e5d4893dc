package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/profile/script"
)

// scriptCommands are the ways to print a recording, by name; the first is what
// targets are about, the last what it is compared with.
var scriptCommands = []string{"ehasm", "ehasm, eh_elfs cached", "perf"}

// commandResult is the wall and processor time of each of them, by round, in
// seconds.
type commandResult struct {
	Name      string
	Bytes     int64 // of the recording
	Wall, CPU map[string][]float64
}

// measureCommand prints a recording with perf script and with ehasm script.
func measureCommand(cfg config, rec recording, rounds int) (*commandResult, error) {
	res := &commandResult{Name: rec.Name, Wall: map[string][]float64{}, CPU: map[string][]float64{}}
	st, err := os.Stat(rec.path)
	if err != nil {
		return nil, err
	}
	res.Bytes = st.Size()
	// Without --cache=false, a full cache; the empty one is for both other commands.
	cache, empty := filepath.Join(cfg.dir, "perf", "cache"), filepath.Join(cfg.dir, "perf", "empty")
	ehasm := filepath.Join(cfg.dir, "ehasm")
	if err := fillCache(cfg, cache, ehasm, rec.path); err != nil {
		return nil, err
	}
	for range rounds {
		for _, i := range rand.Perm(len(scriptCommands)) { // in random order, so that drift of the machine hits all alike
			home, args := empty, []string{ehasm, "script", "-q", "--max-stack=127", "--cache=false", "-i", rec.path}
			switch i {
			case 1:
				home, args = cache, slices.Delete(args, 4, 5)
			case 2:
				args = []string{"perf", "script", "--no-inline", "-i", rec.path}
			}
			wall, cpu, err := timeCommand(cfg, home, args...)
			if err != nil {
				return nil, err
			}
			n := scriptCommands[i]
			res.Wall[n] = append(res.Wall[n], wall.Seconds())
			res.CPU[n] = append(res.CPU[n], cpu.Seconds())
		}
	}
	cfg.progress("%s: %d rounds of the commands", rec.Name, rounds)
	return res, nil
}

// fillCache builds the eh_elfs of all objects in which a recording has frames; script
// itself does so only for those that are worth it.
func fillCache(cfg config, home, ehasm, path string) error {
	stats := filepath.Join(cfg.dir, "perf", "stats")
	if _, _, err := timeCommand(cfg, home, ehasm, "script", "-q", "--max-stack=127", "--cache=false", "--stats="+stats,
		"-i", path); err != nil {
		return err
	}
	defer os.Remove(stats)
	text, err := os.ReadFile(stats)
	if err != nil {
		return err
	}
	var summary script.Summary
	if err := json.Unmarshal(text, &summary); err != nil {
		return err
	}
	args := []string{ehasm, "build", "-q", "--cache", "--vdso"}
	for _, o := range summary.Objects {
		if o.Path != "" && o.Error == "" {
			args = append(args, o.Path)
		}
	}
	_, _, err = timeCommand(cfg, home, args...)
	return err
}

// timeCommand runs a command whose output goes to a file; home is the cache of
// ehasm.
func timeCommand(cfg config, home string, args ...string) (wall, cpu time.Duration, err error) {
	out, err := os.Create(filepath.Join(cfg.dir, "perf", "output"))
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout = out
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%v: %w", args, err)
	}
	return time.Since(begin), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
