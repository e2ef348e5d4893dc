package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/ondemand"

	"github.com/spf13/pflag"
)

const buildHelp = `Compile the unwind tables of ELF files. For each file NAME, build writes
NAME.eh_elf.so beside it or under -o DIR. With --cache it writes the file where
libehunwind finds it by the object's build-id:
$XDG_CACHE_HOME/ehasm/.build-id/xx/yyyy.eh_elf.so. Beside it go the tables by
which 'ehasm record' unwinds in the kernel. With --system, for root, it writes
for all users, and leaves out files that other users can have written.

Usage:
  ehasm build [flags] PATH...

A PATH is a file or a folder. Folders are searched recursively; links to folders
in them are not followed. In a folder, a file that is not an x86-64 executable
or shared object with unwind tables is skipped and counted; given as a PATH it
is a failure, unless it is named *.eh_elf.so. A file with several names is
compiled once; the other names become symbolic links. Under -o, files of a
folder keep their paths relative to the folder; files given singly, and those
that --deps, --pid and --vdso add, go directly below DIR. Files that are up to
date are not written again.

For files that --deps and --pid find, build also makes links for the names to
which symbolic links lead, as in /proc/PID/maps, and for the DT_SONAME; those
without unwind tables get an eh_elf without rows. So a walker finds an eh_elf
for each mapped file.
`

const buildMore = `--deps looks where ld.so looks, without running anything: PT_INTERP, DT_RPATH,
LD_LIBRARY_PATH, DT_RUNPATH, /etc/ld.so.cache, default folders. It does not find
libraries that a program opens with dlopen.

--synth makes rows from code, as 'ehasm synth' shows them: missing, for code
without rows; wrong, also in place of rows that 'ehasm check' finds wrong; all,
for all code.

--from takes eh_elfs that another machine has made: URL/xx/yyyy.eh_elf.so is the
file of its cache, which any web server can serve. The server need not be
trusted: build makes the table of the object, as always, and uses a file only if
it is proven to mean that table. What is missing, of another release or not
proven is made here. With --root, the PATHs and a folder of --from are those of
the system in FOLDER.

Without -o, eh_elfs of the vDSO, and of files that a process has mapped but that
are no longer at their path, are written to the current folder.

Examples:
  ehasm build ./bin
  ehasm build -o eh_elfs /usr/bin /usr/lib/x86_64-linux-gnu
  ehasm build --deps --vdso -o eh_elfs /bin/ls
  ehasm build --pid 1234 -o eh_elfs
  ehasm build --cache --deps --vdso /bin/ls
  ehasm build --system /usr/bin /usr/lib
  ehasm build --system --root ./image --from http://symbols.example /usr
  ehasm build --strict --json libfoo.so
  ehasm build --dispatch=packed -j1 libfoo.so
  ehasm build --synth=missing libx264.so.164
`

// buildOptions holds the flags of build. Of the three places for a target, out excludes cache; without both, an eh_elf
// lies beside its object.
type buildOptions struct {
	find.Options
	out      string          // a folder. The empty string stands for the folder of each object.
	cache    string          // the cache folder, with --cache
	remote   *builder.Remote // of --from; nil: none
	jobs     int             // files compiled at the same time, 1 or more
	force    bool            // files that are up to date are written as well
	strict   bool            // an FDE or row that cannot be compiled fails its file
	noVerify bool            // the proof is left out: files are written as the compiler made them
	code     compile.Options // what the bytes of an eh_elf depend on
	json     bool
	quiet    bool
	verbose  bool
}

