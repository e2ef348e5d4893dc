package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/preload"
)

// printDropIn makes the eh_elfs of a service's programs in the system's cache, and prints the drop-in with which
// systemd preloads the libraries. The last of programs is the service's. It changes no unit: where the drop-in goes,
// and when the service restarts, is the administrator's to decide.
func printDropIn(ctx context.Context, programs, libraries []string, opt *preloadOptions, c *console) int {
	if err := builder.MakeCache(builder.SystemCache); err != nil {
		c.fail(builder.SystemCache, err)
		return exitFailed
	}
	// The libraries become part of a process with the service's rights: no other user may be able to change them, or a
	// folder above them.
	for _, path := range libraries {
		if err := input.CheckTrusted(path); err != nil {
			c.fail(path, err)
			return exitFailed
		}
	}
	options := builder.Options{Code: opt.code, Cache: builder.SystemCache, Workers: opt.jobs}
	if !builder.FillForPrograms(ctx, append(programs, opt.with...), libraries, true, options, filling(c, opt.quiet)) {
		return host.InterruptStatus(ctx)
	}
	program := programs[len(programs)-1]
	environ := preload.Environ(nil, strings.Join(libraries, ":"), find.AddressSanitizer(program))
	fmt.Fprint(c.out, dropIn(program, environ))
	return exitDone
}

// dropIn returns the text of a drop-in: systemd.unit(5), systemd.exec(5).
func dropIn(program string, environ []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# /etc/systemd/system/UNIT.service.d/ehasm.conf, for %s\n", output.Name(program))
	fmt.Fprintln(&b, "# Afterwards: systemctl daemon-reload && systemctl restart UNIT")
	fmt.Fprintln(&b, "# After updates, make the eh_elfs again by the same command, or install ehasm-system.")
	fmt.Fprintln(&b, "[Service]")
	// systemd reads C-style quotes and expands % in values: systemd.syntax(7), systemd.unit(5) "Specifiers".
	for _, entry := range environ {
		fmt.Fprintf(&b, "Environment=%s\n", strconv.Quote(strings.ReplaceAll(entry, "%", "%%")))
	}
	return b.String()
}
