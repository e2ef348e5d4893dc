package prove

import (
	"bytes"
	"debug/elf"
	"slices"
)

// This file checks both hash tables of dynamic symbols, of which loaders of different ages use one. DT_HASH: gABI
// chapter 5, "Hash Table"; DT_GNU_HASH has no standard but binutils and glibc (dl-lookup.c, do_lookup_x).

// checkHashes checks the complete contents of the symbol tables, since lookups of names that are not
// there must also work: loaders look up every name in every file. A wrong bucket could make the lookup
// of another library's name end here, or never end.
func (im *image) checkHashes() error {
	count := uint32(len(exports)) + 1 // the exports behind the null symbol
	if !zero(im.at(im.dynamic.tags[elf.DT_SYMTAB], elf.Sym64Size)) {
		return imageError("the first dynamic symbol")
	}
	// Each export was found after the first symbol, so that no symbol is left over.
	text := []byte{0}
	soname, _ := im.name(uint32(im.dynamic.tags[elf.DT_SONAME]))
	type namedAt struct {
		offset uint32
		name   string
	}
	names := []namedAt{{uint32(im.dynamic.tags[elf.DT_SONAME]), soname}}
	hashOf, sysvOf := make([]uint32, count), make([]uint32, count)
	for i := uint32(1); i < count; i++ {
		s, ok1 := im.sym(i)
		name, ok2 := im.name(s.Name)
		// Each symbol must be an export that the lookups by name have found.
		if !ok1 || !ok2 || im.dynamic.symbols[name] != s {
			return imageError("dynamic symbol %d", i)
		}
		names = append(names, namedAt{s.Name, name})
		hashOf[i], sysvOf[i] = gnuHash(name), sysvHash(name)
	}
	slices.SortFunc(names, func(a, b namedAt) int { return int(int64(a.offset) - int64(b.offset)) })
	for _, n := range names {
		if int(n.offset) != len(text) {
			return imageError("the names of dynamic symbols")
		}
		text = append(append(text, n.name...), 0)
	}
	if uint64(len(text)) != im.dynamic.tags[elf.DT_STRSZ] ||
		!bytes.Equal(im.at(im.dynamic.tags[elf.DT_STRTAB], uint64(len(text))), text) {
		return imageError("the names of dynamic symbols")
	}
	// DT_HASH: buckets and chains lead to their own symbols and end.
	b := im.at(im.dynamic.tags[elf.DT_HASH], 8)
	buckets, chains := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])) // sysvLookup has read both
	b = im.at(im.dynamic.tags[elf.DT_HASH]+8, 4*(buckets+chains))
	// Three exports need few buckets; the bound keeps a hostile table cheap.
	if b == nil || buckets > 64 {
		return imageError("DT_HASH")
	}
	word := func(i uint64) uint64 { return uint64(le.Uint32(b[4*i:])) }
	for k := range buckets {
		steps := uint64(0)
		for i := word(k); i != 0; i = word(buckets + i) {
			if steps++; i >= chains || steps > chains || uint64(sysvOf[i])%buckets != k {
				return imageError("bucket %d of DT_HASH", k)
			}
		}
	}
	if word(buckets) != 0 {
		return imageError("the chain of no symbol in DT_HASH")
	}
	im.dynamic.hash = 4 * (2 + buckets + chains)
	return im.gnuTable(hashOf)
}

