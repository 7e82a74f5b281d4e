//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// brim is a pipe that has no room for a byte more.
func brim(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	fd := write.Fd() // once: each call makes the pipe block again
	if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(fd), true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(int(fd), b); err == unix.EAGAIN {
			if len(b) == 1 {
				break
			}
			b = b[:1]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	// The daemon gets a pipe as a shell makes them: writes block.
	if err := unix.SetNonblock(int(fd), false); err != nil {
		t.Fatal(err)
	}
	return read, write
}

// startOn starts a daemon with that stderr and every log line there is.
func startOn(t *testing.T, stderr *os.File) *server {
	t.Helper()
	p, err := daemonproc.StartTo(stderr, filepath.Join(bin, "uma-serve"), waitfor.Limit, nil,
		"-m", ggufgen.Cached(t, ggufgen.Tiny()), "-t", "1", "--log-level", "debug")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	t.Cleanup(func() { p.Stop(waitfor.Limit) })
	return s
}

// answers asks n requests, each of which logs lines from the decode loop, and wants each answered.
func (s *server) answers(n int) {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	for i := range n {
		id := fmt.Sprint("r", i)
		c.request(`{"id":"` + id + `","prompt":"a","max_tokens":2,"ignore_eos":true}`)
		c.mustEnd(id, wire.Length)
	}
}

func (s *server) mustBeWell() {
	s.t.Helper()
	body, err := s.Ask("health")
	var h reports.Health
	if err == nil {
		err = json.Unmarshal([]byte(body), &h)
	}
	if err != nil || h.Status != "ok" {
		s.t.Fatalf("health: %v %s", err, body)
	}
}

func (s *server) metric(name string) (v float64) {
	s.t.Helper()
	body, err := s.Ask("metrics")
	var all map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal([]byte(body), &all)
	}
	if err == nil {
		err = json.Unmarshal(all[name], &v)
	}
	if err != nil {
		s.t.Fatalf("metric %s: %v", name, err)
	}
	return v
}

// TestUnreadStderr: a pipe that is full and that nothing reads takes no log line. The daemon starts, answers, counts
// what it could not say, and says so when the pipe is read again.
func TestUnreadStderr(t *testing.T) {
	read, write := brim(t)
	s := startOn(t, write)
	write.Close()
	const queue = 256 << 10 // of the log
	s.answers(2 * queue / 200)
	s.mustBeWell()
	for s.metric("log_dropped_total") == 0 {
		s.answers(200)
	}
	var mu sync.Mutex
	var got bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, err := read.Read(b)
			mu.Lock()
			got.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	const told = "log lines were dropped"
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return got.String()
	}
	defer func() {
		if text := said(); t.Failed() {
			t.Logf("the daemon has ended: %v; the end of its log:\n…%s", s.Ended(time.Millisecond),
				text[max(0, len(text)-4000):])
		}
	}()
	waitfor.True(t, "the log says that lines were lost", func() bool { return strings.Contains(said(), told) })
	s.answers(1)
	if err := s.Stop(waitfor.Limit); err != nil {
		t.Error(err)
	}
	<-done
	if text := said(); strings.Count(text, told) != 1 || !strings.Contains(text, "msg=stopped") {
		t.Errorf("it is said %d times", strings.Count(text, told))
	}
}

// TestUnreadStderrStops: SIGTERM ends a daemon whose stderr is not read.
func TestUnreadStderrStops(t *testing.T) {
	_, write := brim(t)
	s := startOn(t, write)
	write.Close()
	s.answers(3)
	if err := s.Stop(waitfor.Limit); err != nil {
		t.Error(err)
	}
}

// TestClosedStderr: the reader of stderr is gone, so that every write fails with EPIPE. The daemon lives.
func TestClosedStderr(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := startOn(t, write)
	write.Close()
	read.Close()
	s.answers(100)
	s.mustBeWell()
	if s.metric("log_dropped_total") == 0 {
		t.Error("no line is counted as lost")
	}
	if err := s.Stop(waitfor.Limit); err != nil {
		t.Error(err)
	}
}
