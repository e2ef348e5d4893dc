package ondemand

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/rows"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// libc is a file that takes a while to be compiled.
const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// talk is what a build has told, but for files that are done.
type talk []string

func (p *talk) Note(name string, err error) { *p = append(*p, name+": "+err.Error()) }
func (p *talk) Begin(int, int64)            {}
func (p *talk) Done(*builder.Outcome)       {}
func (p *talk) End(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

// TestFillCacheInTime: a deadline ends it at once and silently, and what is there is whole.
func TestFillCacheInTime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	d := New(Options{Keep: true})
	for _, path := range []string{"/bin/true", libc, "/usr/bin/gdb"} {
		d.wants[path] = nil
	}
	ctx, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	var told talk
	d.FillCache(ctx, 1, &told)
	assert.Empty(t, told)
	light, heavy := splitBySize([]string{"/bin/true", libc, "/nowhere"})
	assert.Equal(t, []string{"/bin/true"}, light)
	assert.Equal(t, []string{libc, "/nowhere"}, heavy)
}

// TestTablesOnly: no row of an eh_elf comes from the code.
func TestTablesOnly(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	file, err := os.Open("/bin/true")
	require.NoError(t, err)
	defer file.Close()
	st, err := file.Stat()
	require.NoError(t, err)
	count := func(d *Maker) int {
		image, err := d.EhElf(t.Context(), file.Name(), file, st.Size())
		require.NoError(t, err)
		info, err := elfout.ReadInfo(bytes.NewReader(image))
		require.NoError(t, err)
		return compile.StatsOf(info).Rows
	}
	d := New(Options{Options: rows.Options{TablesOnly: true}, Keep: true})
	assert.Less(t, count(d), count(New(Options{})))
	_, stepper, err := d.Prepare(file.Name(), file, st.Size())
	require.NoError(t, err)
	stepper.Took(1 << 30)
	assert.Empty(t, d.Wants())
}
