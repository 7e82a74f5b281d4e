package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// BusyConfig configures the measurement of daemons beside a process that takes a processor.
type BusyConfig struct {
	Streams []int         // answers at the same time
	Tokens  int           // of each answer; a stream asks for the next one at once
	Phase   time.Duration // of each measurement: undisturbed, disturbed, after
	Rounds  int
	// Disturb starts the process, and returns the function that ends it.
	Disturb func() (end func(), err error)
	Log     io.Writer // progress lines; nil = none
}

// BusySide is a daemon that is measured. The first of several is compared with the others.
type BusySide struct {
	Name   string
	Socket string
}

// Busy is a row: one daemon, one number of streams.
type Busy struct {
	Side    string `json:"side"`
	Streams int    `json:"streams"`
	// Medians over the rounds.
	Undisturbed float64 `json:"undisturbed_tokens_per_second"`
	Disturbed   float64 `json:"disturbed_tokens_per_second"`
	Ratio       float64 `json:"ratio"` // disturbed over undisturbed
	// 95th percentiles over all rounds.
	CalmITLp95Ms float64 `json:"undisturbed_itl_p95_ms"`
	ITLp95Ms     float64 `json:"disturbed_itl_p95_ms"`
	// BackSeconds is the time from the end of the process until the speed is back, in the slowest round: the end of the
	// first quarter of a second behind which half a second has 0.9 of the undisturbed speed. A round in which it does
	// not come back has the whole phase.
	BackSeconds float64 `json:"back_seconds"`
	// IdleCost is the undisturbed speed relative to that of the last side, median of the rounds' ratios; 0 for the last
	// side.
	IdleCost float64 `json:"idle_ratio,omitempty"`
}

// RunBusy measures the sides in turns: in each round every side answers undisturbed, beside the process, and after its
// end.
func RunBusy(cfg BusyConfig, sides []BusySide) ([]Busy, error) {
	var out []Busy
	for _, n := range cfg.Streams {
		rounds := make([][]busyRound, len(sides))
		for round := range cfg.Rounds {
			for i := range sides {
				side := (i + round) % len(sides)
				r, err := cfg.round(sides[side], n, round)
				if err != nil {
					return out, fmt.Errorf("%s, %d streams: %w", sides[side].Name, n, err)
				}
				rounds[side] = append(rounds[side], r)
				if cfg.Log != nil {
					fmt.Fprintf(cfg.Log, "%s, %d streams, round %d: %s\n", sides[side].Name, n, round+1, r)
				}
			}
		}
		rows := make([]Busy, len(sides))
		for i, rs := range rounds {
			rows[i] = busyRow(sides[i].Name, n, rs)
		}
		for i := range rows[:len(rows)-1] {
			rows[i].IdleCost = idleCost(rounds[i], rounds[len(rounds)-1])
		}
		out = append(out, rows...)
	}
	return out, nil
}

// busyRound is a round of one side.
type busyRound struct {
	calm, busy speed
	back       time.Duration
}

func (r busyRound) String() string {
	return fmt.Sprintf("undisturbed %.1f tok/s, p95 %.1f ms; beside the process %.1f (%.2f), p95 %.1f ms; back after "+
		"%.2f s", r.calm.rate, quantile(r.calm.gaps, 0.95), r.busy.rate, r.busy.rate/r.calm.rate,
		quantile(r.busy.gaps, 0.95), r.back.Seconds())
}

// speed is the token rate of a phase, and its inter-token times.
type speed struct {
	rate float64   // tokens per second, of all streams
	gaps []float64 // between two tokens of an answer, ms
}

func busyRow(name string, streams int, rounds []busyRound) Busy {
	b := Busy{Side: name, Streams: streams}
	var calm, busy, ratio, calmGaps, gaps []float64
	for _, r := range rounds {
		calm, busy = append(calm, r.calm.rate), append(busy, r.busy.rate)
		if r.calm.rate > 0 {
			ratio = append(ratio, r.busy.rate/r.calm.rate)
		}
		calmGaps, gaps = append(calmGaps, r.calm.gaps...), append(gaps, r.busy.gaps...)
		b.BackSeconds = max(b.BackSeconds, r.back.Seconds())
	}
	b.Undisturbed, b.Disturbed, b.Ratio = median(calm), median(busy), median(ratio)
	b.CalmITLp95Ms, b.ITLp95Ms = quantile(calmGaps, 0.95), quantile(gaps, 0.95)
	return b
}

