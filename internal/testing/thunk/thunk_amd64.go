package thunk

// HashReadThunk returns the address of
//
//	int read(void *arg, uint64_t addr, uint64_t *word)
//
// which answers as HashRead does with the seed in the 8 bytes at arg: 0 and
// *word, or 1 if addr is unreadable; *word is then left alone.
func HashReadThunk() uintptr

// HashDerefThunk returns the address of
//
//	uintptr_t deref(uintptr_t addr)
//
// which answers as HashDeref does.
func HashDerefThunk() uintptr
