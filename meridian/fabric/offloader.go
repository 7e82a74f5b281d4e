package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// QueueRenewals bounds the keys of queued renewals. Default 65,536.
	QueueRenewals int
	// RetryFor is the time after its first failure for which a push is tried again if the fabric did not answer or was
	// not asked (see [Retryable]). Default 2 min.
	RetryFor time.Duration
	// MinPause is the time from a failed push to the next attempt. It doubles up to MaxPause while all attempts fail.
	// Defaults 1 s and 30 s.
	MinPause, MaxPause time.Duration
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
	// Done is told the outcome once, on the offloader's goroutine: it must not block. May be nil. After an error the
	// fabric may lack the value, whatever it had before.
	Done func(error)

	failed time.Time // its first attempt that failed
}

// Retryable reports whether a later attempt of an operation that failed with err may succeed.
func Retryable(err error) bool {
	switch ReasonOf(err) {
	case ReasonTimeout, ReasonUnavailable, ReasonCircuitOpen:
		return errors.Is(err, ErrUnavailable)
	}
	return false
}

// renewal is a set of keys to renew after the queued pushes.
type renewal struct {
	keys []string
	done func(missing []string, err error)
}

// Offloader runs the operations of a fabric for the decode loop, which must not wait. TryPush and TryPull take a lock
// for a few instructions and never wait for the fabric; when the queue is full they return false.
//
// One goroutine pushes and one pulls, because a request waits for a pull, and the pull must not wait for a large push.
// Pushes are batched, because a goroutine that wakes takes a core from the engine.
//
// A push that fails because the fabric is away stays queued and is tried again later, with all others that failed;
// meanwhile it counts towards QueueItems and QueueBytes.
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
	blocks int           // in pushes
	failed []PushJob     // to be tried again when again fires
	pause  time.Duration // until then
	again  *time.Timer
	armed  bool // again is running
	// openItems and openBytes count the queued and running pushes, failed ones included. Invariant: openItems <=
	// QueueItems and openBytes <= QueueBytes.
	openItems int
	openBytes int64
	deletes   []*deletion
	renewals  []renewal
	openKeys  int // in renewals
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
	PushesFailed, PullsFailed       uint64 // given up; GuardStats.Errors has the reasons
	PushesRetried                   uint64 // attempts after the first
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
	orDefault(&c.QueueRenewals, 1<<16)
	orDefault(&c.RetryFor, 2*time.Minute)
	orDefault(&c.MinPause, time.Second)
	orDefault(&c.MaxPause, 30*time.Second)
	c.MaxPause = max(c.MaxPause, c.MinPause)
	if c.QueueBytes <= 0 {
		c.QueueBytes = 256 << 20
	}
	o := &Offloader{fabric: f, config: c, wakePush: make(chan struct{}, 1), wakePull: make(chan struct{}, 1)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.timer = time.AfterFunc(c.MaxDelay, o.Flush)
	o.timer.Stop()
	o.pause = c.MinPause
	o.again = time.AfterFunc(c.MaxPause, o.retry)
	o.again.Stop()
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
	named := func(j PushJob) bool {
		if _, ok := gone[j.Key]; !ok {
			return false
		}
		dropped = append(dropped, j)
		o.openItems--
		o.openBytes -= int64(cap(j.Value))
		return true
	}
	o.failed = slices.DeleteFunc(o.failed, named)
	o.pushes = slices.DeleteFunc(o.pushes, func(j PushJob) bool {
		if !named(j) {
			return false
		}
		o.blocks -= j.Blocks
		return true
	})
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

// runDeletes deletes the queued keys.
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

// TryRenew queues renewals without waiting, for values that are in use. done is told once, on the offloader's
// goroutine, which of the keys have no value in the fabric; after an error that is unknown. It must not block. If
// TryRenew returns false, the queue is full or closed, and done is not called.
func (o *Offloader) TryRenew(keys []string, done func(missing []string, err error)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.openKeys+len(keys) > o.config.QueueRenewals {
		return false
	}
	o.renewals = append(o.renewals, renewal{keys, done})
	o.openKeys += len(keys)
	wake(o.wakePush)
	return true
}

// runRenewals renews the queued keys.
func (o *Offloader) runRenewals(list []renewal) {
	for _, r := range list {
		var missing []string
		var err error
		for _, key := range r.keys {
			if err = o.ctx.Err(); err == nil {
				err = o.fabric.Renew(o.ctx, key)
			}
			if errors.Is(err, ErrNotFound) {
				missing, err = append(missing, key), nil
			}
			if err != nil {
				missing = nil
				break
			}
		}
		o.mu.Lock()
		o.openKeys -= len(r.keys)
		o.mu.Unlock()
		r.done(missing, err)
	}
}

// retry queues the failed pushes again.
func (o *Offloader) retry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = false
	o.requeue()
}

