package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// BenchmarkStream measures a token from the fake engine to the client's socket, over frames and over HTTP: the time of
// a step and the processor time of the whole process, with an engine that takes no time, and with one that computes for
// 300 µs on one core as an engine does. The client looks for the end and parses nothing.
func BenchmarkStream(b *testing.B) {
	for _, engine := range []struct {
		name string
		cost fake.Cost
	}{{"free", fake.Cost{}}, {"busy", fake.Cost{BaseMs: 0.3}}} {
		socket := benchServer(b, engine.cost)
		benchStream(b, engine.name+"/framed", socket, framedTokens)
		benchStream(b, engine.name+"/http", socket, httpTokens)
	}
}

func benchStream(b *testing.B, name, socket string, read func(*testing.B, net.Conn, int)) {
	b.Run(name, func(b *testing.B) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		b.ReportAllocs()
		b.ResetTimer()
		before := processorTime()
		for left := b.N; left > 0; left -= benchTokens {
			read(b, conn, min(left, benchTokens))
		}
		b.ReportMetric(float64(processorTime()-before)/float64(b.N)/1e3, "cpu-µs/token")
	})
}

// benchTokens is the length of an answer.
const benchTokens = 4000

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchServer returns the socket of a daemon with the fake engine.
func benchServer(b *testing.B, cost fake.Cost) (socket string) {
	_, socket = startBench(b, func(o runtime.Options) runtime.Engine {
		return fake.New(fake.Config{Options: o, Cost: cost, Advance: spin})
	})
	return socket
}

// startBench starts a daemon, which the end of the benchmark stops.
func startBench(b *testing.B, open func(runtime.Options) runtime.Engine) (s *Server, socket string) {
	fs, c, _ := config.NewFlagSet()
	socket = filepath.Join(b.TempDir(), "s")
	if err := fs.Parse([]string{"--model", "fake", "--socket", socket, "-c", "16384"}); err != nil {
		b.Fatal(err)
	}
	if err := c.Load(nil); err != nil {
		b.Fatal(err)
	}
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) { return open(o), nil })
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return s, socket
}

// framedTokens reads an answer of n tokens.
func framedTokens(b *testing.B, conn net.Conn, n int) {
	q := wire.DefaultRequest()
	q.ID, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS, q.NoProgress = "a", "count", n, true, true
	if _, err := conn.Write(frames.AppendRequest(nil, &q, nil)); err != nil {
		b.Fatal(err)
	}
	split := split.Frames{Max: wire.MaxEventBytes}
	buf := make([]byte, 16<<10)
	for {
		k, err := conn.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		for rest := buf[:k]; ; {
			var payload []byte
			if payload, rest, err = split.Next(rest); err != nil {
				b.Fatal(err)
			}
			if payload == nil {
				break
			}
			if bytes.HasPrefix(payload, []byte(`{"event":"eos"`)) {
				return
			}
		}
	}
}

// httpTokens reads an answer of n tokens over HTTP.
func httpTokens(b *testing.B, conn net.Conn, n int) {
	body, err := json.Marshal(map[string]any{"prompt": "count", "max_tokens": n, "ignore_eos": true, "stream": true})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		b.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 16<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			b.Fatal("the answer ended")
		}
		if bytes.HasPrefix(line, []byte("data: [DONE]")) {
			break
		}
	}
	for { // the last chunk
		line, err := in.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if string(line) == "0\r\n" {
			if _, err := in.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
			return
		}
	}
}
