package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/trust"
)

// canRun reports whether generated code runs on this machine.
func canRun() bool { return runtime.GOOS == "linux" && runtime.GOARCH == "amd64" }

// targetOf says what becomes of a job's object.
func targetOf(j *job, opt *buildOptions) compile.Target {
	t := compile.Target{
		Name:     filepath.Base(strings.TrimSuffix(j.target, abi.Suffix)),
		Mapped:   j.Mapped && opt.cache == "",
		Strict:   opt.strict,
		Unproven: opt.noVerify,
	}
	if opt.cache != "" {
		t.Object = quote(filepath.Base(j.name))
	}
	return t
}

// upToDate reads the existing eh_elf of a job and reports whether building it
// again would change nothing.
func upToDate(j *job, id *compile.Identity, opt *buildOptions) (compile.Stats, bool) {
	// A target that is a link may lead to one of the names that will become
	// links to the target. In the cache a build makes no links.
	if st, err := os.Lstat(j.target); err != nil || (len(j.links) > 0 || opt.cache != "") && !st.Mode().IsRegular() {
		return compile.Stats{}, false
	}
	open := func() (io.ReaderAt, func() error, error) {
		f, _, done, err := find.OpenFile(j.target)
		return f, done, err
	}
	if opt.cache != "" { // in the cache, only files that a loader would accept count
		open = func() (io.ReaderAt, func() error, error) {
			f, err := trust.Open(j.target)
			if err != nil {
				return nil, nil, err
			}
			return f, f.Close, nil
		}
	}
	f, done, err := open()
	if err != nil {
		return compile.Stats{}, false
	}
	defer done()
	info, err := elfout.ReadInfo(f)
	if err != nil || !id.Current(info, opt.cache != "") {
		return compile.Stats{}, false
	}
	return compile.StatsOf(info), true
}
