// Package waitfor lets tests wait for another goroutine or process: for a condition, never for a time. Its limit only
// ends a test that hangs; a test that depends on its length is wrong.
//
// It is better not to poll: use a channel that the code under test closes, or testing/synctest where the test starts
// all goroutines and none does I/O.
package waitfor

import (
	"testing"
	"time"
)

// Limit is the longest wait of a test, for a machine that is busy with other work. It is below
// the 10 minutes after which go test ends a package, so that the test's own message is seen.
const Limit = 3 * time.Minute

// True returns when ok does, for states that no event tells about. It fails the test with what after Limit.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !poll(ok, Limit) {
		t.Fatalf("not within %v: %s", Limit, what)
	}
}

// poll asks ok, at first often and then every 10 ms, until it is true or limit has passed.
func poll(ok func() bool, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return ok()
		}
		time.Sleep(pause)
	}
}

// Recv returns the next value of c, or its zero value when c is closed. It fails the test with what after Limit.
func Recv[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	limit := time.NewTimer(Limit)
	defer limit.Stop()
	select {
	case v := <-c:
		return v
	case <-limit.C:
		t.Fatalf("not within %v: %s", Limit, what)
		panic("unreachable")
	}
}
