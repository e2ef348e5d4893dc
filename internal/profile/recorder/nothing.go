//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"strings"
)

// tellNothing reports that a recording has no samples, why, and how to get some. It is a failure, unless a command was
// recorded: its exit status is passed on, as by time(1). lost is the number of samples that the kernel had no room
// for.
func (r *run) tellNothing(lost uint64) {
	err := errors.New("no samples: " + r.whyNothing(lost))
	if len(r.command) == 0 {
		r.c.Fail("", err)
	} else if !r.opt.Run.Quiet {
		r.c.Note("", err)
	}
}

// whyNothing returns the likely reason, by the event and the target, with advice that this user can follow. The cases
// go from what is known to what is supposed.
func (r *run) whyNothing(lost uint64) string {
	opt, who, kernel := r.opt, r.target(), ""
	waits := ", or see where it waits with 'ehasm record --off-cpu'" // agent and top have no --off-cpu
	if r.session.UserOnly() {
		kernel, waits = " outside of the kernel", "" // off-cpu occurs in the kernel: refused to this user
	}
	switch {
	case lost > 0:
		return fmt.Sprintf("the kernel had no room for %d of them: give more with --ring", lost)
	case opt.Sampling.is("off-cpu"):
		return who + ": no thread blocked and went on: record for longer, or see where they are with 'ehasm stack'"
	case opt.Sampling.is("page-faults"):
		return who + ": no memory was touched for the first time; record from the program's start"
	case len(opt.Sampling.Events.List) > 0 && opt.Sampling.Period > 0:
		return fmt.Sprintf("%s: no %s, or fewer than -c %d%s", who, &opt.Sampling.Events, opt.Sampling.Period, kernel)
	case opt.Sampling.occurs():
		return fmt.Sprintf("%s: no %s%s", who, &opt.Sampling.Events, kernel)
	case len(r.command) > 0:
		return fmt.Sprintf("%s used less processor time%s than passes between two samples at -F %d: raise -F%s",
			who, kernel, opt.Sampling.Frequency, waits)
	}
	return fmt.Sprintf("%s used no processor time%s, or too little for -F %d: record for longer%s",
		who, kernel, opt.Sampling.Frequency, waits)
}

// target returns what is recorded, in a few words.
func (r *run) target() string {
	switch t := &r.opt.Target; {
	case len(r.command) > 0:
		return r.command[0]
	case len(t.PIDs) > 0:
		return "process " + strings.Trim(strings.ReplaceAll(fmt.Sprint(t.PIDs), " ", ", "), "[]") + " and children"
	case t.Cgroup != "":
		return t.Cgroup
	}
	return "the system"
}

// tellBegun says that something other than a command is recorded, and how that ends.
func (r *run) tellBegun() {
	if len(r.command) > 0 || r.opt.Run.Quiet || r.opt.Run.Top {
		return
	}
	long := ""
	if r.opt.Run.Limit > 0 {
		long = fmt.Sprintf(" for %v", r.opt.Run.Limit)
	}
	r.c.Note(r.target(), fmt.Errorf("recording%s; ^C ends it", long))
}