// buildVerb is the verb build: flags become buildOptions, and wrong combinations are usage errors.
func buildVerb() verb {
	v := verb{name: "build", brief: "compile files, folders, what they load, or what a process maps", help: buildHelp,
		more: buildMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &buildOptions{}
		fs.StringVarP(&opt.out, "output", "o", "", "write below this `FOLDER`, made if missing")
		cache := fs.Bool("cache", false, "write into the user's cache, by build-id")
		system := fs.Bool("system", false, "write into the cache of all users, "+builder.SystemCache)
		root := fs.String("root", "", "with --system: of the system below `FOLDER`, such as an unpacked image")
		from := fs.String("from", "", "with --cache, --system: take eh_elfs from another cache at `URL`, or a folder, and prove them")
		fs.BoolVar(&opt.Deps, "deps", false, "add every shared object that the files would load")
		fs.BoolVar(&opt.VDSO, "vdso", false, "add the running kernel's vDSO")
		fs.IntSliceVar(&opt.PIDs, "pid", nil, "add everything that process `N` has mapped executable")
		declareJobs(fs, &opt.jobs, "compile `N` files at a time")
		fs.BoolVar(&opt.force, "force", false, "write files that are up to date, too")
		fs.BoolVar(&opt.strict, "strict", false, "fail if an FDE or a row cannot be compiled, instead of leaving it out")
		fs.BoolVar(&opt.code.NoDeref, "no-deref", false, "give _eh_elf no deref argument: it reads memory directly")
		fs.BoolVar(&opt.code.Relro, "relro", false, "for dlopen with glibc before 2.35: .dynamic is writable until relocated")
		fs.BoolVar(&opt.code.NoExceptions, "no-exceptions", false, "leave out the tables for C++ exceptions")
		fs.BoolVar(&opt.noVerify, "no-verify", false, "do not prove the code against the tables")
		// Scripts written for earlier releases go on working.
		fs.String("optimize", "", "no effect")
		fs.MarkHidden("optimize")
		tables := declareTables(fs)
		mode := declareSynth(fs, "off")
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		fs.BoolVarP(&opt.quiet, "quiet", "q", false, "print nothing but failures")
		fs.BoolVarP(&opt.verbose, "verbose", "v", false, "name what is skipped and left out, with the reason")
		return func(ctx context.Context, paths []string, c *console) int {
			if err := opt.check(paths); err != nil {
				return v.misuse(c, err)
			}
			if fs.Changed("optimize") {
				fmt.Fprintln(c.stderr, "ehasm: --optimize has no effect, and will be an error in a later release: files are as fast as with speed; --dispatch=packed makes small ones")
			}
			// e.g. --output=$UNSET; falling back to the object's folder would surprise
			if opt.out == "" && fs.Changed("output") {
				return v.misuse(c, errors.New("--output: the name of the folder is empty"))
			}
			if fs.Changed("from") {
				if !*cache && !*system {
					return v.misuse(c, errors.New("--from needs --cache or --system"))
				}
				var err error
				if opt.remote, err = builder.NewRemote(*from); err != nil { // without the value, which may have a password
					return v.misuse(c, fmt.Errorf("--from: %w", err))
				}
			}
			// The target is one of three: beside the objects or in a folder, the user's cache, the
			// cache of all users.
			switch {
			case (*cache || *system) && opt.out != "":
				return v.misuse(c, errors.New("--cache and --system exclude --output"))
			case *root == "" && fs.Changed("root"): // e.g. --root=$UNSET; this machine's cache would surprise
				return v.misuse(c, errors.New("--root: the name of the folder is empty"))
			case *root != "" && (opt.VDSO || len(opt.PIDs) > 0): // /proc would be the folder's
				return v.misuse(c, errors.New("--root excludes --pid and --vdso"))
			case *root != "" && !*system:
				return v.misuse(c, errors.New("--root needs --system"))
			case *system:
				opt.cache = builder.SystemCache
				if *root == "" {
					break
				}
				if err := builder.EnterRoot(*root, opt.remote); err != nil {
					c.fail(*root, err)
					return exitFailed
				}
			case *cache:
				var err error
				if opt.cache, err = builder.CacheFolder(os.Getenv); err != nil {
					return v.misuse(c, err)
				}
			}
			// The last flags have parsers in other packages: their words are checked now.
			if err := tables(&opt.code); err != nil {
				return v.misuse(c, err)
			}
			var err error
			if opt.code.Synth, err = mode(); err != nil {
				return v.misuse(c, err)
			}
			return build(ctx, paths, opt, c)
		}
	}
	return v
}

