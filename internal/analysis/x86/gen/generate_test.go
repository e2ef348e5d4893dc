package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGenerate: the tables in the package are those that the lists and ops.go give.
func TestGenerate(t *testing.T) {
	want, err := generate()
	require.NoError(t, err)
	got, err := os.ReadFile(output)
	require.NoError(t, err)
	assert.True(t, string(want) == string(got), "%s is not up to date: run go generate in internal/analysis/x86", output)
}
