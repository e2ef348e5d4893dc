package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/preload"

	"github.com/spf13/pflag"
)

const preloadHelp = `Run a program that unwinds its own stack (a profiler, a heap tracer,
backtrace()) with libehunwind in place of its unwinder. preload builds the
eh_elfs that the cache lacks for the program, the libraries it loads and the
vDSO. It then replaces itself by the program, with libehunwind-preload.so in
LD_PRELOAD, and with ehasm's libgcc_s.so.1, if there is one, which makes C++
exceptions faster. The program keeps the process id, so its exit status, signals
and terminal are its own.

Usage:
  ehasm preload [flags] [--] COMMAND [ARGUMENT...]
  ehasm preload --system [flags] [--] COMMAND [ARGUMENT...]
`

const preloadMore = `An object whose eh_elf cannot be made is named; for stacks through it, the
program's own unwinder does the work. Name libraries that the program opens
later with dlopen, and programs that it starts, by --with; processes that it
starts inherit LD_PRELOAD. If COMMAND is a script, or starts a program that its
arguments name (env, time, heaptrack), eh_elfs are also built for that program
and for the libraries in ../lib/COMMAND. If the program is linked with
AddressSanitizer, its runtime is put first. A process whose stacks could not be
taken over says so at exit, and why. Signals that are ignored when preload
starts have their default action in the program, except SIGHUP and SIGINT.

With --system preload runs nothing. As root, it makes the eh_elfs in
/usr/lib/ehasm. It prints a systemd drop-in that preloads the libraries into the
service whose ExecStart= is COMMAND. The service itself makes no eh_elfs. See
also 'ehasm build --system'.

The library is looked for beside the ehasm command, in ../lib and
../lib/x86_64-linux-gnu from there, and in build/runtime, where 'make runtime'
puts it; EHASM_PRELOAD_LIBRARY or --library names another. libgcc/libgcc_s.so.1
is looked for beside the library. With EHASM_STATS=1 the program prints what was
unwound.

Exit status: 126 or 127 if COMMAND cannot be executed or found, as in env(1); 1
if the preload is impossible; otherwise COMMAND's.

Examples:
  ehasm preload -- ./server --port 8080
  ehasm preload heaptrack ./server
  ehasm preload --with /usr/lib/python3/dist-packages -- python3 work.py
  ehasm preload --no-exceptions ./program
  ehasm preload --system -- /usr/sbin/server > server.service.d/ehasm.conf
  LD_PRELOAD=libprofiler.so.0 CPUPROFILE=out.prof ehasm preload ./program
`

// This file finds a program as a shell would, makes its eh_elfs, and becomes it with libehunwind
// preloaded.

// Exit statuses if the command is not run, those of env(1).
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// The preload library's file name, the variable that overrides its path, and its companion for C++
// exceptions.
const (
	preloadName     = "libehunwind-preload.so"
	preloadVariable = "EHASM_PRELOAD_LIBRARY"
	exceptionsName  = "libgcc/libgcc_s.so.1" // beside the preload library
)

// preloadOptions holds the flags of preload.
type preloadOptions struct {
	// How the eh_elfs are built. withExceptions takes NoExceptions out: it concerns the preloaded
	// libraries alone.
	code compile.Options
	// A path; "": $EHASM_PRELOAD_LIBRARY, else the file that was installed with this program.
	library string
	with    []string // further files or folders to build for, e.g. plug-ins that dlopen loads.
	jobs    int      // files compiled at the same time
	quiet   bool
	system  bool // print a drop-in for a service
}

// preloadVerb is the verb preload. Flags end at the command's name.
func preloadVerb() verb {
	v := verb{name: "preload", brief: "run a program with libehunwind in place of its unwinder", help: preloadHelp,
		more: preloadMore, command: true}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &preloadOptions{}
		fs.StringVar(&opt.library, "library", "", "preload `FILE`")
		fs.StringArrayVar(&opt.with, "with", nil, "also build for `PATH`, a file or folder; may be repeated")
		declareJobs(fs, &opt.jobs, "compile `N` files at a time")
		fs.BoolVar(&opt.code.NoExceptions, "no-exceptions", false, "leave C++ exceptions to the system's libgcc")
		fs.BoolVar(&opt.system, "system", false,
			"do not run COMMAND: fill the cache of all users, print a drop-in for its systemd unit")
		tables := declareTables(fs)
		fs.BoolVarP(&opt.quiet, "quiet", "q", false, "do not report objects whose eh_elf cannot be made, and nothing at exit")
		return func(ctx context.Context, args []string, c *console) int {
			if len(args) == 0 {
				return v.misuse(c, errors.New("no command given"))
			}
			if err := checkJobs(opt.jobs); err != nil {
				return v.misuse(c, err)
			}
			if err := tables(&opt.code); err != nil {
				return v.misuse(c, err)
			}
			return runPreload(ctx, args, opt, c)
		}
	}
	return v
}

