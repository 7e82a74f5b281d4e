//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	uma "github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// benchmarked starts a daemon for a benchmark.
func benchmarked(b *testing.B, args ...string) *daemonproc.Proc {
	b.Helper()
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, nil,
		append([]string{"-m", ggufgen.Cached(b, ggufgen.Tiny())}, args...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Stop(waitfor.Limit); err != nil {
			b.Errorf("%v\n%s", err, p.Log())
		}
	})
	return p
}

// residentMiB is the resident set of all processes of a daemon. Pages that they share count twice.
func residentMiB(b *testing.B, p *daemonproc.Proc) float64 {
	b.Helper()
	rss, err := p.RSS()
	if err != nil {
		b.Fatal(err)
	}
	return float64(rss) / (1 << 20)
}

// BenchmarkIdleConnections has the cost of a daemon without requests, of all its processes together: the share of a
// core that it takes in ten seconds without connections and in ten with 1,000, its memory, and what these add to it.
func BenchmarkIdleConnections(b *testing.B) {
	p := benchmarked(b)
	watch := func() (percent, mib float64) {
		const window = 10 * time.Second
		before, err1 := p.CPU()
		time.Sleep(window)
		after, err2 := p.CPU()
		if err := errors.Join(err1, err2); err != nil {
			b.Fatal(err)
		}
		return 100 * (after - before).Seconds() / window.Seconds(), residentMiB(b, p)
	}
	// The memory that the first request allocates for good, and the collector's work after it, are no cost of idling.
	if err := answer(p.Socket, 0); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	alone, mib := watch()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for b.Loop() {
		if len(conns) == 1000 {
			continue
		}
		c, err := net.Dial("unix", p.Socket)
		if err != nil {
			b.Fatalf("connection %d: %v", len(conns), err)
		}
		conns = append(conns, c)
	}
	time.Sleep(time.Second)
	connected, with := watch()
	// The loop has reset the metrics that were reported before it.
	b.ReportMetric(alone, "%core-alone")
	b.ReportMetric(mib, "MiB-alone")
	b.ReportMetric(connected, "%core-connected")
	b.ReportMetric(with-mib, "MiB-added")
}

// BenchmarkMemory has the resident memory of a daemon's processes after 2,000 requests and at the end, with evicted
// prefixes limited to 16 MiB: eight clients ask short questions, half of them over a new connection each.
// -benchtime 30000x is thirty thousand of them.
func BenchmarkMemory(b *testing.B) {
	p := benchmarked(b, "--cache-ram", "16MiB")
	const clients, warmUp = 8, 2000
	numbers := make(chan int)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			c, err := uma.Dial(context.Background(), p.Socket)
			if err == nil {
				defer c.Close()
			}
			for i := range numbers { // to the end also after an error: the others wait to send
				switch {
				case err != nil:
				case i%2 == 0:
					err = answer(p.Socket, i)
				default:
					err = answerOf(c, i)
				}
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	sent := 0
	for ; sent < warmUp; sent++ {
		numbers <- sent
	}
	warm := residentMiB(b, p)
	for b.Loop() {
		numbers <- sent
		if sent++; (sent-warmUp)%3000 == 0 {
			b.Logf("%d requests: %.1f MiB", sent-warmUp, residentMiB(b, p))
		}
	}
	close(numbers)
	all.Wait()
	b.ReportMetric(warm, "MiB-warm")
	b.ReportMetric(residentMiB(b, p), "MiB-end")
}

// answer asks question i over a new connection.
func answer(socket string, i int) error {
	c, err := uma.Dial(context.Background(), socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return answerOf(c, i)
}

// answerOf asks question i, whose text and length no other has, and reads the answer.
func answerOf(c *uma.Client, i int) error {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	text := fmt.Appendf(nil, "%d:", i)
	for len(text) < 3*(4+i%60) {
		text = append(text, "etaoinshrdlu etaoin"[rng.IntN(19)])
	}
	q := wire.DefaultRequest()
	q.Prompt, q.MaxTokens, q.Stream = string(text), 1+i%24, true
	s, err := c.Stream(context.Background(), &q)
	if err != nil {
		return err
	}
	_, err = s.Rest()
	return err
}
