// Package logq keeps logging from blocking the program that logs: lines go into a bounded queue, one goroutine writes
// them out, and what does not fit is dropped and counted.
//
// A log that is written directly blocks its caller for as long as the reader of the pipe does not read. In a process
// whose decode loop serves every client, one unread pipe would stop all of them.
package logq

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Options size a Log. Zero values mean the defaults.
type Options struct {
	// QueueBytes bounds the lines that wait to be written. Default 256 KiB.
	QueueBytes int
	// Burst is the limit on lines of one level and message per Window. Further lines are counted, and one line at the
	// end of the window gives their number. Defaults 8 and 10 s. Lines below slog.LevelInfo are not limited: they are
	// written only at a log level that asks for all of them.
	Burst  int
	Window time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// maxMessages bounds the number of messages that are watched for repetition. Messages are constants of the program,
// except those from llama.cpp.
const maxMessages = 256

// Stats are counters since the start.
type Stats struct {
	Lines      uint64 // written
	Dropped    uint64 // lost: the queue was full, or writing failed
	Suppressed uint64 // left out as repetitions
	QueueBytes int    // waiting to be written
}

// Log writes lines to one writer, from one goroutine. Methods are safe from any goroutine; only Close waits
// for the writer.
type Log struct {
	w    io.Writer
	opts Options
	own  slog.Handler // formats the lines about the log itself, into the queue

	mu     sync.Mutex
	queue  []byte // whole lines
	lines  int    // in queue
	spare  []byte // the queue that was written last, to be filled next
	lost   uint64 // dropped since the last line that says so
	since  time.Time
	stats  Stats
	closed bool
	seen   map[message]*repeats
	timer  *time.Timer // runs while a repetition is to be reported

	wake chan struct{} // capacity 1
	done chan struct{} // closed when the goroutine has ended
}

type message struct {
	level slog.Level
	text  string
}

type repeats struct {
	until time.Time // end of the window
	n     int       // lines in it
	left  int       // of them: not written
}

// New starts a log on w. format makes the handler that formats records, such as slog.NewTextHandler: it must write each
// record with one Write.
func New(w io.Writer, format func(io.Writer) slog.Handler, o Options) (*Log, *slog.Logger) {
	if o.QueueBytes <= 0 {
		o.QueueBytes = 256 << 10
	}
	if o.Burst <= 0 {
		o.Burst = 8
	}
	if o.Window <= 0 {
		o.Window = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Log{w: w, opts: o, seen: map[message]*repeats{}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.own = format(ownLines{l})
	l.timer = time.AfterFunc(o.Window, l.reportRepeats)
	l.timer.Stop()
	go l.run()
	return l, slog.New(&handler{l, format(l)})
}

// Of returns the Log behind a logger that New returned, or that was derived from one; nil for others.
func Of(l *slog.Logger) *Log {
	if h, ok := l.Handler().(*handler); ok {
		return h.log
	}
	return nil
}

// Writer returns the writer for text that is not a log line: the Log behind l, because a full pipe must not block the
// program, or os.Stderr if there is none.
func Writer(l *slog.Logger) io.Writer {
	if log := Of(l); log != nil {
		return log
	}
	return os.Stderr
}

// Stats returns a snapshot.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.QueueBytes = len(l.queue)
	return s
}

// Write queues one line, or drops it. It never fails and never waits.
func (l *Log) Write(line []byte) (int, error) { return l.put(line, l.opts.QueueBytes, false) }

// ownLines are the lines about the log itself. They fit into a queue that is full: there is one for each write, and at
// most maxMessages for each window.
type ownLines struct{ log *Log }

func (o ownLines) Write(line []byte) (int, error) {
	return o.log.put(line, 2*o.log.opts.QueueBytes, true)
}

func (l *Log) put(line []byte, limit int, own bool) (int, error) {
	l.mu.Lock()
	if l.closed && !own || len(l.queue)+len(line) > limit {
		l.drop(1)
	} else {
		l.queue = append(l.queue, line...)
		l.lines++
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// drop counts lost lines. The lock is held.
func (l *Log) drop(n int) {
	if l.lost == 0 {
		l.since = l.opts.Now()
	}
	l.lost += uint64(n)
	l.stats.Dropped += uint64(n)
}

// run writes the queued lines until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	for range l.wake {
		for {
			l.mu.Lock()
			batch, n := l.queue, l.lines
			l.queue, l.lines, l.spare = l.spare[:0], 0, nil
			closed := l.closed
			l.mu.Unlock()
			if n == 0 {
				l.mu.Lock()
				l.spare = batch
				l.mu.Unlock()
				if closed {
					return
				}
				break
			}
			_, err := l.w.Write(batch)
			l.mu.Lock()
			l.spare = batch
			lost, since := l.lost, l.since
			if err != nil {
				l.drop(n)
			} else {
				l.stats.Lines += uint64(n)
				l.lost = 0
			}
			l.mu.Unlock()
			if err == nil && lost > 0 {
				now := l.opts.Now()
				r := slog.NewRecord(now, slog.LevelWarn, "log lines were dropped: the reader of stderr did not read", 0)
				r.Add("lines", lost, "over", now.Sub(since).Round(time.Millisecond))
				_ = l.own.Handle(context.Background(), r)
			}
		}
	}
}

// Close writes the queued lines, for at most timeout, and stops. Later lines are dropped. It reports whether everything
// was written.
func (l *Log) Close(timeout time.Duration) bool {
	l.reportRepeats()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.timer.Stop()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-l.done:
		return true
	case <-t.C:
		return false
	}
}

// pass reports whether a line is to be written: it is no repetition beyond the burst.
func (l *Log) pass(level slog.Level, text string) bool {
	if level < slog.LevelInfo {
		return true
	}
	now := l.opts.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := message{level, text}
	r := l.seen[m]
	if r == nil {
		if len(l.seen) >= maxMessages {
			maps.DeleteFunc(l.seen, func(_ message, r *repeats) bool { return r.left == 0 && now.After(r.until) })
		}
		if len(l.seen) >= maxMessages {
			return true
		}
		r = &repeats{until: now.Add(l.opts.Window)}
		l.seen[m] = r
	}
	if now.After(r.until) && r.left == 0 {
		*r = repeats{until: now.Add(l.opts.Window)}
	}
	if r.n++; r.n <= l.opts.Burst {
		return true
	}
	if r.left++; r.left == 1 {
		l.timer.Reset(max(r.until.Sub(now), time.Millisecond))
	}
	l.stats.Suppressed++
	return false
}

// reportRepeats says how many lines were left out, message by message.
func (l *Log) reportRepeats() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	now := l.opts.Now()
	type report struct {
		message
		n int
	}
	var all []report
	for m, r := range l.seen {
		if r.left > 0 {
			all = append(all, report{m, r.left})
			// The next window gets no new burst until a window passes without the message.
			*r = repeats{until: now.Add(l.opts.Window), n: l.opts.Burst}
		}
	}
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b report) int { return b.n - a.n })
	for _, x := range all {
		r := slog.NewRecord(now, x.level, x.text, 0)
		r.Add("repeated", x.n, "within", l.opts.Window.String())
		_ = l.own.Handle(context.Background(), r)
	}
}

// handler formats into the queue what pass lets through.
type handler struct {
	log   *Log
	inner slog.Handler
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.inner.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.log.pass(r.Level, r.Message) {
		return nil
	}
	return h.inner.Handle(ctx, r)
}

func (h *handler) WithAttrs(a []slog.Attr) slog.Handler { return &handler{h.log, h.inner.WithAttrs(a)} }
func (h *handler) WithGroup(n string) slog.Handler      { return &handler{h.log, h.inner.WithGroup(n)} }

// Println queues a line that is not a record, such as a notice to the person who starts the program.
func (l *Log) Println(v ...any) { _, _ = l.Write(fmt.Appendln(nil, v...)) }
