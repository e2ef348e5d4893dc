package testtool

import (
	"testing"
	"time"
)

// Within fails the test if f takes longer than limit, as it does if it waits for something that never comes.
func Within(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal("it waits")
	}
}
