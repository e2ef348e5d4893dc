//go:build linux && amd64

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goCollected makes garbage and deep stacks: the run-time collects, and copies stacks.
const goCollected = `package main

import "time"

type tree struct{ left, right *tree }

func grow(n int) *tree {
	if n == 0 {
		return new(tree)
	}
	return &tree{grow(n - 1), grow(n - 1)}
}

//go:noinline
func deep(n int) int {
	var a [64]int
	if n > 0 {
		a[n%64] = deep(n - 1)
	}
	return a[n/2%64] + n
}

func main() {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		done := make(chan int)
		for range 4 {
			go func() { grow(14); done <- deep(20) }()
		}
		for range 4 {
			<-done
		}
	}
}
`

// TestGoStacks: stacks of a Go program go on where its run-time changes to another stack, and end where nothing called.
func TestGoStacks(t *testing.T) {
	for name, flags := range map[string]string{"symbols": "", "stripped": "-s -w"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			buildGo(t, dir, goCollected, flags)
			r := recordIn(t, dir, "-F", "999", "-o", "p.folded", "./program")
			require.Zero(t, r.code, r.stderr)
			b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
			require.NoError(t, err)
			all, cut, switched, below := 0, 0, 0, 0
			for stack, n := range testtool.Folded(t, string(b)) {
				stack = strings.ReplaceAll(stack, ".abi0", "")
				all += n
				if strings.Contains(stack, "[truncated]") {
					cut += n
				}
				if strings.Contains(stack, ";runtime.systemstack;") {
					switched += n
				}
				if strings.HasPrefix(stack, "program;runtime.goexit;") && strings.Contains(stack, ";runtime.systemstack;") {
					below += n
				}
			}
			assert.Greater(t, all, 200, "%s", b)
			assert.Less(t, cut*100, all*5, "%s", b)
			assert.Greater(t, switched, 10, "%s", b)
			assert.Greater(t, below*100, switched*90, "%s", b)
		})
	}
}
