package entry

import (
	"os"
	"runtime"
	gometrics "runtime/metrics"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Info returns the info report of a process without a model. Its Status is the caller's.
func (e *Entry) Info() reports.Info {
	c, a, stats := e.Config, e.Addresses(), e.Loop.Stats()
	return reports.Info{
		Type: "info", Version: buildinfo.Version, Engine: buildinfo.Engine, Go: runtime.Version(), PID: os.Getpid(),
		Socket: a.Socket, UptimeMs: time.Since(e.Begun).Milliseconds(), Listeners: a.Listeners,
		Config: reports.InfoConfig{
			Policy: c.Policy, Parallel: c.Parallel, MaxQueue: c.MaxQueue, MaxSessions: c.MaxSessions,
			MaxFrameBytes: c.MaxFrameBytes, MaxPromptBytes: c.MaxPromptBytes, MaxTokens: c.MaxTokens,
			TickBudgetMs: c.TickBudgetMs, ITLTargetMs: c.Meridian.ITLTargetMs, PolicyOptions: c.PolicyOptions(),
		},
		Memory: Memory(),
		Live: reports.InfoLive{Sessions: int(stats.Sessions.Load()), InFlight: int(stats.InFlight.Load()),
			Goroutines: runtime.NumGoroutine(), Descriptors: openDescriptors()},
	}
}

// Memory returns the memory of the process in bytes, as far as it is not a model's: the Go heap, and the resident set.
func Memory() (m reports.InfoMemory) {
	// Not ReadMemStats, which stops the world and with it the decode loop.
	sample := []gometrics.Sample{{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}}
	gometrics.Read(sample)
	m.GoHeap = int64(sample[0].Value.Uint64() + sample[1].Value.Uint64())
	m.RSS = hostmem.Resident()
	return m
}

func openDescriptors() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if d, err := os.ReadDir(dir); err == nil {
			return len(d) - 1 // the directory itself is one of them
		}
	}
	return -1
}
