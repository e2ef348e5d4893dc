package inspect

import (
	"fmt"
	"io"
	"time"

	"github.com/ehasm/ehasm/internal/files/ehcache"
	"github.com/ehasm/ehasm/internal/files/output"
)

// Cache says what a cache of eh_elfs holds, and what Take removed.
type Cache struct {
	Folder string `json:"folder"`
	Files  int    `json:"files"` // before any are removed
	Bytes  int64  `json:"bytes"`
	Oldest string `json:"least_recently_used,omitempty"` // a date
	// File times do not record use here, so Oldest is of the last write.
	NoTimes bool     `json:"use_not_recorded"`
	Removed int      `json:"removed"` // files that Take removed, and their bytes
	Freed   int64    `json:"removed_bytes"`
	Kept    []string `json:"kept,omitempty"` // objects, and folders of such, whose eh_elfs stay
}

// Take looks at the folder's files, and removes those beyond the limits if prune is set. The error is of the folder, or
// of the first file that can't be removed; the fields hold what was done until then.
func (r *Cache) Take(folder *ehcache.Folder, limits ehcache.Limits, prune bool) error {
	// All ages are counted from one moment.
	now := time.Now()
	files, err := folder.Files(now)
	if err != nil {
		return err
	}
	r.Files, r.Bytes, r.NoTimes = len(files), sizeOf(files), folder.NoTimes
	if len(files) > 0 {
		r.Oldest = files[0].Used.Format(time.DateOnly)
	}
	if !prune {
		return nil
	}
	removed, err := folder.Remove(limits.Beyond(files, now))
	r.Removed, r.Freed = len(removed), sizeOf(removed)
	return err
}

// sizeOf returns the bytes of files.
func sizeOf(files []ehcache.File) (bytes int64) {
	for _, f := range files {
		bytes += f.Size
	}
	return bytes
}

// Print writes a summary for people.
func (r *Cache) Print(w io.Writer, pruned bool) {
	// Megabytes are decimal.
	const mega = 1e6
	fmt.Fprintf(w, "%s: %d files, %.1f MB", output.Name(r.Folder), r.Files, float64(r.Bytes)/mega)
	switch {
	case r.Oldest == "":
	case r.NoTimes:
		fmt.Fprintf(w, ", the oldest of %s (this file system does not record use)", r.Oldest)
	default:
		fmt.Fprintf(w, ", the least recently used on %s", r.Oldest)
	}
	fmt.Fprintln(w)
	for _, path := range r.Kept {
		fmt.Fprintf(w, "kept: %s\n", output.Name(path))
	}
	if pruned {
		fmt.Fprintf(w, "removed: %d files, %.1f MB\n", r.Removed, float64(r.Freed)/mega)
	}
}
