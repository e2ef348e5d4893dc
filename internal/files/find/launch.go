package find

import (
	"path/filepath"
	"slices"
	"strings"
)

// This file guesses what a command will start, so that eh_elfs are there in time. A wrong guess costs some building, a
// missing one some stacks.

// launchers run the command that their arguments name.
var launchers = []string{"catchsegv", "chrt", "env", "heaptrack", "ionice", "nice", "nohup", "numactl", "setarch",
	"setsid",
	"stdbuf", "taskset", "time", "timeout", "valgrind", "xargs"}

// Launched returns the programs that the command at path starts, and the libraries that it
// injects into them, as far as that is known without running it. launches reports whether the
// command starts others: a script, or one of a few known commands. The program is the first
// argument that names one. Libraries of a command DIR/NAME lie in DIR/../lib/NAME, as those of
// heaptrack do.
func Launched(path string, args []string, searchPath string) (files []string, launches bool) {
	programs, err := Programs(path, searchPath)
	if err != nil {
		return nil, false
	}
	name := filepath.Base(path)
	script := !slices.Contains(programs, path) // its interpreter runs, the script itself is no program
	if !script && !slices.Contains(launchers, name) {
		return nil, false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	// The places where distributions install the libraries of a program.
	for _, lib := range []string{"lib", "lib/x86_64-linux-gnu", "lib64"} {
		found, _ := filepath.Glob(filepath.Join(quoteGlob(filepath.Join(filepath.Dir(path), "..", lib, name)), "*.so"))
		files = append(files, found...)
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") { // an option, or an assignment of env
			continue
		}
		program, err := Command(arg, searchPath)
		if err != nil {
			continue
		}
		if found, err := Programs(program, searchPath); err == nil {
			files = append(files, found...)
			break
		}
	}
	return files, true
}

// quoteGlob returns a pattern that matches only the path.
func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// IsAddressSanitizer reports whether an entry of LD_PRELOAD or DT_NEEDED is the runtime of
// AddressSanitizer, GCC's or clang's.
func IsAddressSanitizer(name string) bool {
	name = filepath.Base(name)
	return strings.HasPrefix(name, "libasan.so") || strings.HasPrefix(name, "libclang_rt.asan") &&
		strings.Contains(name, ".so")
}

// AddressSanitizer returns the name under which the program at path is linked with the
// shared runtime of AddressSanitizer, or "" if it is not. The dynamic loader searches for
// an entry of LD_PRELOAD without a slash as for the program's libraries (ld.so(8)).
func AddressSanitizer(path string) string {
	f, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	d, err := readDynamic(f)
	if err != nil {
		return ""
	}
	for _, name := range d.needed {
		if IsAddressSanitizer(name) {
			return name
		}
	}
	return ""
}
