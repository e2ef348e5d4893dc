package find

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// The layout of /etc/ld.so.cache as in glibc's dl-cache.h: an optional part in
// the old format ("ld.so-1.7.0", libc6 before 2.2), then, at the next multiple
// of 8, the new one, whose string offsets count from its own start.
const (
	cacheMagicOld = "ld.so-1.7.0"
	cacheMagicNew = "glibc-ld.so.cache1.1"

	cacheOldHeader = 16 // magic, padding, u32 entries
	cacheOldEntry  = 12 // i32 flags, u32 key, u32 value
	cacheNewHeader = 48 // magic, u32 entries, u32 bytes of strings, u8 flags, 3 padding, u32 extensions, 3 x u32
	cacheNewEntry  = 24 // i32 flags, u32 key, u32 value, u32 unused, u64 hwcap

	cacheFlagX8664 = 0x0303 // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6

	cacheHwcapExtension = 1 << 62    // this hwcap is an index into the glibc-hwcaps names
	cacheExtensionMagic = 0xeaa42174 // of the extension directory
	cacheExtensionHwcap = 1          // tag: offsets of the glibc-hwcaps names
)

// errBadCache says that a file is not an ld.so.cache in the format that glibc
// has written since 2.2.
var errBadCache = errors.New("not a " + cacheMagicNew + " file")

// cacheEntry is a file that the cache lists for a name.
type cacheEntry struct {
	path  string
	hwcap string // glibc-hwcaps subfolder such as "x86-64-v3"; empty for the plain one
}

// parseCache reads an ld.so.cache and returns its x86-64 entries by name, in
// the order of the file. Entries for legacy hardware capabilities are left out;
// entries out of bounds are ignored.
func parseCache(b []byte) (map[string][]cacheEntry, error) {
	le := binary.LittleEndian
	if bytes.HasPrefix(b, []byte(cacheMagicOld)) && len(b) >= cacheOldHeader { // the old part is only skipped
		end := cacheOldHeader + uint64(le.Uint32(b[12:]))*cacheOldEntry
		if end = (end + 7) &^ 7; end > uint64(len(b)) {
			return nil, errBadCache
		}
		b = b[end:]
	}
	if !bytes.HasPrefix(b, []byte(cacheMagicNew)) || len(b) < cacheNewHeader {
		return nil, errBadCache
	}
	count := uint64(le.Uint32(b[20:]))
	if cacheNewHeader+count*cacheNewEntry > uint64(len(b)) {
		return nil, errBadCache
	}
	text := string(b) // the strings share its memory, however many entries name the same
	hwcaps := cacheHwcaps(b, text, uint64(le.Uint32(b[32:])))
	entries := make(map[string][]cacheEntry)
	for e := b[cacheNewHeader:][:count*cacheNewEntry]; len(e) > 0; e = e[cacheNewEntry:] {
		if le.Uint32(e) != cacheFlagX8664 { // for another machine, or another C library
			continue
		}
		name, okName := cacheString(text, uint64(le.Uint32(e[4:])))
		path, okPath := cacheString(text, uint64(le.Uint32(e[8:])))
		if !okName || !okPath {
			continue
		}
		entry := cacheEntry{path: path}
		if hwcap := le.Uint64(e[16:]); hwcap != 0 {
			i := hwcap &^ cacheHwcapExtension
			if hwcap&cacheHwcapExtension == 0 || i >= uint64(len(hwcaps)) { // legacy: a bit mask instead of an index
				continue
			}
			entry.hwcap = hwcaps[i]
		}
		entries[name] = append(entries[name], entry)
	}
	return entries, nil
}

// cacheHwcaps returns the glibc-hwcaps names of the extension directory at off, or none: caches of glibc before 2.33
// have no directory. text is b as a string.
func cacheHwcaps(b []byte, text string, off uint64) []string {
	le := binary.LittleEndian
	if off == 0 || off+8 > uint64(len(b)) || le.Uint32(b[off:]) != cacheExtensionMagic {
		return nil
	}
	count := uint64(le.Uint32(b[off+4:]))
	for dir := b[off+8:]; count > 0 && len(dir) >= 16; count, dir = count-1, dir[16:] {
		start, size := uint64(le.Uint32(dir[8:])), uint64(le.Uint32(dir[12:]))
		if le.Uint32(dir) != cacheExtensionHwcap || start+size > uint64(len(b)) {
			continue
		}
		var names []string
		for s := b[start:][:size&^3]; len(s) > 0; s = s[4:] {
			name, _ := cacheString(text, uint64(le.Uint32(s)))
			names = append(names, name)
		}
		return names
	}
	return nil
}

// cacheString returns the string at an offset; ok is false if it does not end within the file or
// within maxString bytes.
func cacheString(text string, off uint64) (string, bool) {
	if off >= uint64(len(text)) {
		return "", false
	}
	s, _, ok := strings.Cut(text[off:min(off+maxString, uint64(len(text)))], "\x00")
	return s, ok
}
