package ipc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// The benchmarks behind docs/adr/0002. Those named Netpoll measure the rejected design: one goroutine for each
// connection over Go's own poller, with a second one that writes, because a write must not block the decode loop.

var tokenFrame = wire.AppendToken(nil, &wire.Token{ID: "6f1c2d3e", Text: []byte(" world"), TokenID: 1917,
	Phase: wire.Output})

// BenchmarkRoundTrip measures a health question and its answer.
func BenchmarkRoundTrip(b *testing.B) {
	h := newRecorder()
	l := serve(b, Config{}, &quiet{recorder: h})
	c := dial(b, l)
	c.SetDeadline(time.Time{})
	ask := frames.AppendAdmin(nil, wire.KindHealth, "1")
	buf := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		c.Write(ask)
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// quiet is a recorder that answers without recording.
type quiet struct{ *recorder }

var healthAnswer = wire.AppendReport(nil, wire.KindHealth, "1", []byte("{}"))

func (q *quiet) EndThink(Client, string)       {}
func (q *quiet) Admin(c Client, _ *wire.Frame) { c.(*Conn).Reply(healthAnswer) }

// tickConns returns n connections with a request in flight, and their clients' descriptors, in blocking mode.
func tickConns(b *testing.B, n int) (conns []*Conn, clients []int) {
	h := newRecorder()
	l := serve(b, Config{}, h)
	for i := range n {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Close(fd) })
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: l.SocketPath()}); err != nil {
			b.Fatal(err)
		}
		id := fmt.Sprint(i)
		if _, err := unix.Write(fd, request(id, "q")); err != nil {
			b.Fatal(err)
		}
		h.wait(b, fmt.Sprintf("request %s %q", id, "q"))
		c := h.conns[len(h.conns)-1]
		b.Cleanup(func() { c.Done(id) })
		conns, clients = append(conns, c), append(clients, fd)
	}
	return conns, clients
}

// BenchmarkTick measures a decode step's work for its connections: Send and Flush for each; no client waits in read.
// The clients read outside of the measured time. frames is the number of frames that each gets in a step.
func BenchmarkTick(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		for _, frames := range []int{1, 4} {
			b.Run(fmt.Sprintf("conns=%d/frames=%d", n, frames), func(b *testing.B) {
				conns, clients := tickConns(b, n)
				cost := startCost()
				buf := make([]byte, 1<<20)
				const batch = 50 // steps between two rounds of reading
				var spent time.Duration
				b.ReportAllocs()
				steps := 0
				for b.Loop() {
					began := time.Now()
					for _, c := range conns {
						for range frames {
							if c.Send(tokenFrame) != Sent {
								b.Fatal("full")
							}
						}
					}
					for _, c := range conns {
						c.Flush()
					}
					spent += time.Since(began)
					if steps++; steps%batch == 0 {
						for _, fd := range clients {
							unix.Read(fd, buf)
						}
					}
				}
				cost.report(b, spent, steps, n)
			})
		}
	}
}

// BenchmarkNetpollTick is BenchmarkTick for the other design: a frame is copied and handed to the connection's writer
// goroutine. The measured time is that of handing over alone. The writers then compete with the decode for the
// processors; this cost is not measured.
func BenchmarkNetpollTick(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("conns=%d", n), func(b *testing.B) {
			path := filepath.Join(socketDir(b), "s")
			srv := newNetpollServer(b, path)
			buf := make([]byte, 1<<20)
			clients := rawClients(b, path, n)
			var conns []*netpollConn
			for range n {
				conns = append(conns, <-srv.accepted)
			}
			cost := startCost()
			var spent time.Duration
			b.ReportAllocs()
			steps := 0
			for b.Loop() {
				began := time.Now()
				for _, c := range conns {
					f := append([]byte(nil), tokenFrame...)
					select {
					case c.out <- f:
					default:
						b.Fatal("full")
					}
				}
				spent += time.Since(began)
				if steps++; steps%50 == 0 {
					for _, fd := range clients {
						for got := 0; got < 50*len(tokenFrame); {
							k, err := unix.Read(fd, buf)
							if err != nil {
								b.Fatal(err)
							}
							got += k
						}
					}
				}
			}
			cost.report(b, spent, steps, n)
		})
	}
}

