package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/internal/clierr"
	"github.com/uma-serve/uma-serve/sched"
)

// recorder writes a daemon's life to a file (--trace): what the scheduler is told and what it plans, as sched.ReadTrace reads
// it, and every call of the core with the steps that it decided, as core.Replay reads it. uma-sim learns its workload from
// the one and replays the other step for step.
//
// The decode loop only appends text; a goroutine of its own writes it out, so that a slow disk costs no token. When
// the disk is so slow that recorderChunks buffers wait for it, recording ends with a warning: a trace with a hole
// would replay to something else, and the loop waits for nobody.
type recorder struct {
	log   *slog.Logger
	path  string
	buf   []byte      // owned by the decode loop
	full  chan []byte // to the writer
	empty chan []byte // back from it
	done  chan struct{}
	over  bool        // owned by the decode loop: recording has ended
	bad   atomic.Bool // the writer cannot write
}

const (
	recorderBytes  = 64 << 10 // a buffer is handed over from this size on, or when the loop goes idle
	recorderChunks = 64
)

// newRecorder starts a trace. A nil recorder records nothing.
func newRecorder(path string, log *slog.Logger) (*recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w; name a file that can be written", clierr.File(path, err))
	}
	r := &recorder{
		log: log, path: path, full: make(chan []byte, recorderChunks), empty: make(chan []byte, recorderChunks),
		done: make(chan struct{}), buf: make([]byte, 0, 2*recorderBytes),
	}
	go r.write(f)
	return r, nil
}

// config records the scheduler's configuration, before its first step.
func (r *recorder) config(cfg *sched.Config) {
	if r != nil {
		r.buf = sched.AppendConfig(r.buf, cfg)
	}
}

// lines records calls of the core. Decode loop only.
func (r *recorder) lines(b []byte) {
	if r.over {
		return
	}
	if r.buf = append(r.buf, b...); len(r.buf) >= recorderBytes {
		r.handOver()
	}
}

// step records one Step and its plan. Decode loop only.
func (r *recorder) step(now sched.Instant, events []sched.Event, plan *sched.Plan) {
	if r == nil || r.over {
		return
	}
	r.buf = sched.AppendEvents(r.buf, now, events)
	r.buf = plan.Append(r.buf, "> ")
	if len(r.buf) >= recorderBytes {
		r.handOver()
	}
}

// idle hands over what is buffered, so that the file is up to date while nothing happens. Decode loop only.
func (r *recorder) idle() {
	if r != nil && !r.over && len(r.buf) > 0 {
		r.handOver()
	}
}

func (r *recorder) handOver() {
	select {
	case r.full <- r.buf:
	default:
		r.over = true
	}
	if r.over || r.bad.Load() {
		r.over = true
		r.log.Warn("the trace ends here: its file cannot be written fast enough, or at all", "file", r.path)
		return
	}
	select {
	case r.buf = <-r.empty:
		r.buf = r.buf[:0]
	default:
		r.buf = make([]byte, 0, 2*recorderBytes)
	}
}

func (r *recorder) write(f *os.File) {
	defer close(r.done)
	var failed error
	for b := range r.full {
		if failed == nil {
			if _, failed = f.Write(b); failed != nil {
				r.bad.Store(true)
				r.log.Error("UMA_TRACE", "error", failed)
			}
		}
		select {
		case r.empty <- b:
		default:
		}
	}
	if err := f.Close(); err != nil && failed == nil {
		r.log.Error("UMA_TRACE", "error", err)
	}
}

// close writes the rest and waits until it is on its way to the disk. Decode loop only, once.
func (r *recorder) close() {
	if r == nil {
		return
	}
	if !r.over {
		r.full <- r.buf // the writer empties the channel, so this ends
		r.over = true
	}
	close(r.full)
	<-r.done
}
