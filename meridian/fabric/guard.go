package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// Reason says why an operation failed; the label of meridian_disagg_errors_total. A missing value is not a failure.
type Reason uint8

const (
	ReasonTimeout     Reason = iota // no answer before the deadline
	ReasonUnavailable               // not connected, refused, or an error reply
	ReasonCorrupt                   // the value does not match its checksum, or its pieces do not fit
	ReasonTooLarge                  // above the limit, pushed or pulled
	ReasonCircuitOpen               // not tried, because the breaker is open
	ReasonCancelled                 // the caller gave up
	ReasonKey                       // an invalid key: a bug of the caller
	Reasons                         // the number of reasons
)

// String returns the reason's label.
func (r Reason) String() string {
	return [...]string{"timeout", "unavailable", "corrupt", "too_large", "circuit_open", "cancelled", "bad_key"}[r]
}

// ReasonOf returns the reason of a fabric's error, which must not be nil or wrap [ErrNotFound].
func ReasonOf(err error) Reason {
	switch {
	case errors.Is(err, ErrCircuitOpen):
		return ReasonCircuitOpen
	case errors.Is(err, ErrCorrupt):
		return ReasonCorrupt
	case errors.Is(err, ErrTooLarge):
		return ReasonTooLarge
	case errors.Is(err, ErrKey):
		return ReasonKey
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout
	case errors.Is(err, context.Canceled):
		return ReasonCancelled
	}
	return ReasonUnavailable
}

// ErrCircuitOpen: the operation was not tried, because the fabric has failed lately. It comes with [ErrUnavailable].
var ErrCircuitOpen = errors.New("circuit open")

// GuardConfig limits the cost of a fabric. Zero values mean the defaults.
type GuardConfig struct {
	// Timeout bounds an operation whose context allows more. Default 5 s.
	Timeout time.Duration
	// Failures is the number of failures in a row that open the breaker. Default 3.
	Failures int
	// MinPause is the first pause of the open breaker. Each failed attempt to close it doubles the pause, up to
	// MaxPause. Defaults 1 s and 60 s.
	MinPause, MaxPause time.Duration
	// MaxBytes is the largest value, pushed or pulled. Default 1 GiB.
	MaxBytes int
	// Verify checks a pulled value; an error makes the value corrupt. Default: mrdn.Parse, which accepts only MRDN
	// frames.
	Verify func(value []byte) error
	// Failed is called for each failed operation, except those that the caller cancelled or the breaker refused. It may
	// be called from any goroutine. May be nil.
	Failed func(verb string, reason Reason, err error)
	// Now is the breaker's clock. Default time.Now.
	Now func() time.Time
}

// Guard wraps a fabric that may be slow, down or wrong, and turns that into a cache miss. Each operation has a
// deadline, pulled values are verified, and after some failures in a row the inner fabric is not used for a while. A
// corrupt value is deleted, so that the next push replaces it.
type Guard struct {
	inner  Fabric
	config GuardConfig

	mu      sync.Mutex
	breaker breaker
	stats   GuardStats
}

// GuardStats are counters since the start.
type GuardStats struct {
	Pushed, Pulled, Renewed, Deleted uint64 // operations that succeeded
	Missed                           uint64 // pulls and renewals that found nothing
	PushedBytes, PulledBytes         uint64
	Errors                           [Reasons]uint64 // meridian_disagg_errors_total by reason
	LastError                        string          // the newest error passed to Failed or [Guard.Report]
	Breaker                          BreakerState
	BreakerOpened                    uint64 // number of times it opened
}

// NewGuard wraps inner and owns it afterwards.
func NewGuard(inner Fabric, c GuardConfig) *Guard {
	orDefault(&c.Timeout, 5*time.Second)
	orDefault(&c.Failures, 3)
	orDefault(&c.MinPause, time.Second)
	orDefault(&c.MaxPause, time.Minute)
	orDefault(&c.MaxBytes, 1<<30)
	c.MaxPause = max(c.MaxPause, c.MinPause)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Verify == nil {
		c.Verify = func(frame []byte) error { _, _, err := mrdn.Parse(frame, c.MaxBytes); return err }
	}
	return &Guard{inner: inner, config: c, breaker: newBreaker(c.Failures, c.MinPause, c.MaxPause)}
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Label returns the inner fabric's label.
func (g *Guard) Label() string { return g.inner.Label() }

// Close closes the inner fabric.
func (g *Guard) Close() error { return g.inner.Close() }

// Stats returns the counters.
func (g *Guard) Stats() GuardStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Breaker, s.BreakerOpened = g.breaker.state, g.breaker.opened
	return s
}

