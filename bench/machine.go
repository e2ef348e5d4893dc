package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// machine is where and with what the benchmark ran.
type machine struct {
	// As their systems name themselves; Load is of the run's beginning.
	CPU, Kernel, System, Go, GCC, Commit, Load string
	Cores                                      int
	Packages                                   []string // versions of the unwinders and libraries, where dpkg knows them
}

// readMachine asks the system; dir is where run.sh noted what it unpacked.
func readMachine(dir string) (m machine) {
	m.Cores = runtime.NumCPU()
	m.Go = runtime.Version()
	m.CPU = field("/proc/cpuinfo", "model name", ":")
	m.System = strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`)
	m.Kernel = firstLine(fileText("/proc/sys/kernel/osrelease"))
	m.Load = firstLine(fileText("/proc/loadavg"))
	m.GCC = output("gcc", "--version")
	m.Commit = output("git", "rev-parse", "--short", "HEAD")
	// What contenders are made of.
	for _, p := range []string{"libc6", "libgcc-s1", "libstdc++6", "libunwind8", "libdw1", "libpython3.11", "binutils",
		"valgrind"} {
		if v := output("dpkg-query", "-W", "-f", "${Version}", p); v != "" {
			m.Packages = append(m.Packages, p+" "+v)
		}
	}
	if v := firstLine(fileText(filepath.Join(dir, "lib", "llvm-version"))); v != "" {
		m.Packages = append(m.Packages, "LLVM's "+v)
	}
	return m
}

// fileText returns the contents of a file.
func fileText(path string) string {
	b, _ := os.ReadFile(path) // shown as empty if it is missing
	return string(b)
}

// field returns what follows a name in a file of "name separator value" lines.
func field(path, name, separator string) string {
	for line := range strings.Lines(fileText(path)) {
		k, v, ok := strings.Cut(line, separator)
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// output returns the first line that a program prints, or "" if it cannot be run.
func output(name string, args ...string) string {
	b, _ := exec.Command(name, args...).Output()
	return firstLine(string(b))
}
