package waitfor

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Hangup undoes for the test what nohup does: SIGHUP reaches this process and those that it starts. A daemon that was
// started with it ignored leaves it ignored.
func Hangup(t testing.TB) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}