// cost measures the processor time and context switches of the whole process, its clients' reading included.
type cost struct{ before unix.Rusage }

func startCost() *cost {
	c := &cost{}
	unix.Getrusage(unix.RUSAGE_SELF, &c.before)
	return c
}

// report reports, for each connection and step, the time that the decode loop spent, the processor time of all threads,
// and the number of times that a thread slept and had to be woken.
func (c *cost) report(b *testing.B, kept time.Duration, steps, conns int) {
	var after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	per := float64(steps * conns)
	cpu := after.Utime.Nano() - c.before.Utime.Nano() + after.Stime.Nano() - c.before.Stime.Nano()
	b.ReportMetric(float64(kept.Nanoseconds())/per, "ns/conn")
	b.ReportMetric(float64(cpu)/per, "cpu-ns/conn")
	b.ReportMetric(float64(after.Nvcsw-c.before.Nvcsw)/per, "sleeps/conn")
	b.ReportMetric(0, "ns/op") // would hold the reading too
}

// BenchmarkWrite compares the ways to write one token frame to a socket that takes it.
func BenchmarkWrite(b *testing.B) {
	ways := []struct {
		name  string
		write func(fd int, nc net.Conn) error
	}{
		{"send", func(fd int, _ net.Conn) error { _, err := sys.Send(fd, tokenFrame); return err }},
		{"unix.Write", func(fd int, _ net.Conn) error { _, err := unix.Write(fd, tokenFrame); return err }},
		{"net.Conn", func(_ int, nc net.Conn) error { _, err := nc.Write(tokenFrame); return err }},
	}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			unix.SetNonblock(pair[0], true)
			nc, err := sys.NetConn(pair[0])
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			buf := make([]byte, 1<<20)
			var spent time.Duration
			n := 0
			for b.Loop() {
				began := time.Now()
				for range 50 {
					if err := w.write(pair[0], nc); err != nil {
						b.Fatal(err)
					}
				}
				spent += time.Since(began)
				n += 50
				unix.Read(pair[1], buf)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/write")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkIdleConnections prints the Go memory that 1,000 idle connections hold, for both designs.
func BenchmarkIdleConnections(b *testing.B) {
	const n = 1000
	raiseNoFile(b, 2*n+200)
	measure := func(b *testing.B, path string, accepted func() int) {
		before := memoryInUse()
		rawClients(b, path, n)
		eventually(b, "all accepted", func() bool { return accepted() == n })
		time.Sleep(50 * time.Millisecond)
		b.ReportMetric(float64(memoryInUse()-before)/n, "B/conn")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("loop", func(b *testing.B) {
		l := serve(b, Config{}, newRecorder())
		measure(b, l.SocketPath(), func() int { return int(l.Stats().Sessions.Load()) })
	})
	b.Run("netpoll", func(b *testing.B) {
		path := filepath.Join(socketDir(b), "s")
		srv := newNetpollServer(b, path)
		measure(b, path, func() int { return len(srv.accepted) })
	})
}

// netpollServer is a minimal implementation of the rejected design.
type netpollServer struct{ accepted chan *netpollConn }

type netpollConn struct {
	net.Conn
	out chan []byte
}

func newNetpollServer(b *testing.B, path string) *netpollServer {
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	s := &netpollServer{accepted: make(chan *netpollConn, 4096)}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := &netpollConn{nc, make(chan []byte, 64)}
			go func() {
				defer close(c.out)
				r := bufio.NewReaderSize(c, 4096)
				for {
					if _, err := r.ReadByte(); err != nil {
						return
					}
				}
			}()
			go func() {
				defer c.Close()
				for f := range c.out {
					if _, err := c.Write(f); err != nil {
						io.Copy(io.Discard, c)
						return
					}
				}
			}()
			s.accepted <- c
		}
	}()
	return s
}
