package logq

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func text(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }

// pipe is a writer that nothing reads until it is opened.
type pipe struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
	err  error
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.open
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	return p.got.Write(b)
}

func (p *pipe) String() string { p.mu.Lock(); defer p.mu.Unlock(); return p.got.String() }

func opened() *pipe {
	p := &pipe{open: make(chan struct{})}
	close(p.open)
	return p
}

// TestUnreadPipeNeverBlocks: with nothing reading, lines are queued up to the limit, dropped beyond it, counted, and
// one line says so once the reader reads again.
func TestUnreadPipeNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{open: make(chan struct{})}
		l, log := New(p, text, Options{QueueBytes: 4096, Burst: 1 << 30})
		const n = 1000
		for i := range n {
			log.Info("line", "n", i) // would deadlock the test, which synctest reports
		}
		synctest.Wait()
		s := l.Stats()
		if s.Dropped == 0 || s.Dropped >= n || s.QueueBytes > 4096 || s.Lines != 0 {
			t.Fatalf("%+v", s)
		}
		time.Sleep(3 * time.Second)
		close(p.open)
		synctest.Wait()
		got := p.String()
		want := fmt.Sprintf(`msg="log lines were dropped: the reader of stderr did not read" lines=%d over=3s`,
			s.Dropped)
		if strings.Count(got, want) != 1 || !strings.Contains(got, "n=0\n") {
			t.Errorf("want one line with %q in\n…%s", want, got[max(0, len(got)-500):])
		}
		log.Info("after")
		if !l.Close(time.Second) || !strings.Contains(p.String(), "msg=after") {
			t.Error("the log does not go on")
		}
		if s := l.Stats(); s.Lines+s.Dropped != n+2 {
			t.Errorf("%d lines in, and two: %+v", n, s)
		}
		if strings.Count(p.String(), "were dropped") != 1 {
			t.Error("one gap is told twice")
		}
	})
}

// TestCloseWaitsNoLonger: a pipe that is never read delays Close for the timeout only.
func TestCloseWaitsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{open: make(chan struct{})}
		l, log := New(p, text, Options{})
		log.Error("x")
		begin := time.Now()
		if l.Close(time.Second) || time.Since(begin) != time.Second {
			t.Errorf("closed after %v", time.Since(begin))
		}
		close(p.open)
		synctest.Wait()
	})
}

// TestClosedReader: each failed write counts its lines as dropped, and the next successful one reports them.
func TestClosedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := opened()
		p.err = errors.New("broken pipe")
		l, log := New(p, text, Options{})
		log.Info("one")
		synctest.Wait()
		log.Info("two")
		synctest.Wait()
		if s := l.Stats(); s.Dropped != 2 || s.Lines != 0 {
			t.Errorf("%+v", s)
		}
		p.mu.Lock()
		p.err = nil
		p.mu.Unlock()
		log.Info("three")
		synctest.Wait()
		if got := p.String(); !strings.Contains(got, "msg=three") || !strings.Contains(got, "lines=2") {
			t.Error(got)
		}
		l.Close(time.Second)
	})
}

// TestRepeatingLinesAreLimited: a burst of one message passes, the rest is one line per window; other messages and
// levels below info are not touched.
func TestRepeatingLinesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := opened()
		l, log := New(p, func(w io.Writer) slog.Handler {
			return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})
		}, Options{Burst: 3, Window: 10 * time.Second})
		count := func(s string) int { synctest.Wait(); return strings.Count(p.String(), s) }
		for i := range 100 {
			log.With("engine", "x").Error("sampling failed", "request", i)
			log.Debug("detail", "n", i)
		}
		log.Warn("sampling failed") // another level
		if count("request=") != 3 || count("msg=detail") != 100 || count("level=WARN") != 1 {
			t.Errorf("in the first window:\n%s", p.String())
		}
		time.Sleep(10 * time.Second)
		if count("repeated=97 within=10s") != 1 {
			t.Errorf("at its end:\n%s", p.String())
		}
		for range 5 {
			log.Error("sampling failed", "request", "again")
		}
		time.Sleep(10 * time.Second)
		if count("request=again") != 0 || count("repeated=5 ") != 1 {
			t.Errorf("it goes on:\n%s", p.String())
		}
		time.Sleep(30 * time.Second)
		log.Error("sampling failed", "request", "later")
		if count("request=later") != 1 {
			t.Errorf("after a pause:\n%s", p.String())
		}
		if s := l.Stats(); s.Suppressed != 97+5 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		for i := range 10 * maxMessages { // messages that differ are not remembered without end
			log.Info(fmt.Sprint("message ", i))
		}
		synctest.Wait()
		if len(l.seen) > maxMessages {
			t.Errorf("%d messages are remembered", len(l.seen))
		}
		for range 10 {
			log.Error("the end")
		}
		l.Close(time.Second)
	})
}

// TestConcurrentLines: whole lines from many goroutines, each counted once. Run with -race.
func TestConcurrentLines(t *testing.T) {
	p := opened()
	l, log := New(p, text, Options{QueueBytes: 2000, Burst: 1 << 30})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				log.Info("line", "g", g, "i", i)
			}
		})
	}
	wg.Wait()
	if !l.Close(10 * time.Second) {
		t.Fatal("not closed")
	}
	s := l.Stats()
	own := strings.Count(p.String(), "were dropped")
	if s.Lines+s.Dropped != 4000+uint64(own) {
		t.Errorf("%+v, %d lines about it", s, own)
	}
	for line := range strings.Lines(p.String()) {
		if !strings.HasPrefix(line, "time=") || !strings.HasSuffix(line, "\n") {
			t.Fatalf("broken line %q", line)
		}
	}
	if Of(log) != l || Of(log.With("a", 1)) != l || Of(slog.New(slog.DiscardHandler)) != nil {
		t.Error("Of")
	}
}
