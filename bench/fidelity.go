package bench

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Served is one request as measured by its client, in milliseconds.
type Served struct {
	Group  string    `json:"group,omitempty"` // part of a workload that is reported separately
	SentMs float64   `json:"sent_ms"`         // after the workload's begin
	TTFTMs float64   `json:"ttft_ms"`         // 0 = no token came
	GapsMs []float64 `json:"gaps_ms,omitempty"`
}

// FidelityWorkload is one of the workloads that the simulator's predictions are compared with.
type FidelityWorkload struct {
	Name string
	run  func(p *daemonproc.Proc, log func(Served)) error
}

// Run runs the workload against an otherwise idle daemon and returns its clients' measurements, in the order of the
// requests.
func (w *FidelityWorkload) Run(p *daemonproc.Proc) ([]Served, error) {
	var mu sync.Mutex
	var all []Served
	err := w.run(p, func(s Served) {
		mu.Lock()
		all = append(all, s)
		mu.Unlock()
	})
	slices.SortStableFunc(all, func(a, b Served) int {
		switch {
		case a.SentMs < b.SentMs:
			return -1
		case a.SentMs > b.SentMs:
			return 1
		}
		return 0
	})
	return all, err
}

// FidelityWorkloads are decode-sweep (1, 2, 4 and 8 streams at once), storm (2 chats beside 4 clients that submit
// prompts of about 1,500 tokens back to back) and shared-prefix (16 requests that share about 1,000 tokens, 4 at a
// time). scale shortens them for tests: 1 is the whole.
func FidelityWorkloads(scale float64) []FidelityWorkload {
	n := func(whole int) int { return max(1, int(float64(whole)*scale)) }
	return []FidelityWorkload{
		{"decode-sweep", func(p *daemonproc.Proc, log func(Served)) error { return decodeSweep(p, 6, n(64), log) }},
		{"storm", func(p *daemonproc.Proc, log func(Served)) error { return fidelityStorm(p, 200, 4, n(900), 2, log) }},
		{"shared-prefix", func(p *daemonproc.Proc,
			log func(Served)) error {
			return sharedPrefix(p, 300, n(600), n(32), 16, log)
		}},
	}
}

// FidelityCalibration is part i of the runs that step times are fitted to: other prompts, lengths and numbers of
// streams than the workloads, but the same kinds of steps. The parts run between the workloads, because the speed of a
// machine changes from minute to minute. Odd parts run in the opposite order, so that a kind of step that one part sees
// with an empty cache the next one sees with a full one: a fit can tell what a step's own cells cost from what all
// cells in use do.
func FidelityCalibration(i int, scale float64) FidelityWorkload {
	n := func(whole int) int { return max(1, int(float64(whole)*scale)) }
	return FidelityWorkload{fmt.Sprintf("calibration-%d", i+1), func(p *daemonproc.Proc, log func(Served)) error {
		kinds := []func() error{
			func() error { return ramp(p, 400+10*i, 8-i%2, n(40+20*i), n(10), log) },
			func() error { return fidelityStorm(p, 401+10*i, 2+i%2, n(450+150*(i%3)), 1, log) },
			func() error { return sharedPrefix(p, 403+10*i, n(400+100*(i%2)), n(24), 8, log) },
			func() error { return agentChain(p, 405+10*i, 2+i%2*2, n(2), n(500+100*(i%3)), n(40), log) },
			func() error {
				return twoApp(p, 407+10*i, 1+i%2*2, n(10), n(900+200*(i%3)), time.Duration(n(800))*time.Millisecond,
					log)
			},
			func() error { return ramp(p, 409+10*i, 6+i%2, n(500+200*(i%3)), n(10), log) },
			func() error { return longContext(p, 408+10*i, 1, n(700), n(1400<<(i/2)), n(24), log) },
		}
		if i%2 == 1 {
			slices.Reverse(kinds)
		}
		for _, run := range kinds {
			if err := run(); err != nil {
				return err
			}
		}
		return nil
	}}
}

// asked is a request in flight, with the times that its client noted.
type asked struct {
	c *conn
	Served
	last time.Time
}

// begin sends r on a new connection.
func begin(p *daemonproc.Proc, r *wire.Request, group string, origin time.Time) (*asked, error) {
	c, err := dial(p.Socket)
	if err != nil {
		return nil, err
	}
	a := &asked{c: c, last: time.Now()}
	a.Group, a.SentMs = group, ms(a.last.Sub(origin))
	if err := c.send(r); err != nil {
		c.Close()
		return nil, err
	}
	return a, nil
}

