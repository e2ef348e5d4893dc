package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// This file makes the perf.data files that script and perf unwind. They are made once, since a
// recording of the same program is another one each time.

// recording is a perf.data file.
type recording struct {
	Name, What string // the name of the file without its suffix; what ran
	path       string
}

// recordings are what is unwound, and how it is made. %s is the folder for files.
var recordings = []struct{ name, what, command string }{
	{"hackbench", "`perf bench sched messaging`, which is hackbench",
		"perf record -q -F 2500 -m 4M -e cpu-clock --call-graph dwarf -o %[1]s/hackbench.data -- perf bench sched messaging -l 3500 -g 3"},
	{"gzip", "gzip, 60 MB of shared objects",
		"cat /usr/lib/x86_64-linux-gnu/*.so* | head -c 60000000 >%[1]s/gzip.in; " +
			"perf record -q -F 2500 -m 4M -e cpu-clock --call-graph dwarf -o %[1]s/gzip.data -- gzip -c %[1]s/gzip.in; rm %[1]s/gzip.in"},
	{"g++", "g++ -O2, this benchmark's chains.cc",
		"perf record -q -F 1000 -m 4M -e cpu-clock --call-graph dwarf,32768 -o %[1]s/g++.data -- g++ -O2 -std=c++17 -c driver/chains.cc -o %[1]s/chains.o"},
	{"small", "gcc, a C file of a few lines",
		"echo 'int main(void) { return 0; }' >%[1]s/small.c; " +
			"perf record -q -F 1000 -e cpu-clock --call-graph dwarf -o %[1]s/small.data -- gcc -c %[1]s/small.c -o %[1]s/small.o"},
}

// record makes the recordings in dir that are not there.
func record(cfg config, dir string) ([]recording, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var list []recording
	for _, r := range recordings {
		made := recording{r.name, r.what, filepath.Join(dir, r.name+".data")}
		list = append(list, made)
		// A recording that is there is used again.
		if _, err := os.Stat(made.path); err == nil {
			continue
		}
		cmd := exec.Command("sh", "-c", fmt.Sprintf(r.command, dir))
		// Paths in the commands are relative to bench.
		cmd.Dir = filepath.Dir(cfg.sources)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); err != nil {
			// A part of a recording would be taken for one.
			os.Remove(made.path)
			return nil, fmt.Errorf("recording %s: %w: %s", r.name, err, firstLine(stderr.String()))
		}
		cfg.progress("%s recorded", r.name)
	}
	return list, nil
}
