package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// script is a fabric that does what it is told.
type script struct {
	err     error                       // of every operation
	value   []byte                      // of every pull
	before  func(context.Context) error // runs first; its error, if any, is the operation's
	mu      sync.Mutex
	pushed  []string
	deleted []string
	renewed []string
}

func (s *script) note(list *[]string, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, what)
}

// seen returns the pushes so far, as key=value.
func (s *script) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pushed
}

func (s *script) do(ctx context.Context) error {
	if s.before != nil {
		if err := s.before(ctx); err != nil {
			return err
		}
	}
	return s.err
}

func (s *script) Push(ctx context.Context, key string, value []byte) error {
	s.note(&s.pushed, key+"="+string(value))
	return s.do(ctx)
}

func (s *script) Pull(ctx context.Context, key string, dst []byte) ([]byte, error) {
	if err := s.do(ctx); err != nil {
		return nil, err
	}
	return append(dst[:0], s.value...), nil
}

func (s *script) Renew(ctx context.Context, key string) error {
	s.note(&s.renewed, key)
	return s.do(ctx)
}

func (s *script) TTL() time.Duration { return 0 }

func (s *script) Delete(ctx context.Context, key string) error {
	s.note(&s.deleted, key)
	return s.do(ctx)
}

func (s *script) Label() string { return "script" }
func (s *script) Close() error  { return nil }

// silent waits for its context, as a fabric does whose other side says nothing.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
}

func TestGuardCounts(t *testing.T) {
	frame, err := mrdn.Append(nil, mrdn.ThinkComplete, []byte("kv"))
	if err != nil {
		t.Fatal(err)
	}
	inner := &script{}
	g := NewGuard(inner, GuardConfig{MaxBytes: 100, Failures: 1000})
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		key    string
		err    error
		value  []byte
		want   error
		reason Reason
	}{
		{name: "fine", value: frame},
		{name: "nothing there", err: ErrNotFound, want: ErrNotFound},
		{name: "down", err: ErrUnavailable, want: ErrUnavailable, reason: ReasonUnavailable},
		{name: "an error of no kind", err: errors.New("odd"), reason: ReasonUnavailable},
		{name: "late", err: fmt.Errorf("%w: %w", ErrUnavailable, context.DeadlineExceeded), want: ErrUnavailable,
			reason: ReasonTimeout},
		{name: "in pieces", err: ErrCorrupt, want: ErrCorrupt, reason: ReasonCorrupt},
		{name: "a flipped bit", value: append([]byte{frame[0] ^ 1}, frame[1:]...), want: mrdn.ErrMagic,
			reason: ReasonCorrupt},
		{name: "a lost tail", value: frame[:len(frame)-1], want: mrdn.ErrTruncated, reason: ReasonCorrupt},
		{name: "no frame", value: nil, want: mrdn.ErrTruncated, reason: ReasonCorrupt},
		{name: "too large", value: make([]byte, 101), want: ErrTooLarge, reason: ReasonTooLarge},
		{name: "given up", ctx: cancelled, want: context.Canceled, reason: ReasonCancelled},
		{name: "no key", key: "{}", want: ErrKey, reason: ReasonKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = ctx
			}
			if c.key == "" {
				c.key = "k"
			}
			inner.err, inner.value, inner.deleted = c.err, c.value, nil
			before := g.Stats()
			got, err := g.Pull(c.ctx, c.key, nil)
			after := g.Stats()
			fine := c.err == nil && c.want == nil
			if fine != (err == nil) || c.want != nil && !errors.Is(err, c.want) || err != nil && got != nil {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			switch {
			case fine:
				before.Pulled, before.PulledBytes = before.Pulled+1, before.PulledBytes+uint64(len(frame))
			case c.want == ErrNotFound:
				before.Missed++
			default:
				before.Errors[c.reason]++
			}
			if told := !fine && c.reason != ReasonCancelled && c.reason != ReasonKey &&
				c.want != ErrNotFound; told != (after.LastError != before.LastError) {
				t.Errorf("the newest error was %q and is %q", before.LastError, after.LastError)
			}
			before.LastError = after.LastError
			if after != before {
				t.Errorf("counted %+v, want %+v", after, before)
			}
			if corrupt := !fine && c.reason == ReasonCorrupt; corrupt != (len(inner.deleted) == 1) {
				t.Errorf("deleted %v", inner.deleted)
			}
		})
	}
	inner.err = nil
	if err := g.Push(ctx, "k", make([]byte, 101)); !errors.Is(err, ErrTooLarge) || len(inner.pushed) != 0 {
		t.Errorf("pushing too much: %v", err)
	}
	if err := g.Push(ctx, "k", frame); err != nil || g.Stats().PushedBytes != uint64(len(frame)) {
		t.Errorf("pushing: %v", err)
	}
	if err := g.Delete(ctx, "k"); err != nil || g.Stats().Deleted != 1 {
		t.Errorf("deleting: %v", err)
	}
	for r := range Reasons {
		if r.String() == "" || strings.ContainsAny(r.String(), " -") {
			t.Errorf("reason %d is called %q", r, r)
		}
	}
}

// TestGuardDeadline: its own, or the caller's when that is shorter.
func TestGuardDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(&script{before: silent}, GuardConfig{Timeout: 3 * time.Second, Failures: 100})
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, c := range []struct {
			ctx  context.Context
			want time.Duration
		}{{short, time.Second}, {context.Background(), 3 * time.Second}} {
			began := time.Now()
			err := g.Push(c.ctx, "k", nil)
			if d := time.Since(began); d != c.want || ReasonOf(err) != ReasonTimeout {
				t.Errorf("after %v: %v, want a timeout after %v", d, err, c.want)
			}
		}
	})
}

