package check_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// BenchmarkCheck checks libc, and the file that EHASM_CHECK_FILE names.
func BenchmarkCheck(b *testing.B) {
	files := []string{"/lib/x86_64-linux-gnu/libc.so.6"}
	if f := os.Getenv("EHASM_CHECK_FILE"); f != "" {
		files = append(files, f)
	}
	for _, path := range files {
		b.Run("file="+path, func(b *testing.B) {
			n := 0
			for b.Loop() {
				f, err := os.Open(path)
				require.NoError(b, err)
				info, err := f.Stat()
				require.NoError(b, err)
				s, err := check.Open(path, f, info.Size())
				require.NoError(b, err)
				n += s.Run(check.Options{Workers: 1}).Instructions
				f.Close()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Minst/s/core")
		})
	}
}
