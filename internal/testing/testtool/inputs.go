package testtool

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DependsOn tells the go command that the result of a test depends on the files
// below some folders, though only programs that the test runs read them: a
// compiler, make, the go command. A result is taken from the cache while what the
// test process itself has looked at is as it was, so it looks at them. Folders that
// are hidden or hold what was built are left out.
func DependsOn(t testing.TB, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != folder &&
				(strings.HasPrefix(d.Name(), ".") || d.Name() == "build" || d.Name() == "out"):
				return fs.SkipDir
			case d.IsDir():
				return nil
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
