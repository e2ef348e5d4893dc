//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// candidate is a package that may hold ELF files.
type candidate struct {
	section, name string
	size          int // installed, KB
}

// maxDownload leaves out packages that are mostly data or too large to fetch, in bytes.
const maxDownload = 100 << 20

// choose prints n packages: of those for amd64 that need libc6, sorted by section and size, as many at equal distances.
// The order in which they are printed is by a hash, so that the first of them are a sample, too.
func choose(ctx context.Context, n int, out io.Writer) error {
	available, err := exec.CommandContext(ctx, "apt-cache", "dumpavail").Output()
	if err != nil {
		return fmt.Errorf("apt-cache dumpavail: %w", err)
	}
	all := candidates(available)
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.section, b.section), cmp.Compare(a.size, b.size), cmp.Compare(a.name, b.name))
	})
	all = slices.CompactFunc(all, func(a, b candidate) bool { return a.name == b.name })
	n = min(n, len(all))
	names := make([]string, n)
	for i := range names {
		names[i] = all[i*len(all)/n].name
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(hash(a), hash(b)) })
	for _, name := range names {
		fmt.Fprintln(out, name)
	}
	return nil
}

// candidates parses the paragraphs of apt-cache dumpavail.
func candidates(available []byte) (list []candidate) {
	for paragraph := range bytes.SplitSeq(available, []byte("\n\n")) {
		fields := map[string]string{}
		lines := bufio.NewScanner(bytes.NewReader(paragraph))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if key, value, ok := strings.Cut(lines.Text(), ": "); ok {
				fields[key] = value
			}
		}
		installed, _ := strconv.Atoi(fields["Installed-Size"])
		download, _ := strconv.Atoi(fields["Size"])
		needs := fields["Depends"] + "," + fields["Pre-Depends"]
		if fields["Architecture"] == "amd64" && strings.Contains(needs, "libc6") && download <= maxDownload {
			list = append(list, candidate{section: fields["Section"], name: fields["Package"], size: installed})
		}
	}
	return list
}

// hash spreads names.
func hash(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return h.Sum64()
}
