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
	// Threshold is how many blocks are gathered before they are pushed together
	// (meridian's disagg.offload_threshold_blocks). Default 4.
	Threshold int
	// MaxDelay is how long fewer than that wait for company. Default 1 s.
	MaxDelay time.Duration
	// QueueItems and QueueBytes bound what waits to be pushed, what is being pushed included.
	// Defaults 256 and 256 MiB.
	QueueItems int
	QueueBytes int64
	// QueuePulls bounds how many pulls wait. Default 64.
	QueuePulls int
}

// PushJob is a value to be pushed.
type PushJob struct {
	Key string
	// Value belongs to the offloader from an accepted TryPush until Done is called. QueueBytes counts its capacity.
	Value  []byte
	Blocks int // KV blocks in it, for Threshold and the counters
	// Prepare makes the payload of Value, off the caller's goroutine: compress it, seal the frame. It may work in
	// Value's storage. Nil when Value is the payload.
	Prepare func(value []byte) ([]byte, error)
	// Done is told the outcome once, on the offloader's goroutine: it must not block. May be nil.
	Done func(error)
}

// PullJob is a value that is wanted.
type PullJob struct {
	// Context ends the wait when the request that wants the value ends, or recomputing has become cheaper. Required.
	Context context.Context
	Key     string
	Dst     []byte // storage for the value; belongs to the offloader until Done is called
	Blocks  int
	// Done is told the outcome once, on the offloader's goroutine: it must not block. Required.
	Done func(value []byte, err error)
}

// Offloader runs the operations of a fabric for somebody who must not wait: the decode loop. TryPush and TryPull take
// a lock for a few instructions and never wait for the fabric; when there is no room they say no.
//
// Two goroutines work, one pushes and one pulls: somebody waits for what is pulled, and it should not stand behind
// a large value on its way out. Pushes are batched: a goroutine that wakes takes a core from the engine, so it should
// wake rarely.
type Offloader struct {
	fabric Fabric
	config OffloadConfig
	ctx    context.Context // of all operations; cancelled when Close runs out of time
	cancel context.CancelFunc
	done   sync.WaitGroup // the two goroutines

	wakePush, wakePull chan struct{} // capacity 1: a wake-up that is not lost

	mu     sync.Mutex
	closed bool
	flush  bool // push what is there, however little
	pushes []PushJob
	blocks int // in pushes
	// held counts pushes and what the goroutine has taken of them and not yet finished.
	// Invariant: heldItems <= QueueItems and heldBytes <= QueueBytes.
	heldItems int
	heldBytes int64
	deletes   []*deletion
	pulls     []PullJob
	timer     *time.Timer // sets flush, MaxDelay after the first of pushes came
	stats     OffloadStats
}

// OffloadStats is a snapshot of what happened since the start.
type OffloadStats struct {
	BlocksOffloaded, BlocksIngested uint64 // meridian_disagg_blocks_{offloaded,ingested}_total
	BytesOffloaded, BytesIngested   uint64
	Batches                         uint64
	PushesFailed, PullsFailed       uint64 // why is in GuardStats.Errors
	PullsMissed                     uint64
	PushesDropped, PullsDropped     uint64 // no room, or closed: meridian_disagg_errors_total{reason="queue_full"}
	QueuedItems                     int    // not yet finished
	QueuedBytes                     int64
}

// deletion is keys to be removed, after what is being pushed.
type deletion struct {
	ctx  context.Context
	keys []string
	done chan struct{} // closed at the end; n and err are set then
	n    int
	err  error
}

// ErrDropped: a push was taken back before its turn, because its key was deleted.
var ErrDropped = errors.New("dropped: its key was deleted")

// ErrClosed: the offloader was closed before it came to this.
var ErrClosed = errors.New("offloader closed")

// NewOffloader starts one. The fabric, usually a [Guard], stays the caller's and must outlive it.
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

// TryPush queues a push, without waiting. False means that it was dropped, and counted: the job is still the caller's
// and its Done is not called.
func (o *Offloader) TryPush(j PushJob) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := int64(cap(j.Value))
	if o.closed || o.heldItems >= o.config.QueueItems || o.heldBytes+size > o.config.QueueBytes {
		o.stats.PushesDropped++
		return false
	}
	if len(o.pushes) == 0 {
		o.timer.Reset(o.config.MaxDelay)
	}
	o.pushes = append(o.pushes, j)
	o.blocks += j.Blocks
	o.heldItems++
	o.heldBytes += size
	if o.blocks >= o.config.Threshold {
		wake(o.wakePush)
	}
	return true
}

// TryPull queues a pull, without waiting. False means that it was dropped, and counted; Done is not called.
func (o *Offloader) TryPull(j PullJob) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.pulls) >= o.config.QueuePulls {
		o.stats.PullsDropped++
		return false
	}
	o.pulls = append(o.pulls, j)
	wake(o.wakePull)
	return true
}

// Delete removes keys: pushes of them that wait are dropped, one that is under way is removed after it. It returns when
// the fabric has removed them all, or with the first error, and says how many were done.
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
		o.heldItems--
		o.heldBytes -= int64(cap(j.Value))
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

// Stats is a snapshot.
func (o *Offloader) Stats() OffloadStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.QueuedItems, s.QueuedBytes = o.heldItems, o.heldBytes
	return s
}

// Close takes nothing more, finishes what is queued and stops. When ctx ends first, what is under way is cancelled,
// the rest fails with [ErrClosed], and Close returns an error that says how much it was; Done callbacks may then
// still come for as long as the fabric takes to give up. Every accepted job is told its outcome.
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
	items, bytes, pulls := o.heldItems, o.heldBytes, len(o.pulls)
	o.mu.Unlock()
	o.cancel()
	return fmt.Errorf("closing offloader: %w with %d pushes (%d bytes) and %d pulls unfinished", ctx.Err(), items, bytes, pulls)
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
			batch[i] = PushJob{} // its memory is not needed until the batch ends
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
	o.heldItems--
	o.heldBytes -= size
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
