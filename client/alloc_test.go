package client

import (
	"bytes"
	"net"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// recorded is a connection that delivers bytes recorded before.
type recorded struct {
	net.Conn
	r *bytes.Reader
}

func (c recorded) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c recorded) Write(b []byte) (int, error) { return len(b), nil }
func (c recorded) Close() error                { return nil }

// recordedStream is a stream of n token events.
func recordedStream(tb testing.TB, n int) *Stream {
	var data []byte
	for range n {
		data = wire.AppendToken(data, &wire.Token{ID: "r1", Text: []byte(" token"), TokenID: 1234, Phase: wire.Output})
	}
	c := &Client{wireclient.New(recorded{r: bytes.NewReader(data)}, "")}
	s, err := c.Stream(tb.Context(), &Request{Prompt: "x"})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestNextAllocatesNothing: the benchmark's clients share the machine with the engine; garbage of theirs is paid by it.
func TestNextAllocatesNothing(t *testing.T) {
	s := recordedStream(t, 2000)
	next := func() {
		if ev, err := s.Next(); err != nil || ev.Token.TokenID != 1234 {
			t.Fatal(ev, err)
		}
	}
	for range 100 {
		next()
	}
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
}

func BenchmarkNext(b *testing.B) {
	s := recordedStream(b, b.N+1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
