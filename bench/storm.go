package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/uma-serve/uma-serve/internal/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// StormConfig is one storm: chats that decode while clients submit long unique prompts back to back.
type StormConfig struct {
	Chats      int           // streams that decode all the time
	Clients    int           // that submit prompts, each the next when the last was answered
	Prompt     int           // tokens of each of these prompts, about
	Solo       time.Duration // the chats alone, before
	Storm      time.Duration
	Background bool      // the clients' prompts are marked as background work
	Log        io.Writer // progress lines; nil = none
}

// Storm is what the chats saw and what the prompts got.
type Storm struct {
	Solo            Latency   `json:"alone"` // inter-token times of the chats
	Under           Latency   `json:"storm"`
	Fifth           []float64 `json:"fifth_tokens_ms"`
	SoloFifthMs     float64   `json:"solo_fifth_token_ms"` // a newcomer's time to its 5th token beside the chats, median
	FifthMs         float64   `json:"fifth_token_ms"`      // the same in the storm
	PromptTokensSec float64   `json:"prompt_tokens_per_second"`
	Prompts         int       `json:"prompts"` // answered
}

// Latency sums inter-token times up, in ms.
type Latency struct {
	Tokens int     `json:"tokens"`
	P50    float64 `json:"p50_ms"`
	P95    float64 `json:"p95_ms"`
	P99    float64 `json:"p99_ms"`
	Worst  float64 `json:"worst_ms"`
}

func latency(gaps []float64) Latency {
	if len(gaps) == 0 {
		return Latency{}
	}
	slices.Sort(gaps)
	q := func(p float64) float64 { return stat.Quantile(p, stat.Empirical, gaps, nil) }
	return Latency{len(gaps), q(.5), q(.95), q(.99), gaps[len(gaps)-1]}
}

