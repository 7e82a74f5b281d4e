package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Idle is the cost of an idle daemon, of all its processes together.
type Idle struct {
	Connections   int     `json:"connections"`
	CPUPercent    float64 `json:"cpu_percent"` // of one core
	RSSBytes      int64   `json:"rss_bytes"`
	AddedRSSBytes int64   `json:"added_rss_bytes"` // by the connections
}

// RunIdle watches p for window without connections, then with n idle ones.
func RunIdle(p *daemonproc.Proc, n int, window time.Duration) (without, with Idle, err error) {
	// One answer first: memory that the first request allocates permanently is no cost of the connections.
	if _, err := ask(p.Socket, "warm-up", 8); err != nil {
		return without, with, err
	}
	time.Sleep(2 * time.Second) // timers and the collector after the first answer are not the idle cost
	if without, err = watch(p, 0, window); err != nil {
		return without, with, err
	}
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range n {
		c, err := net.Dial("unix", p.Socket)
		if err != nil {
			return without, with, fmt.Errorf("connection %d: %w", len(conns), err)
		}
		conns = append(conns, c)
	}
	time.Sleep(time.Second)
	with, err = watch(p, n, window)
	with.AddedRSSBytes = with.RSSBytes - without.RSSBytes
	return without, with, err
}

func watch(p *daemonproc.Proc, n int, window time.Duration) (Idle, error) {
	before, err1 := p.CPU()
	time.Sleep(window)
	after, err2 := p.CPU()
	rss, err3 := p.RSS()
	return Idle{Connections: n, CPUPercent: 100 * float64(after-before) / float64(window), RSSBytes: rss},
		errors.Join(err1, err2, err3)
}

// Memory is the resident set of all processes of a daemon along a run of many requests.
type Memory struct {
	Requests []int   `json:"requests"`
	RSSBytes []int64 `json:"rss_bytes"`
	// Drift is the largest deviation of the resident set from its value at the end of the warm-up, as a fraction.
	Drift float64 `json:"drift"`
}

// RunMemory asks total short questions of mixed length over workers connections, after a warm-up of a fifth as many,
// and samples the resident set when that is over and ten times more.
func RunMemory(p *daemonproc.Proc, total, workers int, log io.Writer) (m Memory, err error) {
	sample := func(requests int) error {
		rss, err := p.RSS()
		m.Requests, m.RSSBytes = append(m.Requests, requests), append(m.RSSBytes, rss)
		if log != nil {
			fmt.Fprintf(log, "%6d requests: RSS %.1f MiB\n", requests, float64(rss)/(1<<20))
		}
		return err
	}
	for i := range 11 {
		n := total / 10
		if i == 0 {
			n = total / 5
		}
		if err := errors.Join(flood(p.Socket, n, workers, i), sample(i*total/10)); err != nil {
			return m, err
		}
	}
	warm := float64(m.RSSBytes[0])
	for _, r := range m.RSSBytes[1:] {
		m.Drift = max(m.Drift, float64(r)/warm-1, 1-float64(r)/warm)
	}
	return m, nil
}

// flood sends n requests, workers at a time, half of them on a new connection each.
func flood(socket string, n, workers, salt int) error {
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			c, err := dial(socket)
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				text := prompt(i, salt, 4+i%60)
				if i%2 == 0 {
					_, err = ask(socket, text, 1+i%24)
				} else {
					_, err = c.ask(text, 1+i%24)
				}
				if err != nil {
					errs[w] = fmt.Errorf("request %d: %w", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ask sends one request on a new connection and returns the number of tokens of its answer.
func ask(socket, text string, tokens int) (int, error) {
	c, err := dial(socket)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ask(text, tokens)
}

func (c *conn) ask(text string, tokens int) (int, error) {
	r := defaults
	r.ID, r.Prompt, r.MaxTokens, r.Stream = "b", text, tokens, true
	return c.askRequest(&r)
}

// askRequest sends r and returns the number of tokens of its answer.
func (c *conn) askRequest(r *wire.Request) (int, error) {
	if err := c.send(r); err != nil {
		return 0, err
	}
	for n := 0; ; {
		ev, err := c.next()
		switch {
		case err != nil:
			return n, err
		case ev.Kind == wire.EventToken:
			n++
		case ev.Kind == wire.EventError:
			return n, fmt.Errorf("the daemon answered %s: %s", ev.Error.Code, ev.Error.Message)
		case ev.Kind == wire.EventEOS:
			return n, nil
		}
	}
}
