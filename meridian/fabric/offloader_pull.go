package fabric

import (
	"context"
	"errors"
)

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