// runPreload is the verb: it finds the program, builds the missing eh_elfs, and executes the program. It returns only
// if that fails, with the exit status. The order matters: whatever can be refused is refused before the build, which
// may take minutes for a large program.
func runPreload(ctx context.Context, command []string, opt *preloadOptions, c *console) int {
	// A script leads to its interpreter, env to what it runs: the last of the programs is the one
	// that stays.
	path, err := find.Command(command[0], find.SearchPath())
	if err != nil {
		c.fail(command[0], err)
		return commandStatus(err)
	}
	programs, err := find.Programs(path, find.SearchPath())
	if err != nil {
		c.fail(path, err)
		return commandStatus(err)
	}
	program := programs[len(programs)-1]
	launched, launches := find.Launched(path, command[1:], find.SearchPath())
	// A set-user-ID or static program would ignore LD_PRELOAD; better to refuse than to run without
	// effect.
	if err := find.PreloadObstacle(program); err != nil {
		c.fail(program, err)
		return exitFailed
	}
	library, err := preload.Library(opt.library, preloadVariable, preloadName)
	if err != nil {
		c.fail(preloadName, err)
		return exitFailed
	}
	// While eh_elfs are built, a signal ends the build in good order.
	ctx, stop := host.InterruptContext(ctx)
	defer stop()
	libraries := opt.withExceptions(ctx, library, slices.Concat(programs, launched), c)
	if opt.system {
		return printDropIn(ctx, slices.Concat(launched, programs), libraries, opt, c)
	}
	if !builder.FillForPrograms(ctx, slices.Concat(programs, launched, opt.with), libraries, true,
		builder.Options{Code: opt.code, Workers: opt.jobs}, filling(c, opt.quiet)) {
		return host.InterruptStatus(ctx)
	}
	// From here on, signals end the process again: the program must begin with their default actions, since execve(2)
	// keeps which signals are ignored, and resets those that are caught.
	stop()
	environ := preload.Environ(os.Environ(), strings.Join(libraries, ":"), find.AddressSanitizer(program))
	if !opt.quiet {
		environ = explaining(environ, launches)
	}
	host.StopTimer()
	err = syscall.Exec(path, command, environ)
	if errors.Is(err, syscall.ENOEXEC) { // as execvp(3) does
		err = syscall.Exec(find.Shell, append([]string{find.Shell, path}, command[1:]...), environ)
	}
	c.fail(path, fmt.Errorf("execve: %w", err))
	return exitNotExecutable
}

// commandStatus returns the exit status if a command cannot be run, by the rule of POSIX for env and the shell.
func commandStatus(err error) int {
	if errors.Is(err, find.ErrCommandNotFound) {
		return exitNotFound
	}
	return exitNotExecutable
}

// withExceptions adds the libgcc_s beside the preload library, if there is one that the programs start with. The
// eh_elfs have the tables it needs in any case, for other programs.
func (opt *preloadOptions) withExceptions(ctx context.Context, library string, programs []string, c *console) []string {
	path := filepath.Join(filepath.Dir(library), exceptionsName)
	leave := opt.code.NoExceptions
	opt.code.NoExceptions = false
	if _, err := preload.Usable(path); err != nil || leave {
		return []string{library}
	}
	loader := find.HostLoader(os.Getenv)
	loader.Preload = preload.Split(os.Getenv("LD_PRELOAD"))
	if err := preload.NewerThan(ctx, path, programs, loader); err != nil {
		filling(c, opt.quiet).Note(path, err)
		return []string{library}
	}
	return []string{library, path}
}

// explaining sets the environment so that the library says at exit if it took nothing over, and why. That concerns the
// process that this one becomes, so the variable has its PID, which execve keeps; children have other ones and stay
// silent. A launcher such as heaptrack starts the program as a child: then 0 lets the first process speak that
// unwinds.
func explaining(environ []string, launches bool) []string {
	const name = "EHASM_PRELOADED="
	pid := os.Getpid()
	if launches {
		pid = 0
	}
	// as of an ehasm preload that runs this one: getenv(3) finds the first of two
	environ = slices.DeleteFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, name) })
	return append(environ, name+strconv.Itoa(pid))
}
