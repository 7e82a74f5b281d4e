package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// OffloadConfig sizes an [Offloader]. Zero values mean the defaults.
type OffloadConfig struct {
	// Threshold is the number of blocks that are pushed together (meridian's disagg.offload_threshold_blocks). Default
	// 4.
	Threshold int
	// MaxDelay is the longest time that fewer blocks wait. Default 1 s.
	MaxDelay time.Duration
	// QueueItems and QueueBytes bound the queued and running pushes. Defaults 256 and 256 MiB.
	QueueItems int
	QueueBytes int64
	// QueuePulls bounds the queued pulls. Default 64.
	QueuePulls int
}

// PushJob is a value to push.
type PushJob struct {
	Key string
	// Value belongs to the offloader from an accepted TryPush until Done is called. QueueBytes counts its capacity.
	Value  []byte
	Blocks int // number of KV blocks in it, for Threshold and the counters
	// Prepare makes the payload from Value on the offloader's goroutine, for example compresses it and seals the frame.
	// It may use Value's storage. Nil: Value is the payload.
	Prepare func(value []byte) ([]byte, error)
	// Done is told the outcome once, on the offloader's goroutine: it must not block. May be nil.
	Done func(error)
}

// PullJob is a value to pull.
type PullJob struct {
	// Context is cancelled when the request ends or recomputing has become cheaper. Required.
	Context context.Context
	Key     string
	Dst     []byte // storage for the value; belongs to the offloader until Done is called
	Blocks  int
	// Done is told the outcome once, on the offloader's goroutine: it must not block. Required.
	Done func(value []byte, err error)
}

// Offloader runs the operations of a fabric for the decode loop, which must not wait. TryPush and TryPull take a lock
// for a few instructions and never wait for the fabric; when the queue is full they return false.
//
// One goroutine pushes and one pulls, because a request waits for a pull, and the pull must not wait for a large push.
// Pushes are batched, because a goroutine that wakes takes a core from the engine.
type Offloader struct {
	fabric Fabric
	config OffloadConfig
	ctx    context.Context // of all operations; cancelled when Close runs out of time
	cancel context.CancelFunc
	done   sync.WaitGroup // the two goroutines

	wakePush, wakePull chan struct{} // capacity 1, so that no wake-up is lost

	mu     sync.Mutex
	closed bool
	flush  bool // push even below the threshold
	pushes []PushJob
	blocks int // in pushes
	// openItems and openBytes count the queued and running pushes. Invariant: openItems <= QueueItems and openBytes <=
	// QueueBytes.
	openItems int
	openBytes int64
	deletes   []*deletion
	pulls     []PullJob
	openPulls int         // queued and running pulls
	timer     *time.Timer // sets flush, MaxDelay after the first of pushes came
	stats     OffloadStats
}

// OffloadStats are counters since the start.
type OffloadStats struct {
	BlocksOffloaded, BlocksIngested uint64 // meridian_disagg_blocks_{offloaded,ingested}_total
	BytesOffloaded, BytesIngested   uint64
	Batches                         uint64
	PushesFailed, PullsFailed       uint64 // GuardStats.Errors has the reasons
	PullsMissed                     uint64
	PushesDropped, PullsDropped     uint64 // queue full or closed: meridian_disagg_errors_total{reason="queue_full"}
	QueuedItems                     int    // queued and running pushes
	QueuedBytes                     int64
	QueuedPulls                     int // queued and running pulls
}

// deletion is a set of keys to delete after the running push.
type deletion struct {
	ctx  context.Context
	keys []string
	done chan struct{} // closed at the end, after n and err are set
	n    int
	err  error
}

// ErrDropped: a queued push was dropped because its key was deleted.
var ErrDropped = errors.New("dropped: its key was deleted")

// ErrClosed: the offloader was closed before it ran the operation.
var ErrClosed = errors.New("offloader closed")

// NewOffloader starts an offloader. The caller owns the fabric, usually a [Guard], which must outlive the offloader.
func NewOffloader(f Fabric, c OffloadConfig) *Offloader {
	orDefault(&c.Threshold, 4)
	orDefault(&c.MaxDelay, time.Second)
	orDefault(&c.QueueItems, 256)
	orDefault(&c.QueuePulls, 64)
	if c.QueueBytes <= 0 {
		c.QueueBytes = 256 << 20
	}
	o := &Offloader{fabric: f, config: c, wakePush: make(chan struct{}, 1), wakePull: make(chan struct{}, 1)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.timer = time.AfterFunc(c.MaxDelay, o.Flush)
	o.timer.Stop()
	o.done.Go(o.runPushes)
	o.done.Go(o.runPulls)
	return o
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// TryPush queues a push without waiting. If it returns false, the push was dropped and counted, Value still belongs to
// the caller, and Done is not called.
func (o *Offloader) TryPush(j PushJob) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := int64(cap(j.Value))
	if o.closed || o.openItems >= o.config.QueueItems || o.openBytes+size > o.config.QueueBytes {
		o.stats.PushesDropped++
		return false
	}
	if len(o.pushes) == 0 {
		o.timer.Reset(o.config.MaxDelay)
	}
	o.pushes = append(o.pushes, j)
	o.blocks += j.Blocks
	o.openItems++
	o.openBytes += size
	if o.blocks >= o.config.Threshold {
		wake(o.wakePush)
	}
	return true
}

// TryPull queues a pull without waiting. If it returns false, the pull was dropped and counted, and Done is not called.
func (o *Offloader) TryPull(j PullJob) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.pulls) >= o.config.QueuePulls {
		o.stats.PullsDropped++
		return false
	}
	o.pulls = append(o.pulls, j)
	o.openPulls++
	wake(o.wakePull)
	return true
}

