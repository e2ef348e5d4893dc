package builder

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCacheFolder(t *testing.T) {
	for _, c := range []struct{ xdg, home, want string }{
		{"/c", "/h", "/c/ehasm/.build-id"},
		{"", "/h", "/h/.cache/ehasm/.build-id"},
		{"", "", ""},
		{"c", "/h", ""},
		{"", "h", ""},
	} {
		got, err := CacheFolder(func(name string) string {
			return map[string]string{"XDG_CACHE_HOME": c.xdg, "HOME": c.home}[name]
		})
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.want == "", err != nil)
	}
}

func TestCacheName(t *testing.T) {
	name, err := CacheName([]byte{0xab, 0x0c, 0xff})
	require.NoError(t, err)
	assert.Equal(t, "ab/0cff.eh_elf.so", name)
	for _, id := range [][]byte{nil, {1}} {
		_, err := CacheName(id)
		assert.ErrorIs(t, err, ErrNoKey)
	}
}