// gnuTable checks DT_GNU_HASH against the hashes of the names, hashOf[i] of symbol i: the Bloom
// filter has exactly their bits, each bucket the first symbol of its chain, and bit 0 of a chain's
// word marks its end.
func (im *image) gnuTable(hashOf []uint32) error {
	base := im.dynamic.tags[elf.DT_GNU_HASH]
	h := im.at(base, 16) // gnuLookup has read and bounded it
	buckets, first, words, shift := le.Uint32(h), le.Uint32(h[4:]), le.Uint32(h[8:]), le.Uint32(h[12:])
	count := uint32(len(hashOf))
	im.dynamic.gnuHash = 16 + 8*uint64(words) + 4*uint64(buckets) + 4*uint64(count-1)
	b := im.at(base, im.dynamic.gnuHash)
	if first != 1 || b == nil {
		return imageError("DT_GNU_HASH")
	}
	filter := make([]uint64, words)
	want := make([]uint32, buckets)
	for i := count - 1; i > 0; i-- {
		g := hashOf[i]
		filter[g/64%words] |= 1<<(g%64) | 1<<(g>>shift%64)
		want[g%buckets] = i // symbols of one bucket lie side by side: the last written is the first of them
	}
	b = b[16:]
	for _, w := range filter {
		if le.Uint64(b) != w {
			return imageError("the filter of DT_GNU_HASH")
		}
		b = b[8:]
	}
	for _, w := range want {
		if le.Uint32(b) != w {
			return imageError("the buckets of DT_GNU_HASH")
		}
		b = b[4:]
	}
	for i := uint32(1); i < count; i++ {
		w := hashOf[i] &^ 1
		if i == count-1 || hashOf[i+1]%buckets != hashOf[i]%buckets {
			w |= 1
		}
		if le.Uint32(b) != w {
			return imageError("the chains of DT_GNU_HASH")
		}
		b = b[4:]
	}
	return nil
}

// sysvHash is the hash of DT_HASH (gABI figure 5-13).
func sysvHash(name string) uint32 {
	h := uint32(0)
	for _, c := range []byte(name) {
		h = h<<4 + uint32(c)
		h = (h ^ h>>24&0xf0) & 0x0fffffff
	}
	return h
}

// gnuHash is the hash of DT_GNU_HASH: h*33 + c, from 5381.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	return h
}

// sysvLookup looks a name up through DT_HASH (gABI chapter 5) and returns the symbol's index. The chain is followed
// at most as many steps as it has words: a loop ends the lookup.
func (im *image) sysvLookup(name string) (uint32, error) {
	h := sysvHash(name)
	word := func(i uint64) (uint32, bool) {
		b := im.at(im.dynamic.tags[elf.DT_HASH]+4*i, 4)
		if b == nil {
			return 0, false
		}
		return le.Uint32(b), true
	}
	buckets, ok1 := word(0)
	chains, ok2 := word(1)
	if !ok1 || !ok2 || buckets == 0 || chains != uint32(len(exports))+1 {
		return 0, imageError("DT_HASH")
	}
	i, ok := word(2 + uint64(h%buckets))
	for range chains {
		if !ok || i == 0 || i >= chains {
			break
		}
		if s, ok := im.sym(i); ok {
			if n, ok := im.name(s.Name); ok && n == name {
				return i, nil
			}
		}
		i, ok = word(2 + uint64(buckets) + uint64(i))
	}
	return 0, imageError("DT_HASH does not lead to %s", name)
}

// gnuLookup looks a name up through DT_GNU_HASH, its filter included, as glibc does, and returns the symbol's index.
// Bounds of 64 are as in checkHashes.
func (im *image) gnuLookup(name string) (uint32, error) {
	h := gnuHash(name)
	base := im.dynamic.tags[elf.DT_GNU_HASH]
	bad := imageError("DT_GNU_HASH does not lead to %s", name)
	hdr := im.at(base, 16)
	if hdr == nil {
		return 0, bad
	}
	buckets, first, words, shift := le.Uint32(hdr), le.Uint32(hdr[4:]), le.Uint32(hdr[8:]), le.Uint32(hdr[12:])
	if buckets == 0 || words == 0 || words&(words-1) != 0 || shift > 31 || buckets > 64 || words > 64 || first == 0 {
		return 0, bad
	}
	filter := im.at(base+16+8*uint64(h/64&(words-1)), 8)
	bucket := im.at(base+16+8*uint64(words)+4*uint64(h%buckets), 4)
	if filter == nil || bucket == nil {
		return 0, bad
	}
	if f := le.Uint64(filter); f>>(h%64)&1 == 0 || f>>(h>>shift%64)&1 == 0 {
		return 0, bad
	}
	for i := le.Uint32(bucket); i >= first && i < 64; i++ {
		b := im.at(base+16+8*uint64(words)+4*uint64(buckets)+4*uint64(i-first), 4)
		if b == nil {
			break
		}
		c := le.Uint32(b)
		if c|1 == h|1 {
			if s, ok := im.sym(i); ok {
				if n, ok := im.name(s.Name); ok && n == name {
					return i, nil
				}
			}
		}
		if c&1 != 0 {
			break
		}
	}
	return 0, bad
}
