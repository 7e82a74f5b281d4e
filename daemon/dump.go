package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// dumpState runs as the decode loop's last deferred call. After a panic it writes the loop's state to a new file in
// report.StateFolder and panics again; the deferred calls before it have completed the --trace.
func (l *loop) dumpState() {
	p := recover()
	if p == nil {
		return
	}
	d := report.State{Panic: fmt.Sprint(p), Stack: string(debug.Stack()), Metrics: l.m.AppendJSON(nil)}
	d.Save(l.log, // each read may meet the broken invariant again
		func() { d.Why = l.why(wire.WhyQuestion{Last: wire.MaxLast}, uint32(os.Getuid()), time.Now()) },
		func() { d.Tree = l.core.Tree().Dump() },
		func() { d.Cost, _ = json.Marshal(l.core.Scheduler().Cost()) })
	panic(p)
}
