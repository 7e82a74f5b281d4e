package ipc

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// held is a server that answers nothing by itself: the test plays the decode loop.
func held(t testing.TB, cfg Config) (l *Loop, h *recorder, client *net.UnixConn, conn *Conn) {
	h = newRecorder()
	l = serve(t, cfg, h)
	client = dial(t, l)
	write(t, client, request("a", "q"))
	h.wait(t, `request a "q"`)
	conn = h.conns[0]
	t.Cleanup(func() { conn.Done("a") })
	return l, h, client, conn
}

// TestSlowReader fills a connection until it is Full, and checks that nothing of the refused frame went out, that
// Writable comes when the client has read, and that the stream is whole.
func TestSlowReader(t *testing.T) {
	const limit = 64 << 10
	l, h, client, conn := held(t, Config{TxBytes: limit})
	rnd := rand.New(rand.NewPCG(1, 2))
	var sent []byte
	fill := func() {
		for {
			f := make([]byte, 1+rnd.IntN(3000))
			for i := range f {
				f[i] = byte(rnd.Uint32())
			}
			r := conn.Send(f)
			conn.check()
			if r == Full {
				return
			}
			if r != Sent {
				t.Fatal(r)
			}
			sent = append(sent, f...)
			if rnd.IntN(2) == 0 {
				conn.Flush()
			}
		}
	}
	got := 0
	buf := make([]byte, 32<<10)
	for round := range 20 {
		fill()
		if in := l.Info(); in.TxQueuedBytes > limit || in.TxQueuedBytes < limit/2 {
			t.Fatalf("round %d: %d bytes queued, the limit is %d", round, in.TxQueuedBytes, limit)
		}
		if n := l.Stats().Stalled.Load(); n != 1 {
			t.Fatalf("%d stalled, want 1", n)
		}
		if h.count("writable") != round {
			t.Fatalf("round %d: %d writables before anything was read", round, h.count("writable"))
		}
		for h.count("writable") == round {
			client.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // only to look at the count again
			n, err := client.Read(buf)
			if !bytes.Equal(buf[:n], sent[got:got+n]) {
				t.Fatalf("round %d: the stream differs after %d bytes", round, got)
			}
			if got += n; err != nil && n > 0 {
				t.Fatal(err)
			}
		}
	}
	client.SetReadDeadline(time.Now().Add(waitfor.Limit))
	conn.Flush()
	rest := make([]byte, len(sent)-got)
	if _, err := io.ReadFull(client, rest); err != nil || !bytes.Equal(rest, sent[got:]) {
		t.Fatalf("the end of the stream differs, %v", err)
	}
	eventually(t, "the ring is empty", func() bool { return l.Info().TxQueuedBytes == 0 })
	conn.Done("a")
	if in := l.Info(); in.TxRingBytes != 0 {
		t.Errorf("%d bytes of ring kept without a request", in.TxRingBytes)
	}
}

// A frame larger than the ring passes when nothing else waits, and waits for that otherwise.
func TestFrameLargerThanRing(t *testing.T) {
	_, h, client, conn := held(t, Config{TxBytes: 8 << 10})
	big := bytes.Repeat([]byte("abcdefgh"), 128<<10)
	if r := conn.Send(big); r != Sent {
		t.Fatal(r)
	}
	if r := conn.Send(big); r != Full {
		t.Fatal(r)
	}
	conn.check()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, big) {
		t.Fatal("first frame differs", err)
	}
	h.wait(t, "writable")
	if r := conn.Send(big); r != Sent {
		t.Fatal(r)
	}
	conn.Flush()
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, big) {
		t.Fatal("second frame differs", err)
	}
}

// A client that asks on and never reads is closed; one that is only slow is not.
func TestRepliesUnread(t *testing.T) {
	h := newRecorder()
	l := serve(t, Config{TxBytes: 16 << 10}, h)
	c := dial(t, l)
	ask := bytes.Repeat(frames.AppendAdmin(nil, wire.KindHealth, "an id of some length, to be echoed"), 1000)
	for range 100 {
		if _, err := c.Write(ask); err != nil {
			break
		}
	}
	h.wait(t, "closed not_reading")
	eventually(t, "gone", func() bool { return l.Info().Conns == 0 })
}

