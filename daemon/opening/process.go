package opening

import (
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/sysmon"
	"github.com/uma-serve/uma-serve/runtime"
)

// PreferAsVictim makes the kernel's OOM killer prefer an engine process to its front, which can start it again.
func PreferAsVictim(log *slog.Logger) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("300"), 0); err != nil {
		log.Debug("the kernel may end the front before an engine process when memory runs out", "error", err)
	}
}

// WithoutCore keeps the kernel from writing a core file when the process crashes: its clients are told when it has
// ended, and a core file has all of its memory.
func WithoutCore(log *slog.Logger) {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		log.Debug("a crash may write a core file", "error", err)
	}
}

// sysmonSlack lengthens each sleep of the Go runtime's monitor thread, which wakes during decodes (package sysmon).
// Measured at 16 streams, as a share of the bare loop's tokens/s: 0.975…0.998 with 1 ms, 0.987…1.000 with 2 ms.
const sysmonSlack = 2 * time.Millisecond

// SlackMonitor lengthens the sleeps of the runtime's monitor thread. An engine process calls it before it confines
// itself.
func SlackMonitor(log *slog.Logger) {
	if err := sysmon.Slack(sysmonSlack); err != nil {
		log.Debug("the runtime's monitor keeps interrupting compute threads", "error", err)
	}
}

// StepTimeout returns the longest time of a step, limit on the processor. A device's driver compiles a kernel in the
// step that first needs it, such as the first one with more rows than any before: on llvmpipe a minute was too short.
func StepTimeout(limit time.Duration, device runtime.DeviceKind) time.Duration {
	if device == runtime.DeviceCPU || device == runtime.DeviceFake {
		return limit
	}
	return 5 * limit
}
