package elfout

import "sort"

// This file makes the two hash tables. DT_GNU_HASH has no standard: binutils (elflink.c) writes it, glibc (dl-lookup.c)
// and musl (dynlink.c) read it.

// sysvHash returns the hash function of DT_HASH (gABI figure 5-13).
func sysvHash(name string) uint32 {
	var h uint32
	for i := 0; i < len(name); i++ {
		h = h<<4 + uint32(name[i])
		g := h & 0xf0000000
		h ^= g >> 24
		h &^= g
	}
	return h
}

// gnuHash returns the hash function of DT_GNU_HASH, Bernstein's h*33+c.
func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := 0; i < len(name); i++ {
		h = h*33 + uint32(name[i])
	}
	return h
}

// numBuckets is the number of buckets of both tables: an eh_elf has three symbols, and the
// filter of DT_GNU_HASH is what other names are kept away by.
const numBuckets = 1

// sortForGNUHash sorts names in the order that DT_GNU_HASH requires of the
// dynamic symbols: those of one bucket together, buckets ascending.
func sortForGNUHash(n int, name func(int) string, swap func(i, j int)) {
	buckets := uint32(numBuckets)
	sort.Sort(byBucket{n, swap, func(i, j int) bool {
		a, b := gnuHash(name(i))%buckets, gnuHash(name(j))%buckets
		if a != b {
			return a < b
		}
		return name(i) < name(j)
	}})
}

// byBucket sorts through functions: the caller's elements stay of their type.
type byBucket struct {
	n    int
	swap func(i, j int)
	less func(i, j int) bool
}

func (s byBucket) Len() int           { return s.n }
func (s byBucket) Swap(i, j int)      { s.swap(i, j) }
func (s byBucket) Less(i, j int) bool { return s.less(i, j) }

// sysvHashTable returns the section .hash: nbucket, nchain, the buckets and the
// chains, of 4 bytes each (gABI figure 5-12). names are those of the dynamic
// symbols from index 1 on.
func sysvHashTable(names []string) []byte {
	buckets := make([]uint32, numBuckets)
	// Chains are built from the last symbol on, so that each begins with the lowest index.
	chains := make([]uint32, len(names)+1)
	for i := len(names); i >= 1; i-- {
		b := sysvHash(names[i-1]) % uint32(len(buckets))
		chains[i] = buckets[b]
		buckets[b] = uint32(i)
	}
	table := le.AppendUint32(nil, uint32(len(buckets)))
	table = le.AppendUint32(table, uint32(len(chains)))
	for _, v := range append(buckets, chains...) {
		table = le.AppendUint32(table, v)
	}
	return table
}

// gnuHashShift is the distance between the two bits a name sets in the filter. Each table says which it uses; binutils
// takes 6 for a filter of one word.
const gnuHashShift = 6

// gnuHashTable returns the section .gnu.hash: a header of four words (nbuckets,
// symoffset, bloom_size, bloom_shift), the Bloom filter of 8-byte words, the
// buckets and the hash values, whose lowest bit ends a bucket. names are those
// of the dynamic symbols from index 1 on, in the order of sortForGNUHash.
func gnuHashTable(names []string) []byte {
	const symOffset = 1 // the null symbol is not in the table
	buckets := make([]uint32, numBuckets)
	values := make([]uint32, len(names))
	// Eight names a word of the filter at most: of 64 bits, 16 are set. The number of words must be a power of two,
	// since glibc masks with it.
	bloom := make([]uint64, 1)
	for len(bloom)*8 < len(names) {
		bloom = make([]uint64, 2*len(bloom))
	}
	for i, name := range names {
		h := gnuHash(name)
		word := &bloom[h/64%uint32(len(bloom))]
		*word |= 1<<(h%64) | 1<<((h>>gnuHashShift)%64)
		b := h % uint32(len(buckets))
		if buckets[b] == 0 {
			buckets[b] = uint32(i + symOffset)
		}
		values[i] = h &^ 1
		if i == len(names)-1 || gnuHash(names[i+1])%uint32(len(buckets)) != b {
			values[i] |= 1
		}
	}
	table := le.AppendUint32(nil, uint32(len(buckets)))
	table = le.AppendUint32(table, symOffset)
	table = le.AppendUint32(table, uint32(len(bloom)))
	table = le.AppendUint32(table, gnuHashShift)
	for _, v := range bloom {
		table = le.AppendUint64(table, v)
	}
	for _, v := range append(buckets, values...) {
		table = le.AppendUint32(table, v)
	}
	return table
}
