// Package recorder writes the file of --trace.
package recorder

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// Recorder writes the file of --trace: the scheduler's events and plans (trace.Read), from which uma-sim takes a
// workload, and the core's inputs and steps (core.Replay), which uma-sim replays.
//
// The decode loop only appends text; another goroutine writes it, so that a slow disk delays no token. When
// maxBuffers buffers wait for the disk, recording ends with a warning: a trace with a gap would not replay.
type Recorder struct {
	log   *slog.Logger
	path  string
	buf   []byte      // owned by the decode loop
	full  chan []byte // to the writer
	empty chan []byte // back to the loop
	done  chan struct{}
	over  bool        // owned by the decode loop: recording has ended
	bad   atomic.Bool // a write failed
}

const (
	bufferBytes = 64 << 10 // size at which a buffer goes to the writer, unless the loop idles before
	maxBuffers  = 64       // buffers in flight
)

// New starts a trace. A nil Recorder records nothing.
func New(path string, log *slog.Logger) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w; name a writable file", clierr.File(path, err))
	}
	r := &Recorder{
		log: log, path: path, full: make(chan []byte, maxBuffers), empty: make(chan []byte, maxBuffers),
		done: make(chan struct{}), buf: make([]byte, 0, 2*bufferBytes),
	}
	go r.write(f)
	return r, nil
}

// Config records the scheduler's configuration, before its first step.
func (r *Recorder) Config(cfg *sched.Config) {
	if r != nil {
		r.buf = trace.AppendConfig(r.buf, cfg)
	}
}

// Lines records calls of the core. Decode loop only.
func (r *Recorder) Lines(b []byte) {
	if r.over {
		return
	}
	if r.buf = append(r.buf, b...); len(r.buf) >= bufferBytes {
		r.handOver()
	}
}

// Step records one Step and its plan. Decode loop only.
func (r *Recorder) Step(now sched.Instant, events *sched.Events, plan *sched.Plan) {
	if r == nil || r.over {
		return
	}
	r.buf = trace.AppendStep(r.buf, now, events, plan)
	if len(r.buf) >= bufferBytes {
		r.handOver()
	}
}

// Probe records an EAT probe of a request's thinking and what the signals say then, and Thought their state at its end,
// as comments of the trace: with them the thresholds of a model can be fitted to its own requests (docs/eat.md). Decode
// loop only.
func (r *Recorder) Probe(id sched.ReqID, c *meridian.Control) {
	if r == nil || r.over {
		return
	}
	s := c.Signals()
	r.buf = fmt.Appendf(r.buf, "#probe %d tokens=%d probes=%d entropy=%.6g mean=%.6g var=%.6g index=%.6g\n", id,
		c.ThinkTokens(), s.Probes, s.X, s.Mean, s.Var, s.Index)
}

// Thought is described at Probe.
func (r *Recorder) Thought(id sched.ReqID, t *meridian.Summary) {
	if r == nil || r.over {
		return
	}
	s := &t.Signals
	r.buf = fmt.Appendf(r.buf, "#thought %d tokens=%d ended=%s probes=%d entropy=%.6g mean=%.6g var=%.6g index=%.6g "+
		"converged=%d stalled=%d overthinking=%d\n", id, t.Tokens, t.Ended, s.Probes, s.X, s.Mean, s.Var, s.Index,
		s.Converged, s.Stalled, s.Overthinking)
}

// Idle sends the buffer to the writer, so that the file is up to date while the loop idles. Decode loop only.
func (r *Recorder) Idle() {
	if r != nil && !r.over && len(r.buf) > 0 {
		r.handOver()
	}
}

func (r *Recorder) handOver() {
	select {
	case r.full <- r.buf:
	default:
		r.over = true
	}
	if r.over || r.bad.Load() {
		r.over = true
		r.log.Warn("--trace stops: writing the file failed or is too slow", "file", r.path)
		return
	}
	select {
	case r.buf = <-r.empty:
		r.buf = r.buf[:0]
	default:
		r.buf = make([]byte, 0, 2*bufferBytes)
	}
}

func (r *Recorder) write(f *os.File) {
	defer close(r.done)
	var failed error
	for b := range r.full {
		if failed == nil {
			if _, failed = f.Write(b); failed != nil {
				r.bad.Store(true)
				r.log.Error("--trace: write failed", "error", failed)
			}
		}
		select {
		case r.empty <- b:
		default:
		}
	}
	if err := f.Close(); err != nil && failed == nil {
		r.log.Error("--trace: close failed", "error", err)
	}
}

// Close writes the rest and closes the file. Decode loop only, once.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	if !r.over {
		r.full <- r.buf // does not block for long: the writer drains the channel
		r.over = true
	}
	close(r.full)
	<-r.done
}