// Delete deletes keys. It drops their queued pushes and deletes after a running one. It returns when the fabric has
// deleted all keys, or with the first error, and returns the number deleted.
func (o *Offloader) Delete(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	gone := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		gone[k] = struct{}{}
	}
	d := &deletion{ctx: ctx, keys: keys, done: make(chan struct{})}
	var dropped []PushJob
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return 0, ErrClosed
	}
	kept := o.pushes[:0]
	for _, j := range o.pushes {
		if _, ok := gone[j.Key]; !ok {
			kept = append(kept, j)
			continue
		}
		dropped = append(dropped, j)
		o.blocks -= j.Blocks
		o.openItems--
		o.openBytes -= int64(cap(j.Value))
	}
	clear(o.pushes[len(kept):])
	o.pushes = kept
	o.deletes = append(o.deletes, d)
	o.mu.Unlock()
	wake(o.wakePush)
	for _, j := range dropped {
		if j.Done != nil {
			j.Done(ErrDropped)
		}
	}
	select {
	case <-d.done:
		return d.n, d.err
	case <-ctx.Done():
		return 0, fmt.Errorf("deleting %d keys: %w", len(keys), ctx.Err())
	}
}

// runDeletes does what is to be deleted.
func (o *Offloader) runDeletes(list []*deletion) {
	for _, d := range list {
		ctx, cancel := context.WithCancel(d.ctx)
		stop := context.AfterFunc(o.ctx, cancel)
		for _, key := range d.keys {
			if d.err = o.fabric.Delete(ctx, key); d.err != nil {
				break
			}
			d.n++
		}
		stop()
		cancel()
		close(d.done)
	}
}

// Flush has everything pushed that is queued now, below the threshold too: at the end of a turn. It does not wait.
func (o *Offloader) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pushes) > 0 {
		o.flush = true
		wake(o.wakePush)
	}
}

// Stats returns the counters.
func (o *Offloader) Stats() OffloadStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.QueuedItems, s.QueuedBytes, s.QueuedPulls = o.openItems, o.openBytes, o.openPulls
	return s
}

// Close accepts no more jobs, finishes the queued ones and stops. If ctx ends first, Close cancels the running
// operations, the queued ones fail with [ErrClosed], and Close returns an error with their number. Done callbacks may
// then follow until the fabric gives up. Every accepted job gets its outcome.
func (o *Offloader) Close(ctx context.Context) error {
	o.mu.Lock()
	o.closed, o.flush = true, true
	o.timer.Stop()
	o.mu.Unlock()
	wake(o.wakePush)
	wake(o.wakePull)
	finished := make(chan struct{})
	go func() { o.done.Wait(); close(finished) }()
	select {
	case <-finished:
		o.cancel()
		return nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	items, bytes, pulls := o.openItems, o.openBytes, len(o.pulls)
	o.mu.Unlock()
	o.cancel()
	return fmt.Errorf("closing offloader: %w with %d pushes (%d bytes) and %d pulls unfinished", ctx.Err(), items,
		bytes, pulls)
}

func (o *Offloader) runPushes() {
	for range o.wakePush {
		o.mu.Lock()
		deletes := o.deletes
		o.deletes = nil
		if !o.flush && o.blocks < o.config.Threshold {
			o.mu.Unlock()
			o.runDeletes(deletes)
			continue
		}
		batch, closed := o.pushes, o.closed
		o.pushes, o.blocks, o.flush = nil, 0, false
		o.timer.Stop()
		if len(batch) > 0 {
			o.stats.Batches++
		}
		o.mu.Unlock()
		for i := range batch {
			o.push(&batch[i])
			batch[i] = PushJob{} // frees its memory before the batch ends
		}
		o.runDeletes(deletes)
		if closed {
			return
		}
	}
}

func (o *Offloader) push(j *PushJob) {
	size := int64(cap(j.Value))
	payload, err := j.Value, error(nil)
	if o.ctx.Err() != nil {
		err = ErrClosed
	}
	if err == nil && j.Prepare != nil {
		payload, err = j.Prepare(j.Value)
	}
	if err == nil {
		err = o.fabric.Push(o.ctx, j.Key, payload)
	}
	o.mu.Lock()
	o.openItems--
	o.openBytes -= size
	if err == nil {
		o.stats.BlocksOffloaded += uint64(j.Blocks)
		o.stats.BytesOffloaded += uint64(len(payload))
	} else {
		o.stats.PushesFailed++
	}
	o.mu.Unlock()
	if j.Done != nil {
		j.Done(err)
	}
}

func (o *Offloader) runPulls() {
	for range o.wakePull {
		for {
			o.mu.Lock()
			closed := o.closed
			if len(o.pulls) == 0 {
				o.pulls = nil
				o.mu.Unlock()
				if closed {
					return
				}
				break
			}
			j := o.pulls[0]
			o.pulls[0] = PullJob{}
			o.pulls = o.pulls[1:]
			o.mu.Unlock()
			o.pull(&j)
		}
	}
}

func (o *Offloader) pull(j *PullJob) {
	ctx, cancel := context.WithCancel(j.Context)
	defer cancel()
	defer context.AfterFunc(o.ctx, cancel)()
	var value []byte
	err := error(ErrClosed)
	if o.ctx.Err() == nil {
		value, err = o.fabric.Pull(ctx, j.Key, j.Dst)
	}
	o.mu.Lock()
	o.openPulls--
	switch {
	case err == nil:
		o.stats.BlocksIngested += uint64(j.Blocks)
		o.stats.BytesIngested += uint64(len(value))
	case errors.Is(err, ErrNotFound):
		o.stats.PullsMissed++
	default:
		o.stats.PullsFailed++
	}
	o.mu.Unlock()
	j.Done(value, err)
}