// idleCost returns the median of the rounds' undisturbed speeds relative to those of last.
func idleCost(rounds, last []busyRound) float64 {
	var ratios []float64
	for i := range rounds {
		if last[i].calm.rate > 0 {
			ratios = append(ratios, rounds[i].calm.rate/last[i].calm.rate)
		}
	}
	return median(ratios)
}

// quantile returns the q quantile of x, 0 when there is none.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return stat.Quantile(q, stat.Empirical, s, nil)
}

// stamp is a token that arrived.
type stamp struct {
	at    time.Duration // since the start of the round
	gap   time.Duration // since the token before of the same answer; 0 = the first
	later bool          // there was one before
}

// warm is the time for which streams run before the first phase of a round.
const warm = time.Second

// round lets n streams answer through the three phases.
func (cfg *BusyConfig) round(side BusySide, n, round int) (r busyRound, err error) {
	start := time.Now()
	stop := make(chan struct{})
	stamps, errs := make([][]stamp, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { stamps[i], errs[i] = cfg.stream(side.Socket, i, round, start, stop) })
	}
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer end()

	time.Sleep(warm)
	from := time.Since(start)
	time.Sleep(cfg.Phase)
	taken := time.Since(start)
	quiet, err := cfg.Disturb()
	if err != nil {
		return r, err
	}
	time.Sleep(cfg.Phase)
	quiet()
	freed := time.Since(start)
	time.Sleep(cfg.Phase)
	until := time.Since(start)
	end()
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	all := slices.Concat(stamps...)
	slices.SortFunc(all, func(a, b stamp) int { return int(a.at - b.at) })
	r.calm, r.busy = speedOf(all, from, taken), speedOf(all, taken, freed)
	r.back = backAfter(all, freed, until, 0.9*r.calm.rate)
	return r, nil
}

// stream asks for one answer after the other until stop is closed.
func (cfg *BusyConfig) stream(socket string, i, round int, start time.Time, stop <-chan struct{}) ([]stamp, error) {
	c, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	go func() { <-stop; c.Close() }()
	var out []stamp
	for turn := 0; ; turn++ {
		req := defaults
		req.ID, req.Prompt, req.MaxTokens = strconv.Itoa(turn), prompt(i, 100*round+turn, 8), cfg.Tokens
		req.Stream, req.NoProgress = true, true
		req.Sampling.Temperature, req.Sampling.IgnoreEOS = 0, true
		err := c.send(&req)
		var last time.Duration
		for done := false; err == nil && !done; {
			var ev *wire.Event
			if ev, err = c.next(); err != nil {
				break
			}
			switch ev.Kind {
			case wire.EventToken:
				now := time.Since(start)
				s := stamp{at: now, later: last > 0}
				if s.later {
					s.gap = now - last
				}
				out, last = append(out, s), now
			case wire.EventEOS:
				done = true
			case wire.EventError:
				return out, errors.New(ev.Error.Message)
			}
		}
		if err != nil {
			select {
			case <-stop:
				return out, nil
			default:
				return out, err
			}
		}
	}
}

// speedOf returns the speed in [from, to).
func speedOf(all []stamp, from, to time.Duration) (s speed) {
	n := 0
	for _, t := range all {
		if t.at < from || t.at >= to {
			continue
		}
		n++
		if t.later {
			s.gaps = append(s.gaps, ms(t.gap))
		}
	}
	s.rate = float64(n) / (to - from).Seconds()
	return s
}

// backAfter returns the time from freed until the tokens per second, over half a second, reach rate.
func backAfter(all []stamp, freed, until time.Duration, rate float64) time.Duration {
	const step, over = 250 * time.Millisecond, 500 * time.Millisecond
	for at := freed; at+over <= until; at += step {
		if speedOf(all, at, at+over).rate >= rate {
			return at - freed
		}
	}
	return until - freed
}
