//go:build linux

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Bounds of the pages of docs/validation, and of all of docs.
const (
	mostLines   = 60
	mostColumns = 100
	mostInCell  = 40 // characters
	mostWords   = 27_500
)

// TestSizes: a page of docs/validation is a question, a command, a table and what was missed, and
// docs as a whole can be read.
func TestSizes(t *testing.T) {
	words, pages := 0, 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		words += len(strings.Fields(string(text)))
		if filepath.Dir(path) == "validation" {
			pages++
			for _, fault := range tooLong(string(text)) {
				t.Errorf("%s: %s", path, fault)
			}
		}
		return err
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, pages, 10)
	assert.LessOrEqual(t, words, mostWords, "words of docs: move what is not for a reader, or leave it to git")
}

// separator is what stands between cells: a bar that is not escaped.
var separator = regexp.MustCompile(`(?:^|[^\\])\|`)

// tooLong returns what is wrong with the sizes of a page.
func tooLong(text string) (faults []string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > mostLines {
		faults = append(faults, "more than 60 lines")
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > mostColumns {
			faults = append(faults, "more than 100 columns: "+line)
		}
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, cell := range separator.Split(line, -1) {
			if cell = strings.TrimSpace(cell); utf8.RuneCountInString(cell) > mostInCell {
				faults = append(faults, "more than 40 characters in a cell: "+cell)
			}
		}
	}
	return faults
}

func TestTooLong(t *testing.T) {
	cell := strings.Repeat("c", mostInCell)
	fits := strings.Repeat("| "+cell+" | a |\n", mostLines-1) + strings.Repeat("w", mostColumns) + "\n"
	assert.Empty(t, tooLong(fits))
	assert.Equal(t, []string{"more than 60 lines"}, tooLong(fits+"\n"))
	assert.Equal(t, []string{"more than 40 characters in a cell: " + cell + "c"}, tooLong("| a | "+cell+"c |\n"))
	assert.Len(t, tooLong(strings.Repeat("é", mostColumns+1)), 1)
}
