package builder

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// targetOf says what becomes of a job's object.
func targetOf(j *Job, opt *Options) compile.Target {
	t := compile.Target{
		Name:     filepath.Base(strings.TrimSuffix(j.Target, abi.Suffix)),
		Mapped:   j.Mapped && opt.Cache == "",
		Strict:   opt.Strict,
		Unproven: opt.Unproven,
	}
	if opt.Cache != "" {
		t.Object = output.Name(filepath.Base(j.Name)) // the cache is not beside the object: its name is noted in the file
	}
	return t
}

// upToDate reads the existing eh_elf of a job and reports whether building it
// again would change nothing.
func upToDate(j *Job, id *compile.Identity, opt *Options) (compile.Stats, bool) {
	// A target that is a link may lead to one of the names that will become
	// links to the target. In the cache a build makes no links.
	if st, err := os.Lstat(j.Target); err != nil || (len(j.Links) > 0 || opt.Cache != "") && !st.Mode().IsRegular() {
		return compile.Stats{}, false
	}
	open := func() (io.ReaderAt, func() error, error) {
		f, _, done, err := find.OpenFile(j.Target)
		return f, done, err
	}
	if opt.Cache != "" { // in the cache, only files that a loader would accept count
		open = func() (io.ReaderAt, func() error, error) {
			f, err := input.OpenTrusted(j.Target)
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
	if err != nil || !id.Current(info) {
		return compile.Stats{}, false
	}
	return compile.StatsOf(info), true
}
