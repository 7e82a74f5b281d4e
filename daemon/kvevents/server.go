package kvevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of a Server. QueueBatches is the number of batches that wait for one subscriber.
const (
	maxPeers      = 32 // connections, of both sockets together
	maxTopics     = 64 // subscriptions of one connection
	QueueBatches  = 4096
	queueBytes    = 16 << 20
	acceptPause   = 100 * time.Millisecond // after a failure, such as no descriptor that is left
	handshakeTime = 5 * time.Second
	writeTime     = 30 * time.Second // a peer that takes nothing for this long loses its connection
)

// endSeq is the sequence number behind the last batch of a replay: -1.
var endSeq = binary.BigEndian.AppendUint64(nil, 1<<64-1)

// Server publishes the batches of a Hub.
type Server struct {
	hub   *Hub
	log   *slog.Logger
	admit func(*net.TCPConn) error // nil: every client may subscribe

	pub, replay net.Listener
	dropped     atomic.Uint64

	mu     sync.Mutex
	peers  map[*peer]struct{}
	closed bool
	wg     sync.WaitGroup
	ended  chan struct{} // closed by Close
}

// Listen publishes at an address, and answers replay requests at the next port. Port 0 means two free ports, one behind
// the other. admit refuses clients; nil admits all.
func Listen(hub *Hub, at netip.AddrPort, log *slog.Logger, admit func(*net.TCPConn) error) (s *Server, err error) {
	s = &Server{hub: hub, log: log, admit: admit, peers: map[*peer]struct{}{},
		ended: make(chan struct{})}
	tries := 1
	if at.Port() == 0 {
		tries = 20
	}
	for range tries {
		if s.pub, err = net.Listen("tcp", at.String()); err != nil {
			return nil, err
		}
		next := netip.AddrPortFrom(at.Addr(), uint16(s.pub.Addr().(*net.TCPAddr).Port)+1)
		if s.replay, err = net.Listen("tcp", next.String()); err == nil {
			break
		}
		s.pub.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("the replay socket, at the next port: %w", err)
	}
	hub.mu.Lock()
	hub.deliver = s.deliver
	hub.mu.Unlock()
	s.wg.Go(func() { s.accept(s.pub, s.subscriber) })
	s.wg.Go(func() { s.accept(s.replay, s.replayer) })
	return s, nil
}

// Endpoint returns ZeroMQ's name of the socket that publishes.
func (s *Server) Endpoint() string { return "tcp://" + s.pub.Addr().String() }

// ReplayEndpoint returns the name of the replay socket.
func (s *Server) ReplayEndpoint() string { return "tcp://" + s.replay.Addr().String() }

// Subscribers returns the number of connections, those of the replay socket too.
func (s *Server) Subscribers() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.peers) }

// Dropped returns the number of batches that did not fit into a subscriber's queue, because it does not read.
func (s *Server) Dropped() uint64 { return s.dropped.Load() }

// Close ends every connection.
func (s *Server) Close() {
	s.pub.Close()
	s.replay.Close()
	close(s.ended)
	s.mu.Lock()
	s.closed = true
	for p := range s.peers {
		p.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// peer is a connection. Its reader goroutine serves it; a subscriber has a writer, too.
type peer struct {
	s    *Server
	conn net.Conn
	in   *bufio.Reader
	kind string // its socket type, of READY

	mu     sync.Mutex
	topics []string
	live   bool // the hub's batches are queued
	queue  chan []byte
	bytes  int // in queue
	lost   bool
}

func (s *Server) accept(ln net.Listener, serve func(*peer) error) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("a subscriber of KV events is not accepted", "error", err)
			select { // out of descriptors
			case <-s.ended:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		p := &peer{s: s, conn: c, in: bufio.NewReaderSize(c, 1<<10), queue: make(chan []byte, QueueBatches)}
		s.mu.Lock()
		full := s.closed || len(s.peers) >= maxPeers
		if !full {
			s.peers[p] = struct{}{}
		}
		s.mu.Unlock()
		if full {
			c.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() {
				c.Close()
				s.mu.Lock()
				delete(s.peers, p)
				s.mu.Unlock()
			}()
			if err := p.begin(ln == s.pub); err == nil {
				err = serve(p)
				s.log.Debug("a subscriber of KV events has left", "remote", c.RemoteAddr(), "error", err)
			} else {
				s.log.Info("a subscriber of KV events is refused", "remote", c.RemoteAddr(), "error", err)
			}
		})
	}
}

// begin identifies the client and makes the handshake.
func (p *peer) begin(pub bool) error {
	if tcp, ok := p.conn.(*net.TCPConn); ok && p.s.admit != nil {
		if err := p.s.admit(tcp); err != nil {
			return err
		}
	}
	p.conn.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := p.conn.Write(greeting()); err != nil {
		return err
	}
	hello := make([]byte, greetingBytes)
	if n, err := io.ReadFull(p.in, hello); err != nil {
		return fmt.Errorf("%w: its greeting has %d of %d bytes: %w", errZMTP, n, len(hello), err)
	}
	if err := checkGreeting(hello); err != nil {
		return err
	}
	mine, want := "ROUTER", "REQ, DEALER"
	if pub {
		mine, want = "PUB", "SUB, XSUB"
	}
	if _, err := p.conn.Write(ready(mine)); err != nil {
		return err
	}
	f, err := readFrame(p.in)
	if err != nil {
		return err
	}
	name, data := command(f.body)
	if p.kind = property(data, "Socket-Type"); f.flags&flagCommand == 0 || name != "READY" ||
		!strings.Contains(", "+want+",", ", "+p.kind+",") {
		return fmt.Errorf("%w: a socket of type %.20q has connected; it must be one of %s", errZMTP, p.kind, want)
	}
	p.conn.SetDeadline(time.Time{})
	return nil
}