// TestBreaker tells its life, with the clock in hand.
func TestBreaker(t *testing.T) {
	now := time.Unix(1000, 0)
	inner := &script{err: ErrUnavailable}
	g := NewGuard(inner, GuardConfig{Failures: 3, MinPause: time.Second, MaxPause: 5 * time.Second,
		Now: func() time.Time { return now }})
	calls := 0
	inner.before = func(context.Context) error { calls++; return nil }
	push := func() error { return g.Push(context.Background(), "k", nil) }
	step := func(what string, wait time.Duration, fabricSays error, asked bool, state BreakerState) {
		t.Helper()
		now = now.Add(wait)
		inner.err = fabricSays
		before := calls
		err := push()
		if (calls > before) != asked || g.Stats().Breaker != state || asked == errors.Is(err, ErrCircuitOpen) {
			t.Fatalf("%s: asked %v, %v, %v; want asked %v, %v", what, calls > before, g.Stats().Breaker, err, asked,
				state)
		}
	}
	down, miss := error(ErrUnavailable), error(ErrNotFound)
	step("first failure", 0, down, true, BreakerClosed)
	step("second failure", 0, down, true, BreakerClosed)
	step("a miss is an answer", 0, miss, true, BreakerClosed)
	step("so it counts again from one", 0, down, true, BreakerClosed)
	step("too large says nothing", 0, ErrTooLarge, true, BreakerClosed)
	step("two", 0, down, true, BreakerClosed)
	step("three", 0, down, true, BreakerOpen)
	step("left alone", 999*time.Millisecond, nil, false, BreakerOpen)
	step("one attempt", time.Millisecond, down, true, BreakerOpen)
	step("twice the pause", 1999*time.Millisecond, nil, false, BreakerOpen)
	step("next attempt", time.Millisecond, down, true, BreakerOpen)
	step("four times", 3999*time.Millisecond, nil, false, BreakerOpen)
	step("next attempt", time.Millisecond, down, true, BreakerOpen)
	step("no more than the longest", 5*time.Second, ErrTooLarge, true, BreakerHalfOpen)
	step("that said nothing, so again", 0, nil, true, BreakerClosed)
	step("and the pause is short again", 0, down, true, BreakerClosed)
	step("two", 0, down, true, BreakerClosed)
	step("three", 0, down, true, BreakerOpen)
	step("one second", time.Second, nil, true, BreakerClosed)
	if s := g.Stats(); s.BreakerOpened != 5 || s.Errors[ReasonCircuitOpen] != 3 {
		t.Errorf("%+v", s)
	}

	// One attempt at a time, and what began before it opened has no say.
	var b = newBreaker(1, time.Second, time.Minute)
	oldProbe, _ := b.allow(now)
	b.allow(now)
	b.done(now, false, bad)
	now = now.Add(time.Second)
	probe, ok := b.allow(now)
	if _, second := b.allow(now); !ok || !probe || second {
		t.Errorf("half-open: first %v as probe %v, second %v", ok, probe, second)
	}
	b.done(now, oldProbe, good)
	if b.state != BreakerHalfOpen {
		t.Errorf("an old success made it %v", b.state)
	}
	b.done(now, probe, good)
	if b.state != BreakerClosed {
		t.Errorf("the probe's success left it %v", b.state)
	}
}

// TestBreakerNeverSticks: after any history, a fabric that is well again is asked again within the longest pause.
func TestBreakerNeverSticks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const longest = 8 * time.Second
		b := newBreaker(rapid.IntRange(1, 4).Draw(t, "failures"), time.Second, longest)
		now := time.Unix(0, 0)
		var running []bool // probe or not
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
			if len(running) > 0 && rapid.Bool().Draw(t, "end one") {
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				b.done(now, running[i], outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
				running = append(running[:i], running[i+1:]...)
			} else if probe, ok := b.allow(now); ok {
				running = append(running, probe)
			}
			probes := 0
			for _, p := range running {
				if p {
					probes++
				}
			}
			if probes > 1 || b.probing != (probes == 1) || b.probing && b.state != BreakerHalfOpen ||
				b.pause > longest || b.until.After(now.Add(longest)) {
				t.Fatalf("%d probes run, %+v at %v", probes, b, now)
			}
		}
		for _, probe := range running {
			b.done(now, probe, neutral)
		}
		now = now.Add(longest)
		probe, ok := b.allow(now)
		if !ok {
			t.Fatalf("still closed to a healthy fabric: %+v", b)
		}
		b.done(now, probe, good)
		if b.state != BreakerClosed {
			t.Fatalf("%+v", b)
		}
	})
}

// TestGuardSurvivesPanic: a probe that panicked must not keep the breaker half-open for good.
func TestGuardSurvivesPanic(t *testing.T) {
	now := time.Unix(0, 0)
	inner := &script{err: ErrUnavailable}
	g := NewGuard(inner, GuardConfig{Failures: 1, Now: func() time.Time { return now }})
	g.Push(context.Background(), "k", nil)
	now = now.Add(time.Hour)
	inner.before = func(context.Context) error { panic("boom") }
	func() {
		defer func() { recover() }()
		g.Push(context.Background(), "k", nil)
	}()
	inner.err, inner.before = nil, nil
	if err := g.Push(context.Background(), "k", nil); err != nil || g.Stats().Breaker != BreakerClosed {
		t.Errorf("%v, %v", err, g.Stats().Breaker)
	}
}
