package ondemand

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/input"
)

// cached returns the eh_elf of an object from the user's cache, or from the system's.
func cached(object *dwarfcfa.File) (image []byte, info elfout.Info, ok bool) {
	folders := []string{builder.SystemCache}
	if user, err := builder.CacheFolder(os.Getenv); err == nil {
		folders = []string{user, builder.SystemCache}
	}
	for _, folder := range folders {
		for _, name := range builder.NamesOf(object) {
			if image, info, ok = readCached(filepath.Join(folder, name), object); ok {
				return image, info, ok
			}
		}
	}
	return nil, elfout.Info{}, false
}

// readCached reads an eh_elf of the cache if no other user can have written it and it was made from the object.
func readCached(path string, object *dwarfcfa.File) ([]byte, elfout.Info, bool) {
	none := elfout.Info{}
	f, err := input.OpenTrusted(path) // its code is run
	if err != nil {
		return nil, none, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() > maxCached {
		return nil, none, false
	}
	image := make([]byte, st.Size())
	if n, err := f.ReadAt(image, 0); n < len(image) && err != nil {
		return nil, none, false
	}
	info, err := elfout.ReadInfo(bytes.NewReader(image)) // from the bytes that are proven, not from a file that may change
	if err != nil || info.Note.Check(object.File()) != nil {
		return nil, none, false
	}
	return image, info, true
}

// maxCached bounds what readCached reads, in bytes.
const maxCached = 1 << 31
