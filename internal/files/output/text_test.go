package output

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"plain name.so": "plain name.so", "größe": "größe", "a\nb": `"a\nb"`, "\x1b[31m": `"\x1b[31m"`,
		"\xff": `"\xff"`, "": `""`,
	} {
		assert.Equal(t, want, Name(name))
	}
}
