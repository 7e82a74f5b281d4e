// Package engineproc starts engine processes (start.go), supervises their sandboxes (supervise.go), and asks one over
// a connection that the front has made to it in a client's name (ask.go). Which process that is, and what becomes of
// its answer, the front knows.
package engineproc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// Conn returns the connection of a descriptor, which it takes over.
func Conn(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "engine")
	defer file.Close()
	return net.FileConn(file)
}

// send writes a question to a descriptor, which it takes over, and returns the connection for the answer.
func send(fd int, question []byte, within time.Duration) (net.Conn, error) {
	conn, err := Conn(fd)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(within))
	if err == nil {
		_, err = conn.Write(question)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Report asks with a frame over a connection, which it closes, and returns the report or the error event. It takes the
// time within at most.
func Report(fd int, frame []byte, within time.Duration) (json.RawMessage, *wire.Error, error) {
	conn, err := send(fd, frame, within)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	cut, parser := split.Frames{Max: wire.MaxEventBytes}, frames.Parser{}
	in := make([]byte, 64<<10)
	for {
		n, err := conn.Read(in)
		payload, _, serr := cut.Next(in[:n])
		if serr != nil {
			return nil, nil, serr
		}
		if payload != nil {
			var ev wire.Event
			if err := parser.ParseEvent(payload, &ev); err != nil {
				return nil, nil, err
			}
			if ev.Kind == wire.EventError {
				return nil, &ev.Error, nil
			}
			return ev.Report, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// RoundTrip sends a request over a connection, which it closes, and returns the whole answer. It takes the time within
// at most.
func RoundTrip(fd int, r *http.Request, body []byte, within time.Duration) (status int, answer []byte, err error) {
	out := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: uma\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n", r.Method, r.URL.RequestURI(), len(body))
	conn, err := send(fd, append(out, body...), within)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, answer, err
}

// maxAnswer bounds what an engine process may answer the front.
const maxAnswer = 16 << 20

// Post sends a request whose documents the front has read, and returns the answer as it comes. It closes the connection
// when ctx ends, which cancels the request, when the answer's body is closed, and with an error; then it calls left.
func Post(ctx context.Context, conn net.Conn, path string, header http.Header, body []byte,
	left func()) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	end := func() { stop(); conn.Close(); left() }
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: uma\r\nConnection: close\r\nContent-Length: %d\r\n%s: 1\r\n", path,
		len(body), documents.Header)
	_ = header.Write(&head) // a buffer takes everything
	head.WriteString("\r\n")
	_, err := conn.Write(append(head.Bytes(), body...))
	if err != nil {
		end()
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &lastBody{ReadCloser: resp.Body, end: end}
	return resp, nil
}

// lastBody is the body of the only answer on a connection.
type lastBody struct {
	io.ReadCloser
	end func()
}

func (b *lastBody) Close() error {
	err := b.ReadCloser.Close()
	if b.end != nil {
		b.end()
		b.end = nil
	}
	return err
}

// ours are headers of a request that are the front's matter: who the client is, where it comes from, and how its body
// came. hopByHop are the headers of an answer that belong to a connection.
var (
	ours = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Origin", "Forwarded", "X-Forwarded-For",
		"X-Forwarded-Host", "X-Real-Ip", "Host", "Connection", "Content-Length", "Transfer-Encoding", "Expect", "Te",
		"Trailer", "Upgrade", "Keep-Alive"}
	hopByHop = []string{"Connection", "Transfer-Encoding", "Keep-Alive", "Trailer"}
)

// Header returns the headers of a client's request that an engine process gets.
func Header(of http.Header) http.Header {
	h := of.Clone()
	for _, name := range ours {
		h.Del(name)
	}
	return h
}

// Relay passes on an answer as it comes.
func Relay(w http.ResponseWriter, resp *http.Response) {
	for name, values := range resp.Header {
		if !slices.Contains(hopByHop, name) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	out := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return // the client has left, and the end of its context cancels the request
			}
			_ = out.Flush() // as above
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			panic(http.ErrAbortHandler) // the client must not take the answer for whole
		}
	}
}