// Push pushes within the limits.
func (g *Guard) Push(ctx context.Context, key string, value []byte) error {
	if len(value) > g.config.MaxBytes {
		return g.refuse(fmt.Errorf("%s: push: %w: %d bytes, the limit is %d", g.Label(), ErrTooLarge, len(value),
			g.config.MaxBytes))
	}
	return g.do(ctx, "push", key, func(ctx context.Context) error { return g.inner.Push(ctx, key, value) },
		func(s *GuardStats) { s.Pushed++; s.PushedBytes += uint64(len(value)) })
}

// Pull pulls within the limits and verifies the value.
func (g *Guard) Pull(ctx context.Context, key string, dst []byte) (value []byte, err error) {
	err = g.do(ctx, "pull", key, func(ctx context.Context) (err error) {
		if value, err = g.inner.Pull(ctx, key, dst); err == nil {
			if len(value) > g.config.MaxBytes {
				return fmt.Errorf("%s: pull: %w: %d bytes, the limit is %d", g.Label(), ErrTooLarge, len(value),
					g.config.MaxBytes)
			}
			if err = g.config.Verify(value); err != nil {
				err = fmt.Errorf("%s: pull: %w: %w", g.Label(), ErrCorrupt, err)
			}
		}
		if errors.Is(err, ErrCorrupt) {
			_ = g.inner.Delete(ctx, key)
		}
		return err
	}, func(s *GuardStats) { s.Pulled++; s.PulledBytes += uint64(len(value)) })
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Renew renews within the limits.
func (g *Guard) Renew(ctx context.Context, key string) error {
	return g.do(ctx, "renew", key, func(ctx context.Context) error { return g.inner.Renew(ctx, key) },
		func(s *GuardStats) { s.Renewed++ })
}

// TTL returns the inner fabric's.
func (g *Guard) TTL() time.Duration { return g.inner.TTL() }

// Delete deletes within the limits.
func (g *Guard) Delete(ctx context.Context, key string) error {
	return g.do(ctx, "delete", key, func(ctx context.Context) error { return g.inner.Delete(ctx, key) },
		func(s *GuardStats) { s.Deleted++ })
}

// Report counts a failure that the user of a value detected, and passes it to Failed.
func (g *Guard) Report(verb string, err error) {
	_ = g.refuse(err)
	g.tell(verb, err)
}

func (g *Guard) tell(verb string, err error) {
	reason := ReasonOf(err)
	if reason == ReasonCancelled || reason == ReasonCircuitOpen {
		return
	}
	g.mu.Lock()
	g.stats.LastError = err.Error()
	g.mu.Unlock()
	if g.config.Failed != nil {
		g.config.Failed(verb, reason, err)
	}
}

// refuse counts an error that did not come from the inner fabric.
func (g *Guard) refuse(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Errors[ReasonOf(err)]++
	return err
}

func (g *Guard) do(ctx context.Context, verb, key string, op func(context.Context) error,
	succeeded func(*GuardStats)) error {
	if err := fault.Begin(ctx, key); err != nil {
		return g.refuse(fmt.Errorf("%s: %s: %w", g.Label(), verb, err))
	}
	g.mu.Lock()
	probe, ok := g.breaker.allow(g.config.Now())
	until := g.breaker.until
	g.mu.Unlock()
	if !ok {
		return g.refuse(fmt.Errorf("%s: %s: %w: %w until %s", g.Label(), verb, ErrUnavailable, ErrCircuitOpen,
			until.Format(time.TimeOnly)))
	}
	within, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	o := neutral
	defer func() { // even if op panics: a probe without an end would keep the breaker half-open for ever
		g.mu.Lock()
		g.breaker.done(g.config.Now(), probe, o)
		g.mu.Unlock()
	}()
	err := op(within)
	if err != nil && !errors.Is(err, ErrNotFound) {
		g.tell(verb, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		o = good
		succeeded(&g.stats)
	case errors.Is(err, ErrNotFound):
		o = good
		g.stats.Missed++
	default:
		reason := ReasonOf(err)
		g.stats.Errors[reason]++
		switch reason {
		case ReasonTimeout, ReasonUnavailable, ReasonCorrupt:
			// The caller's deadline counts too: the fabric was too slow for its purpose.
			o = bad
		}
	}
	return err
}