// A client that reads nothing of its last answer is closed after StallTimeout; one that reads some of it, or whose
// request runs, is not.
func TestAnswerUnread(t *testing.T) {
	h := newRecorder()
	l, later := serveLater(t, Config{TxBytes: 1 << 20, StallTimeout: time.Minute}, h)
	client := dial(t, l)
	write(t, client, request("a", "q"))
	h.wait(t, `request a "q"`)
	conn := h.conns[0]
	conn.Send(make([]byte, 1<<20))
	conn.Flush()
	later(time.Hour)
	turn(t, l)
	conn.Done("a") // its time began before
	h.wait(t, "closed not_reading")
	eventually(t, "gone", func() bool { return l.Info().Conns == 0 })

	slow := dial(t, l)
	write(t, slow, request("b", "q"))
	h.wait(t, `request b "q"`)
	conn = h.conns[len(h.conns)-1]
	conn.Send(make([]byte, 1<<20))
	conn.Flush()
	conn.Done("b")
	for range 3 {
		later(59 * time.Second)
		turn(t, l)
		before := l.Stats().TxBytes.Load()
		if _, err := io.ReadFull(slow, make([]byte, 256<<10)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "more is sent", func() bool { return l.Stats().TxBytes.Load() > before })
	}
	if n := l.Stats().Closed[NotReading].Load(); n != 1 {
		t.Fatalf("%d closed, want 1: a slow client reads", n)
	}
	later(time.Minute)
	h.wait(t, "closed not_reading")
}

// turn returns when the loop has looked at its deadlines.
func turn(t *testing.T, l *Loop) {
	t.Helper()
	for range 2 { // the second turn begins after the first one's end
		together(t, l, func() {})
	}
}

func TestServerCloses(t *testing.T) {
	_, h, client, conn := held(t, Config{})
	conn.Send([]byte("never flushed"))
	conn.Close()
	wantEnd(t, client)
	h.wait(t, "closed by_server")
	if r := conn.Send(nil); r != Closed {
		t.Error(r)
	}
}

// TestSendAgainstClose has several goroutines write to connections that clients close at every moment, while new
// ones take over the descriptors' numbers. Each client must see only frames that were meant for it.
func TestSendAgainstClose(t *testing.T) {
	h := newRecorder()
	var writers sync.WaitGroup
	h.onReq = func(c *Conn, r *wire.Request) {
		id, conn := r.ID, c
		for range 2 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				f := binary.LittleEndian.AppendUint64(nil, conn.ID())
				f = append(f, id...) // eight bytes
				for r := Sent; r != Closed; r = conn.Send(f) {
					if r == Full {
						runtime.Gosched()
					}
					conn.Flush()
				}
				conn.Done(id)
			}()
		}
	}
	l := serve(t, Config{}, h)
	var clients sync.WaitGroup
	for worker := range 4 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			rnd := rand.New(rand.NewPCG(uint64(worker), 1))
			for n := range 60 {
				c, err := net.Dial("unix", l.SocketPath())
				if err != nil {
					t.Error(err)
					return
				}
				c.SetDeadline(time.Now().Add(waitfor.Limit))
				id := []byte("w0-n0000")
				id[1] += byte(worker)
				id[4] += byte(n / 10)
				id[5] += byte(n % 10)
				c.Write(request(string(id), "q"))
				var first [16]byte
				for k := 1 + rnd.IntN(200); k > 0; k-- {
					var b [16]byte
					if _, err := io.ReadFull(c, b[:]); err != nil {
						t.Errorf("worker %d: %v", worker, err)
						break
					}
					if first == ([16]byte{}) {
						first = b
					}
					if b != first || !bytes.Equal(b[8:], id) {
						t.Errorf("worker %d, connection %d got another's frame: %q", worker, n, b)
						break
					}
				}
				c.Close()
			}
		}()
	}
	clients.Wait()
	eventually(t, "all connections gone", func() bool { return l.Info().Conns == 0 })
	writers.Wait()
	if in := l.Info(); in.InFlight != 0 {
		t.Errorf("%+v", in)
	}
}

// TestTokensWakeNobody: as long as the client reads, the Loop takes no turn while an answer is written, also for a
// client that has ended its side.
func TestTokensWakeNobody(t *testing.T) {
	for _, halfClosed := range []bool{false, true} {
		l, _, client, conn := held(t, Config{})
		if halfClosed {
			client.CloseWrite()
			eventually(t, "half close seen", func() bool {
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.readEnd && !conn.noticed
			})
		}
		turns := l.Stats().Turns.Load()
		buf := make([]byte, 64)
		for range 200 {
			conn.Send(buf)
			conn.Flush()
			if _, err := io.ReadFull(client, buf); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.Stats().Turns.Load() - turns; n > 1 { // the one that handled the half close may end late
			t.Errorf("half closed %v: %d turns of the loop for 200 tokens", halfClosed, n)
		}
	}
}

// TestSendAllocatesNothing: a token costs the garbage collector nothing.
func TestSendAllocatesNothing(t *testing.T) {
	_, _, client, conn := held(t, Config{})
	go io.Copy(io.Discard, client)
	f := make([]byte, 150)
	conn.Send(f)
	conn.Flush()
	allocs := testing.AllocsPerRun(500, func() {
		conn.Send(f)
		conn.Send(f)
		conn.Flush()
	})
	if allocs != 0 {
		t.Errorf("%v allocations per step", allocs)
	}
}