// wait notes the tokens until the end, or until stop says so after one.
func (a *asked) wait(stop func() bool) error {
	defer a.c.Close()
	for {
		ev, err := a.c.next()
		switch {
		case err != nil:
			return err
		case ev.Kind == wire.EventToken:
			now := time.Now()
			if a.TTFTMs == 0 {
				a.TTFTMs = ms(now.Sub(a.last))
			} else {
				a.GapsMs = append(a.GapsMs, ms(now.Sub(a.last)))
			}
			a.last = now
			if stop != nil && stop() {
				return nil
			}
		case ev.Kind == wire.EventError:
			return fmt.Errorf("the daemon answered %s: %s", ev.Error.Code, ev.Error.Message)
		case ev.Kind == wire.EventEOS:
			return nil
		}
	}
}

func streaming(text string, tokens int) *wire.Request {
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream, r.Sampling.IgnoreEOS = "f", text, tokens, true, true
	return &r
}

// concurrently runs n clients at once.
func concurrently(n int, client func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = client(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func decodeSweep(p *daemonproc.Proc, rounds, tokens int, log func(Served)) error {
	origin := time.Now()
	for round := range rounds {
		for _, streams := range []int{1, 2, 4, 8} {
			began := time.Now()
			err := concurrently(streams, func(i int) error {
				a, err := begin(p, streaming(prompt(i, 100+10*round+streams, 64), tokens),
					fmt.Sprintf("%d streams", streams), origin)
				if err == nil {
					err = a.wait(nil)
					log(a.Served)
				}
				return err
			})
			if err != nil {
				return err
			}
			// Wait so that the next requests arrive at an idle server, in a somewhat slower simulation as well.
			time.Sleep(min(time.Since(began)/3, 2*time.Second) + 100*time.Millisecond)
		}
	}
	return nil
}

// ramp starts streams at once that end one after the other, so that there are steps with every number of answers.
func ramp(p *daemonproc.Proc, seed, streams, length, step int, log func(Served)) error {
	origin := time.Now()
	return concurrently(streams, func(i int) error {
		a, err := begin(p, streaming(prompt(i, seed, length), step*(i+1)), "", origin)
		if err == nil {
			err = a.wait(nil)
			log(a.Served)
		}
		return err
	})
}

func fidelityStorm(p *daemonproc.Proc, seed, clients, length, each int, log func(Served)) error {
	const chats = 2
	origin := time.Now()
	var mu sync.Mutex
	var errs []error
	over := false
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !over {
			errs = append(errs, err)
		}
	}
	stop := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return over
	}
	var talking, storm sync.WaitGroup
	for i := range chats {
		talking.Go(func() {
			a, err := begin(p, streaming(prompt(i, seed, 24), 1<<20), "chats", origin)
			if err == nil {
				err = a.wait(stop)
				log(a.Served)
			}
			fail(err)
		})
	}
	time.Sleep(time.Second)
	for w := range clients {
		storm.Go(func() {
			for n := range each {
				a, err := begin(p, streaming(prompt(w*1000+n, seed+1, length), 1), "prompts", origin)
				if err == nil {
					err = a.wait(nil)
					log(a.Served)
				}
				if err != nil {
					fail(err)
					return
				}
			}
		})
	}
	storm.Wait()
	mu.Lock()
	over = true
	mu.Unlock()
	talking.Wait()
	return errors.Join(errs...)
}

func sharedPrefix(p *daemonproc.Proc, seed, shared, tokens, requests int, log func(Served)) error {
	const atOnce = 4
	origin := time.Now()
	system := prompt(0, seed, shared)
	var mu sync.Mutex
	var errs []error
	next := 0
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= requests {
					return
				}
				a, err := begin(p, streaming(system+" "+prompt(i, seed+1, 48), tokens), "", origin)
				if err == nil {
					err = a.wait(nil)
					log(a.Served)
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Seen summarises the clients' measurements of a workload, in milliseconds.
type Seen struct {
	Requests int     `json:"requests"`
	TTFTP50  float64 `json:"ttft_p50_ms"`
	TTFTP95  float64 `json:"ttft_p95_ms"`
	Gaps     int     `json:"gaps"`
	ITLP50   float64 `json:"itl_p50_ms"`
	ITLP95   float64 `json:"itl_p95_ms"`
}

// Summarise takes the quantiles of the requests that got a token.
func Summarise(all []Served) Seen {
	var ttft, gaps []float64
	for i := range all {
		if all[i].TTFTMs > 0 {
			ttft = append(ttft, all[i].TTFTMs)
		}
		gaps = append(gaps, all[i].GapsMs...)
	}
	q := func(x []float64, p float64) float64 {
		if len(x) == 0 {
			return 0
		}
		slices.Sort(x)
		return stat.Quantile(p, stat.Empirical, x, nil)
	}
	return Seen{len(ttft), q(ttft, .5), q(ttft, .95), len(gaps), q(gaps, .5), q(gaps, .95)}
}
