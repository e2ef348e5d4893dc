package prototypes

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chain is BTF of a function whose type is behind many pointers: the first type is the first or the
// last of them.
func chain(count uint32, ascending bool) []byte {
	const kindPointer = 2
	var types []uint32
	outer := uint32(1)
	for i := range count {
		switch {
		case !ascending:
			outer = i + 1
			types = append(types, 0, kindPointer<<24, i)
		case i == count-1:
			types = append(types, 0, kindPointer<<24, 0)
		default:
			types = append(types, 0, kindPointer<<24, i+2)
		}
	}
	types = append(types, 0, btfFuncProto<<24|1, 0, 0, outer)
	types = append(types, 1, btfFunc<<24, count+1)
	return raw(types, "\x00f\x00")
}

// TestDeep has chains of pointers as long as what is read may have, and longer: reading one takes
// memory for each of its types, whichever comes first.
func TestDeep(t *testing.T) {
	const around = 3 // the function, its type, and void
	for _, ascending := range []bool{true, false} {
		table, err := openBTF(chain(maxDepth-around, ascending))
		require.NoError(t, err)
		_, err = table.one("f", btfFunction.Parameters)
		assert.ErrorIs(t, err, cdecl.ErrLarge)
		table, err = openBTF(chain(100, ascending))
		require.NoError(t, err)
		assert.Equal(t, "(void "+strings.Repeat("*", 100)+")", table.Parameters("f"))
		for _, n := range []uint32{maxDepth, maxTypes - around} {
			table, err = openBTF(chain(n, ascending))
			require.NoError(t, err)
			assert.Empty(t, table.Parameters("f"))
			_, err = table.one("f", btfFunction.Parameters)
			assert.ErrorIs(t, err, errDeep)
		}
		_, err = openBTF(chain(maxTypes, ascending))
		assert.ErrorContains(t, err, "more than 262144 types")
	}
}

// raw is BTF of types and strings.
func raw(types []uint32, strings string) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint16(nil, magicBTF), 1, 0)
	for _, x := range append([]uint32{24, 0, uint32(4 * len(types)), uint32(4 * len(types)), uint32(len(strings))},
		types...) {
		b = le.AppendUint32(b, x)
	}
	return append(b, strings...)
}

// TestModules reads functions of a kernel and of modules, whose types are the kernel's, at the
// same time.
func TestModules(t *testing.T) {
	const n = 200
	var kernel, module []uint32
	names, more := "\x00int\x00", ""
	kernel = append(kernel, 1, btfInt<<24, 4, 1<<24|32)
	for i := range uint32(n) {
		before := uint32(1)
		if i > 0 {
			before = 3*i - 1
		}
		kernel = append(kernel, 0, 2<<24, before) // a pointer to the one before
		kernel = append(kernel, 0, btfFuncProto<<24|1, 3*i+2, 0, 3*i+2)
		kernel = append(kernel, uint32(len(names)), btfFunc<<24, 3*i+3)
		names += fmt.Sprintf("k%03d\x00", i)
	}
	first := uint32(2 + 3*n)
	for i := range uint32(n) {
		module = append(module, 0, btfFuncProto<<24|1, 1, 0, 3*i+2)
		module = append(module, uint32(len(names)+len(more)), btfFunc<<24, first+2*i)
		more += fmt.Sprintf("m%03d\x00", i)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vmlinux"), raw(kernel, names), 0o666))
	for _, name := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), raw(module, more), 0o666))
	}
	for range 20 {
		k := NewKernel(dir)
		var all sync.WaitGroup
		for _, of := range []string{"", "[one]", "[two]"} {
			all.Go(func() {
				table, letter := k.Table(of), "k"
				if of != "" {
					letter = "m"
				}
				for i := range n {
					got := table.Parameters(fmt.Sprintf("%s%03d", letter, i))
					if i > 0 && i < 10 {
						assert.Regexp(t, `^\(int \*+\)$`, got)
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, k.Err())
	}
}

// TestDeepErrors has functions whose types end in one that is not there: what was read on the
// way is not kept, and the way must not become longer from function to function.
func TestDeepErrors(t *testing.T) {
	const chains, each = 30, maxDepth / 2
	var types []uint32
	names := "\x00"
	next, last := uint32(1), uint32(1<<30) // not there
	for i := range chains {
		for range each {
			types = append(types, 0, 2<<24, last)
			last = next
			next++
		}
		types = append(types, 0, btfFuncProto<<24, last)
		types = append(types, uint32(len(names)), btfFunc<<24, next)
		names += fmt.Sprintf("f%02d\x00", i)
		next += 2
	}
	table, err := openBTF(raw(types, names))
	require.NoError(t, err)
	failed := 0
	for _, err := range table.All() {
		assert.Error(t, err)
		failed++
	}
	assert.Equal(t, chains, failed)
	_, err = table.one("f29", btfFunction.Parameters)
	assert.ErrorIs(t, err, errDeep)
}
