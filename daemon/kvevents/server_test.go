package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// listen opens a Server with free ports.
func listen(t *testing.T, h *Hub) *Server {
	t.Helper()
	s, err := Listen(h, netip.MustParseAddrPort("127.0.0.1:0"), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// dial connects a peer of some type and makes its handshake.
func dial(t *testing.T, ln net.Listener, kind string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.Write(append(greeting(), ready(kind)...))
	got := make([]byte, greetingBytes)
	if _, err := c.Read(got); err != nil || checkGreeting(got) != nil {
		t.Fatal(err)
	}
	if f, err := readFrame(c); err != nil || f.flags&flagCommand == 0 {
		t.Fatal(f, err)
	}
	return c
}

// TestServer: a subscriber that comes later has everything, then what follows; a replay ends with -1.
func TestServer(t *testing.T) {
	h := NewHub(time.Now)
	s := listen(t, h)
	h.Apply("m", &Message{Events: []Event{{Hashes: []uint64{11}, Tokens: run(0, 16)}}})
	c := dial(t, s.pub, "SUB")
	c.Write(appendFrame(nil, 0, []byte{1}))
	frames, err := readMessage(c, nil)
	if err != nil || len(frames) != 3 || len(frames[0]) != 0 || len(frames[1]) != 8 {
		t.Fatal(frames, err)
	}
	seq := binary.BigEndian.Uint64(frames[1])
	if e := decoded(t, Batch{seq, frames[2]}); len(e) != 2 || e[1]["type"] != "BlockStored" {
		t.Errorf("%v", e)
	}
	h.Apply("m", &Message{Events: []Event{{Removed: true, Hashes: []uint64{11}}}})
	if frames, err = readMessage(c, nil); err != nil || binary.BigEndian.Uint64(frames[1]) != seq+1 {
		t.Fatal(frames, err)
	}
	r := dial(t, s.replay, "DEALER")
	r.Write(appendMultipart(nil, nil, binary.BigEndian.AppendUint64(nil, seq+1)))
	var seqs []int64
	for len(seqs) == 0 || seqs[len(seqs)-1] != -1 {
		frames, err := readMessage(r, nil)
		if err != nil || len(frames) != 4 {
			t.Fatal(frames, err)
		}
		seqs = append(seqs, int64(binary.BigEndian.Uint64(frames[2])))
	}
	if !slices.Equal(seqs, []int64{int64(seq + 1), -1}) {
		t.Errorf("%v", seqs)
	}
	r.Write(appendCommand(nil, "PING", []byte{0, 1, 'x'}))
	if f, err := readFrame(r); err != nil || !bytes.Contains(f.body, []byte("PONGx")) {
		t.Error(f, err)
	}
}

// TestReplayPing: a ping long after a replay is answered: the deadline of what was written before does not hold for it.
func TestReplayPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := net.Pipe()
		p := &peer{conn: theirs, in: bufio.NewReader(theirs)}
		s := &Server{hub: NewHub(time.Now)}
		ended := make(chan error, 1)
		go func() { ended <- s.replayer(p) }()
		mine.Write(appendMultipart(nil, nil, binary.BigEndian.AppendUint64(nil, 0)))
		if _, err := readMessage(mine, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * writeTime) // the bubble's clock
		mine.Write(appendCommand(nil, "PING", []byte{0, 1, 'x'}))
		mine.SetReadDeadline(time.Now().Add(writeTime))
		if f, err := readFrame(mine); err != nil || !bytes.Contains(f.body, []byte("PONGx")) {
			t.Errorf("%v, %v", f, err)
		}
		mine.Close()
		<-ended
	})
}

// TestHostilePeers: what is no subscription, and more peers than there may be, ends the connection; others go on.
func TestHostilePeers(t *testing.T) {
	h := NewHub(time.Now)
	s := listen(t, h)
	ends := func(c net.Conn) {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		for b := make([]byte, 64); ; {
			if _, err := c.Read(b); err != nil {
				if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
					t.Error("the connection stays")
				}
				return
			}
		}
	}
	for _, bytes := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + string(make([]byte, 64))),
		append(greeting(), ready("PULL")...),
		append(greeting(), appendFrame(nil, 0, []byte("x"))...),
		append(append(greeting(), ready("SUB")...), flagLong, 0, 0, 0, 1, 0, 0, 0, 0), // a frame of 4 GiB
	} {
		c, err := net.Dial("tcp", s.pub.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write(bytes)
		ends(c)
		c.Close()
	}
	c := dial(t, s.replay, "REQ")
	c.Write(appendMultipart(nil, nil, []byte("nine bytes")))
	ends(c)
	many := dial(t, s.pub, "SUB")
	for range maxTopics + 1 {
		many.Write(appendFrame(nil, 0, []byte{1, 'k'}))
	}
	ends(many)
	waitfor.True(t, "the connections to end", func() bool { return s.Subscribers() == 0 })
	for range maxPeers {
		dial(t, s.pub, "SUB")
	}
	over, err := net.Dial("tcp", s.pub.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ends(over)
}

// TestSlowSubscriber: a subscriber that does not read loses batches, and delays nothing.
func TestSlowSubscriber(t *testing.T) {
	h := NewHub(time.Now)
	s := listen(t, h)
	c := dial(t, s.pub, "SUB")
	c.Write(appendFrame(nil, 0, []byte{1}))
	h.Apply("m", &Message{Events: []Event{{Hashes: []uint64{1}, Tokens: run(0, 16)}}})
	if _, err := readMessage(c, nil); err != nil {
		t.Fatal(err)
	}
	hashes := make([]uint64, 4096)
	for i := range hashes {
		hashes[i] = uint64(i + 2)
	}
	stored := []Event{{Hashes: hashes, Tokens: run(0, 16*len(hashes))}}
	removed := []Event{{Removed: true, Hashes: hashes}}
	for s.Dropped() == 0 { // ends as the queue is bounded
		h.Apply("m", &Message{Events: stored})
		h.Apply("m", &Message{Events: removed})
	}
	if st := h.Stats(); st.Blocks != 1 {
		t.Errorf("%+v", st)
	}
}
