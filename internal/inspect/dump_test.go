package inspect

import (
	"bytes"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// TestDumpIsBuilt compares the machine code that dump shows of a file with the code that build makes for it.
func TestDumpIsBuilt(t *testing.T) {
	const path = "/bin/ls"
	f, err := os.Open(path)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	object, err := dwarfcfa.NewFile(path, f, info.Size())
	require.NoError(t, err)
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	for _, dispatch := range []compile.Dispatch{compile.Tree, compile.Packed} {
		layout := compile.Layout{Dispatch: dispatch, Tables: math.MaxInt32, Calls: object.Calls()}
		_, code, err := layout.Build(table, elfout.Source{Name: "ls"})
		require.NoError(t, err)

		var want, got bytes.Buffer
		require.NoError(t, writeListing(&want, code, nil))
		dump := Dump{Stage: "asm", Code: compile.Options{Dispatch: dispatch}}
		require.NoError(t, dump.Write(path, &got))
		assert.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "%v", dispatch)
	}
}