// RunStorm runs cfg against a daemon that does nothing else.
func RunStorm(p *daemonproc.Proc, cfg StormConfig) (Storm, error) {
	var out Storm
	var mu sync.Mutex
	var errs []error
	fail := func(err error) {
		mu.Lock()
		errs = append(errs, err)
		mu.Unlock()
	}
	var background sync.WaitGroup
	quit := make(chan struct{})
	stopped := func() bool {
		select {
		case <-quit:
			return true
		default:
			return false
		}
	}

	// The chats: one endless answer each, every token's time noted.
	chats := make([]struct {
		mu    sync.Mutex
		times []time.Time
		c     *conn
	}, cfg.Chats)
	var ready sync.WaitGroup
	for i := range chats {
		ch := &chats[i]
		c, err := dial(p.Socket)
		if err != nil {
			return out, err
		}
		ch.c = c
		r := defaults
		r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS = "chat", prompt(i, 1, 24), 1<<20, true, true
		if err := c.send(&r); err != nil {
			return out, err
		}
		ready.Add(1)
		background.Go(func() {
			first := true
			defer func() {
				if first {
					ready.Done()
				}
			}()
			for {
				ev, err := c.next()
				now := time.Now()
				if stopped() {
					return
				}
				switch {
				case err != nil:
					fail(fmt.Errorf("chat %d: %w", i, err))
					return
				case ev.Kind == wire.EventError:
					fail(fmt.Errorf("chat %d: %s: %s", i, ev.Error.Code, ev.Error.Message))
					return
				case ev.Kind == wire.EventEOS:
					fail(fmt.Errorf("chat %d ended early (%s): a larger --ctx-size is needed", i, ev.EOS.Reason))
					return
				}
				ch.mu.Lock()
				ch.times = append(ch.times, now)
				ch.mu.Unlock()
				if first {
					first = false
					ready.Done()
				}
			}
		})
	}
	ready.Wait()
	window := func(from, to time.Time) (gaps []float64) {
		for i := range chats {
			chats[i].mu.Lock()
			ts := chats[i].times
			for j := 1; j < len(ts); j++ {
				// A gap belongs to the window it ends in: a stall that began just before counts.
				if ts[j].After(from) && !ts[j].After(to) {
					gaps = append(gaps, ms(ts[j].Sub(ts[j-1])))
				}
			}
			// One that has not ended counts as long as it has lasted.
			if last := ts[len(ts)-1]; !last.After(to) {
				gaps = append(gaps, ms(to.Sub(last)))
			}
			chats[i].mu.Unlock()
		}
		return gaps
	}
	// newcomers asks short questions, one every so often, and notes the time to the 5th token.
	newcomers := func(salt int, until time.Time, every time.Duration) []float64 {
		var fifth []float64
		for n := 0; time.Until(until) > 0; n++ {
			start := time.Now()
			d, err := fifthToken(p.Socket, prompt(n, salt, 24), until.Add(time.Second))
			if err != nil {
				fail(fmt.Errorf("newcomer: %w", err))
				break
			}
			fifth = append(fifth, ms(d))
			if rest := every - time.Since(start); rest > 0 {
				time.Sleep(min(rest, max(time.Until(until), 0)))
			}
		}
		return fifth
	}

	say(cfg.Log, "  %d chats alone for %v", cfg.Chats, cfg.Solo)
	time.Sleep(time.Second) // warm-up
	from := time.Now()
	solo := newcomers(10, from.Add(cfg.Solo), cfg.Solo/6)
	out.SoloFifthMs = median(solo)
	to := time.Now()
	out.Solo = latency(window(from, to))

	say(cfg.Log, "  storm for %v: alone p50 %.1f p95 %.1f ms", cfg.Storm, out.Solo.P50, out.Solo.P95)
	from = time.Now()
	var answered sync.WaitGroup
	var prompts int
	for w := range cfg.Clients {
		c, err := dial(p.Socket)
		if err != nil {
			return out, err
		}
		defer c.Close()
		answered.Go(func() {
			for n := 0; !stopped() && time.Since(from) < cfg.Storm; n++ {
				r := defaults
				r.ID, r.Prompt, r.MaxTokens, r.Stream = "p", prompt(w*1000+n, 2, cfg.Prompt), 1, true
				if cfg.Background {
					r.Priority = wire.PriorityBackground
				}
				if _, err := c.askRequest(&r); err != nil {
					if !stopped() {
						fail(fmt.Errorf("prompt: %w", err))
					}
					return
				}
				mu.Lock()
				prompts++
				mu.Unlock()
			}
		})
		background.Go(func() {
			<-quit
			c.Close()
		})
	}
	// The prompts' speed: from the end of the first step that advanced them to the end of the last one.
	var changes []sample
	background.Go(func() {
		for !stopped() && time.Since(from) < cfg.Storm {
			s, err := prefilled(p)
			if err != nil {
				fail(err)
				return
			}
			if n := len(changes); n == 0 || changes[n-1].tokens != s.tokens {
				changes = append(changes, s)
			}
			time.Sleep(time.Second) // a scrape takes a core from a decode for a moment
		}
	})
	time.Sleep(time.Second)
	out.Fifth = newcomers(11, from.Add(cfg.Storm), cfg.Storm/6)
	out.FifthMs = median(out.Fifth)
	if d := time.Until(from.Add(cfg.Storm)); d > 0 {
		time.Sleep(d)
	}
	out.Under = latency(window(from, time.Now()))
	close(quit)
	for i := range chats {
		chats[i].c.Close()
	}
	background.Wait()
	answered.Wait()
	out.Prompts = prompts
	if n := len(changes); n > 2 { // the first is of before the storm
		out.PromptTokensSec = (changes[n-1].tokens - changes[1].tokens) / changes[n-1].at.Sub(changes[1].at).Seconds()
	}
	say(cfg.Log, "  in the storm p50 %.1f p95 %.1f worst %.1f ms, %.0f prompt tokens/s", out.Under.P50, out.Under.P95, out.Under.Worst, out.PromptTokensSec)
	return out, errors.Join(errs...)
}

func say(w io.Writer, format string, args ...any) {
	if w != nil {
		fmt.Fprintf(w, format+"\n", args...)
	}
}

// sample is how many prompt tokens were computed at a moment.
type sample struct {
	at     time.Time
	tokens float64
}

func prefilled(p *daemonproc.Proc) (sample, error) {
	text, err := p.Ask("metrics")
	if err != nil {
		return sample{}, err
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return sample{}, fmt.Errorf("metrics: %w", err)
	}
	n, ok := m["prefill_tokens_merged_total"].(float64)
	if !ok {
		return sample{}, errors.New("metrics: prefill_tokens_merged_total is missing: the daemon is of another version")
	}
	return sample{time.Now(), n}, nil
}

// fifthToken is how long a short question waits for its 5th token, on a connection of its own; at the deadline it is
// given up, and has waited at least so long.
func fifthToken(socket, text string, deadline time.Time) (time.Duration, error) {
	c, err := dial(socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS = "new", text, 5, true, true
	start := time.Now()
	c.SetDeadline(deadline)
	n, err := c.askRequest(&r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return time.Since(start), nil
	}
	if err == nil && n != 5 {
		err = fmt.Errorf("%d tokens came instead of 5", n)
	}
	return time.Since(start), err
}