// property returns a property of a READY command.
func property(data []byte, want string) string {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return ""
		}
		name := string(data[1:n])
		size := uint64(binary.BigEndian.Uint32(data[n:]))
		data = data[n+4:]
		if size > uint64(len(data)) {
			return ""
		}
		if strings.EqualFold(name, want) {
			return string(data[:size])
		}
		data = data[size:]
	}
	return ""
}

// pong answers a PING: two bytes of a time to live, and a context that the answer repeats.
func pong(ping []byte) []byte { return appendCommand(nil, "PONG", ping[2:min(len(ping), 2+16)]) }

// command answers a command of a peer.
func (p *peer) command(name string, data []byte) error {
	switch name {
	case "PING":
		if len(data) >= 2 {
			p.enqueue(pong(data))
		}
	case "ERROR":
		return fmt.Errorf("%w: it says %.100q", errZMTP, data)
	}
	return nil
}

// subscriber serves a SUB socket until its connection ends.
func (s *Server) subscriber(p *peer) error {
	done := make(chan struct{})
	written := make(chan struct{})
	go func() { p.write(done); close(written) }()
	defer func() {
		p.mu.Lock()
		p.live, p.topics = false, nil
		p.mu.Unlock()
		close(done)
		p.conn.Close()
		<-written
	}()
	for {
		frames, err := readMessage(p.in, func(name string, data []byte) error {
			if sub, ok := subscriptionOf(name, data); ok && name != "" {
				return p.subscribe(sub)
			}
			return p.command(name, data)
		})
		if err != nil {
			return err
		}
		if sub, ok := subscriptionOf("", frames[0]); ok && len(frames) == 1 {
			if err := p.subscribe(sub); err != nil {
				return err
			}
		}
	}
}

// subscribe changes the topics. The first one for which there are batches begins with everything that is held.
func (p *peer) subscribe(sub subscription) (err error) {
	p.s.hub.Join(func(all *Batch) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if sub.cancel {
			for i, t := range p.topics {
				if t == sub.topic {
					p.topics = append(p.topics[:i], p.topics[i+1:]...)
					break
				}
			}
		} else if len(p.topics) >= maxTopics {
			err = fmt.Errorf("%w: more than %d subscriptions", errZMTP, maxTopics)
		} else {
			p.topics = append(p.topics, sub.topic)
		}
		was := p.live
		p.live = false
		for _, t := range p.topics { // the topic of every batch is empty
			p.live = p.live || t == ""
		}
		if p.live && !was && all != nil {
			p.push(message(all))
		}
	})
	return err
}

// message returns the bytes of a published batch.
func message(b *Batch) []byte { return appendMultipart(nil, nil, b.seqBytes(), b.Payload) }

// deliver queues a batch for every subscriber.
func (s *Server) deliver(b Batch) {
	var bytes []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		p.mu.Lock()
		if p.live {
			if bytes == nil {
				bytes = message(&b)
			}
			p.push(bytes)
		}
		p.mu.Unlock()
	}
}

func (p *peer) enqueue(b []byte) { p.mu.Lock(); defer p.mu.Unlock(); p.push(b) }

// push queues bytes, or drops them where the queue is full. p.mu is held.
func (p *peer) push(b []byte) {
	if p.bytes > 0 && p.bytes+len(b) > queueBytes {
		p.drop()
		return
	}
	select {
	case p.queue <- b:
		p.bytes += len(b)
		p.lost = false
	default:
		p.drop()
	}
}

func (p *peer) drop() {
	p.s.dropped.Add(1)
	if !p.lost {
		p.lost = true
		p.s.log.Warn("a subscriber of KV events does not read: it loses batches, and can ask for them at the replay "+
			"socket", "remote", p.conn.RemoteAddr())
	}
}

// write sends the queue until done is closed or the connection ends.
func (p *peer) write(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case b := <-p.queue:
			p.mu.Lock()
			p.bytes -= len(b)
			p.mu.Unlock()
			if p.send(b) != nil {
				p.conn.Close()
				return
			}
		}
	}
}

// send writes bytes. Each call has its own time: a deadline of an earlier one would fail it.
func (p *peer) send(b []byte) error {
	p.conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := p.conn.Write(b)
	return err
}

// replayer serves a REQ or DEALER socket. A request is the first sequence number that the peer wants, in eight bytes
// behind an empty frame. The answers are, as vLLM's, an empty frame, the topic, the number and the batch, and at the
// end the number -1 without a batch.
func (s *Server) replayer(p *peer) error {
	send := func(seq, payload []byte) error { return p.send(appendMultipart(nil, nil, nil, seq, payload)) }
	for {
		frames, err := readMessage(p.in, p.answerPing)
		if err != nil {
			return err
		}
		last := frames[len(frames)-1]
		if len(frames) > 2 || len(last) != 8 || len(frames) == 2 && len(frames[0]) > 0 {
			return fmt.Errorf("%w: a replay request must be an empty frame and a number of 8 bytes; it has %d frames, "+
				"the last of %d bytes", errZMTP, len(frames), len(last))
		}
		for _, b := range s.hub.Since(binary.BigEndian.Uint64(last)) {
			if err := send(b.seqBytes(), b.Payload); err != nil {
				return err
			}
		}
		if err := send(endSeq, nil); err != nil {
			return err
		}
	}
}

// answerPing answers a command of a peer without a writer.
func (p *peer) answerPing(name string, data []byte) error {
	if name == "PING" && len(data) >= 2 {
		return p.send(pong(data))
	}
	return p.command(name, data)
}
