package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Two dumps: of the metrics, when SIGUSR1 asks for one, and of the decode loop's state after a broken invariant.

// dumpOnSignal dumps the metrics at each SIGUSR1, until stop.
func (s *Server) dumpOnSignal() (stop func()) {
	asked, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-asked:
				report.DumpMetrics(s.metrics.AppendJSON(nil), s.log)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(asked); close(done) }
}

// dumpState runs as the decode loop's last deferred call. After a panic it writes the loop's state to a new file in
// report.StateFolder and panics again; the deferred calls before it have completed the --trace.
func (l *loop) dumpState() {
	p := recover()
	if p == nil {
		return
	}
	d := report.State{Panic: fmt.Sprint(p), Stack: string(debug.Stack()), Metrics: l.m.AppendJSON(nil)}
	for _, read := range []func(){ // each may meet the broken invariant again
		func() { d.Why = l.why(wire.WhyQuestion{Last: wire.MaxLast}, uint32(os.Getuid()), time.Now()) },
		func() { d.Tree = l.core.Tree().Dump() },
		func() { d.Cost, _ = json.Marshal(l.core.Scheduler().Cost()) },
	} {
		func() {
			defer func() { _ = recover() }()
			read()
		}()
	}
	if path, err := d.Write(); err != nil {
		l.log.Error("a broken invariant; its state cannot be written", "panic", d.Panic, "error", err)
	} else {
		l.log.Error("a broken invariant: please report it with this file", "panic", d.Panic, "file", path)
	}
	panic(p)
}