// requeue queues the failed pushes again. The lock is held.
func (o *Offloader) requeue() {
	if len(o.failed) == 0 {
		return
	}
	o.stats.PushesRetried += uint64(len(o.failed))
	for _, j := range o.failed {
		o.blocks += j.Blocks
	}
	o.pushes = append(o.pushes, o.failed...)
	o.failed, o.flush = nil, true
	wake(o.wakePush)
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
	o.requeue()
	o.closed, o.flush = true, true
	o.timer.Stop()
	o.again.Stop()
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
		deletes, renewals := o.deletes, o.renewals
		o.deletes, o.renewals = nil, nil
		if !o.flush && o.blocks < o.config.Threshold {
			o.mu.Unlock()
			o.runDeletes(deletes)
			o.runRenewals(renewals)
			continue
		}
		batch, closed := o.pushes, o.closed
		o.pushes, o.blocks, o.flush = nil, 0, false
		o.timer.Stop()
		if len(batch) > 0 {
			o.stats.Batches++
		}
		o.mu.Unlock()
		stored := 0
		for i := range batch {
			if o.push(&batch[i]) {
				stored++
			}
			batch[i] = PushJob{} // frees its memory before the batch ends
		}
		o.runDeletes(deletes)
		o.runRenewals(renewals)
		if closed {
			return
		}
		o.planRetry(len(batch) > 0 && stored == 0)
	}
}

// planRetry sets the time of the next attempt of what has failed. worse: nothing of the last batch was stored.
func (o *Offloader) planRetry(worse bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.failed) == 0:
		o.pause = o.config.MinPause
		return
	case o.closed: // meanwhile: Close waits for one more attempt
		o.requeue()
		return
	}
	if !o.armed {
		o.armed = true
		o.again.Reset(o.pause)
	}
	if worse {
		o.pause = min(2*o.pause, o.config.MaxPause)
	} else {
		o.pause = o.config.MinPause
	}
}

// push pushes one value, and reports whether it is stored. What fails but may succeed later is kept in failed.
func (o *Offloader) push(j *PushJob) (stored bool) {
	size := int64(cap(j.Value))
	payload, err := j.Value, error(nil)
	if o.ctx.Err() != nil {
		err = ErrClosed
	}
	if err == nil && j.Prepare != nil {
		if payload, err = j.Prepare(j.Value); err == nil {
			j.Value, j.Prepare = payload, nil // the next attempt pushes the same
		}
	}
	if err == nil {
		err = o.fabric.Push(o.ctx, j.Key, payload)
	}
	o.mu.Lock()
	if err != nil && o.mayRetry(j, err) {
		o.openBytes += int64(cap(j.Value)) - size
		o.failed = append(o.failed, *j)
		o.mu.Unlock()
		return false
	}
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
	return err == nil
}

// mayRetry reports whether another attempt follows one that failed. A value that is about to be deleted is not
// pushed again. The lock is held.
func (o *Offloader) mayRetry(j *PushJob, err error) bool {
	if j.failed.IsZero() {
		j.failed = time.Now()
	}
	if o.closed || !Retryable(err) || time.Since(j.failed) >= o.config.RetryFor {
		return false
	}
	return !slices.ContainsFunc(o.deletes, func(d *deletion) bool { return slices.Contains(d.keys, j.Key) })
}