// check returns an error for flags that make no sense, whatever the target. Those that depend on the target come in
// buildVerb, as it needs to know which flags were given.
func (opt *buildOptions) check(paths []string) error {
	if len(paths) == 0 && len(opt.PIDs) == 0 && !opt.VDSO {
		return errors.New("no file, folder, --pid or --vdso given")
	}
	if err := checkJobs(opt.jobs); err != nil {
		return err
	}
	if i := slices.IndexFunc(opt.PIDs, func(pid int) bool { return pid < 1 }); i >= 0 {
		return fmt.Errorf("--pid %d: not a process", opt.PIDs[i])
	}
	if opt.quiet && opt.verbose {
		return errors.New("--quiet and --verbose exclude each other")
	}
	return nil
}

// declareTables declares the flags for the section to read and the dispatch, and returns a function that stores their
// values once they are parsed. build, dump and preload have them: they decide about the bytes of an eh_elf.
func declareTables(fs *pflag.FlagSet) func(*compile.Options) error {
	source := fs.String("source", "auto", "read `SECTION`: eh_frame, debug_frame, sframe, or auto: first two, else sframe")
	dispatch := fs.String("dispatch", "tree",
		"look pcs up by `WAY`: tree (large files packed), or packed, for small files")
	return func(opt *compile.Options) (err error) {
		if opt.Source, err = dwarfcfa.ParseSource(*source); err != nil {
			return fmt.Errorf("--source: %w", err)
		}
		if opt.Dispatch, err = compile.ParseDispatch(*dispatch); err != nil {
			return fmt.Errorf("--dispatch: %w", err)
		}
		return nil
	}
}

// declareJobs declares the flag that says how many workers there are. The text of its default is the same on every
// machine, as man pages are; the value is GOMAXPROCS, which heeds the CPU limit of a container.
func declareJobs(fs *pflag.FlagSet, n *int, usage string) {
	fs.IntVarP(n, "jobs", "j", runtime.GOMAXPROCS(0), usage)
	fs.Lookup("jobs").DefValue = "one per processor"
}

// checkJobs returns an error for a value of the flag that makes no sense.
func checkJobs(n int) error {
	if n < 1 {
		return fmt.Errorf("-j %d: want at least 1", n)
	}
	return nil
}

// build is the verb: it plans, compiles each input, and reports.
func build(ctx context.Context, paths []string, opt *buildOptions, c *console) int {
	begin := time.Now()
	opt.Loader = find.HostLoader(os.Getenv)
	progress := &buildProgress{c: c, failed: c.fail, noted: c.note, bar: !opt.quiet && !opt.json, details: opt.verbose}
	if opt.quiet {
		progress.noted = silent
	}
	plan := builder.NewPlan(ctx, paths, opt.Options, opt.out, opt.cache)
	// What cannot be built is reported now; the rest is built nevertheless.
	for _, p := range plan.Failed {
		c.fail(p.Path, p.Err)
	}
	for _, p := range plan.Notes {
		progress.Note(p.Path, p.Err)
	}
	if err := builder.MakeTarget(opt.out, opt.cache); err != nil {
		c.fail(cmp.Or(opt.out, opt.cache), err)
		return exitFailed
	}
	if err := plan.Keep(paths, opt.cache); err != nil {
		c.fail("the next 'ehasm cache --system --prune --only' removes what is built now", err)
	}
	defer builder.LimitMemory(plan.Jobs)()
	// No outcome at all: a signal came before the end.
	outcomes := builder.Build(ctx, plan.Jobs, opt.options(), progress)
	if outcomes == nil {
		return host.InterruptStatus(ctx)
	}
	r := builder.NewReport(outcomes, plan.Skipped, time.Since(begin))
	// A PATH that is a file fails by itself; folders without one suitable file pass silently
	// without this.
	if len(r.Done) == 0 && len(c.failures) == 0 {
		failFolders(paths, c)
	}
	if opt.verbose {
		r.Details(c.note)
	}
	switch {
	case opt.json:
		r.JSON(c.out, c.failures)
	case !opt.quiet:
		r.Table(c.out)
		if len(r.Done) > 0 && opt.out == "" && opt.cache == "" {
			fmt.Fprintf(c.out, "eh_elfs are beside their files, such as %s\n", output.Name(r.Done[0].Target))
		}
	}
	return exitDone // or failed, if c has a failure
}

