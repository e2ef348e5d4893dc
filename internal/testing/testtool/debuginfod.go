package testtool

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Debuginfod runs Debian's debuginfod server over the files of a folder, and returns its URL
// once it has scanned them. It ends with the test.
func Debuginfod(t testing.TB, folder string) string {
	t.Helper()
	Need(t, "debuginfod")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	// the port may be taken before the server has it: then it never answers, and the test fails
	l.Close()
	cmd := exec.Command("debuginfod", "-F", "-p", fmt.Sprint(port), "-d", filepath.Join(t.TempDir(), "index.sqlite"),
		"-t0", "-g0", folder)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	files := 0
	err = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const patience, pause = 60 * time.Second, 50 * time.Millisecond
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(pause) {
		if scanned(url) >= files {
			return url
		}
	}
	t.Fatalf("debuginfod has not scanned %s", folder)
	return ""
}

// scanned returns how many files the server is done with: its metrics say it. It counts in scanned_files_total before
// they are in its index.
func scanned(url string) (files int) {
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		return -1 // it has not begun
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if count, ok := strings.CutPrefix(lines.Text(), `thread_work_total{role="scan"} `); ok {
			files, _ = strconv.Atoi(count)
		}
	}
	return files
}
