package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// interToken compares the inter-token times of a chat beside two kinds of prompts, on two daemons that take turns. The
// first kind must be restored from host memory, and evicts others to host memory and disk. The second leaves as much to
// compute and is found in the pool. The difference is the cost of the copies.
func (cfg *KVConfig) interToken() (rows []KVRow, err error) {
	dir, err := os.MkdirTemp("", "uma-kv")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const rounds = 3
	// The pool has room for the chat and two and a half prompts, so the chat is never evicted.
	cells := 2*chatTokens + kvPrefix*5/2
	args := []string{"--ctx-size", fmt.Sprint(cells), "--parallel", "4"}
	copies := chatSide{prompts: cells/kvPrefix + 2, tail: kvUnique}
	still := chatSide{prompts: 1, tail: 3}
	err = with(cfg.Start, append(args, "--cache-ram", "1GiB", "--cache-dir", filepath.Join(dir, "kv")),
		func(p *daemonproc.Proc) error {
			return with(cfg.Start, append(args, "--cache-ram", "0"), func(q *daemonproc.Proc) error {
				copies.p, still.p = p, q
				if err := errors.Join(copies.prepare(kvPrefix), still.prepare(kvPrefix)); err != nil {
					return err
				}
				for i := range time.Duration(rounds) {
					if err := copies.round(kvChat/rounds, visitEvery); err != nil {
						return err
					}
					// As many visits, with as much to compute: the first tokens of a text may be cached.
					still.tail += copies.computed/copies.visits - still.last
					if err := still.round(kvChat/rounds,
						(i+1)*kvChat/rounds/time.Duration(copies.visits)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	if err != nil {
		return nil, err
	}
	if copies.restored < copies.visits/2 {
		return nil, fmt.Errorf("only %d of %d prompts had to be brought back: the row shows nothing", copies.restored,
			copies.visits)
	}
	beside, base, alone := latency(copies.beside), latency(still.beside), latency(append(copies.alone, still.alone...))
	text := func(l Latency) string { return fmt.Sprintf("%.1f ms (p50 %.1f, worst %.1f)", l.P99, l.P50, l.Worst) }
	return []KVRow{
		atMost("inter-token", fmt.Sprintf("p99 of a chat beside %d prompts, %d of them brought back, %d parts copied "+
			"out, %d tokens to compute each", copies.visits, copies.restored, copies.snapshots,
			copies.computed/copies.visits),
			text(beside), fmt.Sprintf("beside %d found in the pool, %d tokens to compute each, %s", still.visits,
				still.computed/still.visits, text(base)), beside.P99-base.P99, 10, " ms more"),
		{"inter-token", "p99 beside prompts found in the pool", text(base), "the chat alone, " + text(alone),
			base.P99 - alone.P99, "–", true},
	}, nil
}

const (
	visitEvery = 250 * time.Millisecond // between two prompts beside the chat, at least
	chatTokens = 1000
)

// chatSide is a daemon with a chat, and prompts that come beside it.
type chatSide struct {
	p       *daemonproc.Proc
	w       writer
	prompts int // that take turns
	prefix  int // tokens of each
	tail    int // tokens that each visit adds

	alone, beside               []float64 // between the chat's tokens, in ms
	visits, restored, snapshots int
	computed, last              int // prompt tokens; those of a visit of the last round
}

// prepare asks each prompt once, so that it is cached.
func (s *chatSide) prepare(prefix int) (err error) {
	s.prefix = prefix
	if s.w, err = newWriter(s.p.Socket); err != nil {
		return err
	}
	for i := range s.prompts {
		if _, err := askKV(s.p.Socket, s.w.text(i, 930, s.prefix), 1, nil); err != nil {
			return err
		}
	}
	return copiesDone(s.p)
}

// round times a chat alone for length, then for as long beside visits that begin at least apart from each other.
func (s *chatSide) round(length, apart time.Duration) error {
	c, err := dial(s.p.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS = "chat", s.w.text(s.visits, 931, 32), chatTokens, true,
		true
	if err := c.send(&r); err != nil {
		return err
	}
	var mu sync.Mutex
	var gaps []float64
	ended := make(chan error, 1)
	go func() {
		for last := (time.Time{}); ; {
			ev, err := c.next()
			now := time.Now()
			switch {
			case err == nil && ev.Kind == wire.EventToken:
				if !last.IsZero() {
					mu.Lock()
					gaps = append(gaps, ms(now.Sub(last)))
					mu.Unlock()
				}
				last = now
			case err == nil && ev.Kind == wire.EventEOS: // a quick model: again
				last, err = time.Time{}, c.send(&r)
			case err == nil:
				err = fmt.Errorf("the chat ended: %s", ev.Error.Message)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	// since returns the gaps since its last call.
	since := func() (out []float64) {
		mu.Lock()
		defer mu.Unlock()
		out, gaps = gaps, nil
		return out
	}
	visits, computed := s.visits, s.computed
	before, err := counters(s.p)
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	since()
	time.Sleep(length)
	s.alone = append(s.alone, since()...)
	for begin := time.Now(); time.Since(begin) < length; s.visits++ {
		next := time.Now().Add(apart)
		r, err := askKV(s.p.Socket, s.w.text(s.visits%s.prompts, 930, s.prefix)+s.w.text(s.visits, 932, s.tail), 1, nil)
		if err != nil {
			return err
		}
		u := r.eos.Usage
		s.computed += u.PromptTokens - u.CachedTokens
		if u.CacheTier != wire.TierNone && u.CacheTier != wire.TierDevice {
			s.restored++
		}
		time.Sleep(time.Until(next))
	}
	s.beside = append(s.beside, since()...)
	s.last = (s.computed - computed) / (s.visits - visits)
	after, err := counters(s.p)
	if err != nil {
		return err
	}
	s.snapshots += int(after("kv_snapshots_total") - before("kv_snapshots_total"))
	select {
	case err := <-ended:
		return err
	default:
		return nil
	}
}