// failFolders reports that folders have nothing to compile: a mistyped one must not pass in a package's build.
func failFolders(paths []string, c *console) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			c.fail(path, errors.New("nothing to compile; -v names what is skipped"))
		}
	}
}

// options returns the settings of the build in the words of package builder.
func (opt *buildOptions) options() builder.Options {
	to := builder.Options{Code: opt.code, Cache: opt.cache, Workers: opt.jobs, Force: opt.force, Strict: opt.strict,
		Unproven: opt.noVerify, Remote: opt.remote}
	// The tables by which the kernel unwinds go into the user's cache alone: record looks nowhere else for them.
	if opt.cache != "" && opt.cache != builder.SystemCache {
		to.Also = ondemand.KeepTables
	}
	return to
}

// buildProgress tells the console what a build does: it is the builder.Progress of build, preload and of verbs that
// fill the cache. Workers call it concurrently; the console has the lock.
type buildProgress struct {
	c       *console
	failed  func(name string, err error) // for eh_elfs that cannot be made
	noted   func(name string, err error)
	bar     bool
	details bool // what is left out is told after the build
}

// filling returns the progress of a verb that does more than fill the cache: eh_elfs that cannot be built are no
// failures.
func filling(c *console, quiet bool) *buildProgress {
	if quiet {
		return &buildProgress{c: c, failed: silent, noted: silent}
	}
	return &buildProgress{c: c, failed: c.note, noted: c.note, bar: true}
}

// silent drops a message, under --quiet.
func silent(string, error) {}

// Note implements builder.Progress: something worth a line, but no failure.
func (p *buildProgress) Note(name string, err error) { p.noted(name, err) }

// Begin implements builder.Progress. work is in the units of Outcome.Work: files differ in size by a factor of
// thousands, so their number would say nothing of the time that is left. A bar for a single file would only flicker.
func (p *buildProgress) Begin(files int, work int64) {
	if files > 1 && p.bar {
		p.c.startBuilding(files, work)
	}
}

// Done implements builder.Progress: it reports how a file ended and moves the bar.
func (p *buildProgress) Done(o *builder.Outcome) {
	// Each unfinished file fails when the build is interrupted; End says so once.
	if o.Status == builder.Failed && !errors.Is(o.Err, context.Canceled) && !errors.Is(o.Err, context.DeadlineExceeded) {
		p.failed(o.Name, o.Err)
	}
	if o.Status == builder.Skipped && o.Err != nil {
		p.noted(o.Name, o.Err)
	}
	// An FDE that is left out makes an eh_elf that knows less than its object: worth a line unless -v tells each of
	// them after the build.
	if lost := o.Stats.Losses(); len(lost) > 0 && o.Status == builder.Built && !p.details {
		p.noted(o.Name, fmt.Errorf("left out: %s; the first: %w", builder.CountsText(lost), o.Details[0]))
	}
	p.c.advance(o.Work())
}

// End implements builder.Progress. err is the interruption, nil if the build went through.
func (p *buildProgress) End(err error) {
	p.c.stopBar()
	if err != nil {
		p.c.fail("interrupted", err)
	}
}
