package find

import (
	"path/filepath"
	"slices"
	"strings"
)

// launchers run the command that their arguments name.
var launchers = []string{"catchsegv", "chrt", "env", "heaptrack", "ionice", "nice", "nohup", "numactl", "setarch", "setsid",
	"stdbuf", "taskset", "time", "timeout", "valgrind", "xargs"}

// Launched returns the programs that the command at path starts, and the libraries that it
// puts into them, as far as that can be told without running it; and whether it is a command
// that starts others: a script, or one of a few that are known. The program is the first
// argument that is one. Libraries of a command DIR/NAME lie in DIR/../lib/NAME, as heaptrack's.
func Launched(path string, args []string, searchPath string) (files []string, launches bool) {
	programs, err := Programs(path, searchPath)
	if err != nil {
		return nil, false
	}
	name := filepath.Base(path)
	script := !slices.Contains(programs, path)
	if !script && !slices.Contains(launchers, name) {
		return nil, false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, lib := range []string{"lib", "lib/x86_64-linux-gnu", "lib64"} {
		found, _ := filepath.Glob(filepath.Join(quoteGlob(filepath.Join(filepath.Dir(path), "..", lib, name)), "*.so"))
		files = append(files, found...)
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") {
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

// quoteGlob makes a pattern of a path that matches the path alone.
func quoteGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// IsAddressSanitizer reports whether an entry of LD_PRELOAD or DT_NEEDED is the runtime of
// AddressSanitizer, GCC's or clang's.
func IsAddressSanitizer(name string) bool {
	name = filepath.Base(name)
	return strings.HasPrefix(name, "libasan.so") || strings.HasPrefix(name, "libclang_rt.asan") && strings.Contains(name, ".so")
}

// AddressSanitizer returns the name by which the program at path is linked with the shared
// runtime of AddressSanitizer; empty if it is not. The dynamic loader finds an entry of
// LD_PRELOAD without a slash as it finds what the program needs (ld.so(8)).
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
