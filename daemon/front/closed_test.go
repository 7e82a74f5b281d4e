package front

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestClosedConnectionKeepsNoModelBusy: however a connection ends, its model is idle then: it is unloaded after
// --idle-unload, and the next model does not wait for its answers.
func TestClosedConnectionKeepsNoModelBusy(t *testing.T) {
	r := start(t, Options{Tick: 10 * time.Millisecond}, []string{"slow"}, nil, "--idle-unload", "300ms")
	const forever = `{"model":"slow","prompt":"tell on","ignore_eos":true,"stream":true}`
	part := func(h *httpClient) { // reads part of an answer that does not end
		h.t.Helper()
		h.send("POST", "/completion", forever)
		if line, err := h.in.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			h.t.Fatalf("%q, %v", line, err)
		}
		for {
			if line, err := h.in.ReadString('\n'); err != nil || strings.HasPrefix(line, "data:") {
				return
			}
		}
	}
	whole := func(h *httpClient) {
		h.t.Helper()
		resp := h.receive()
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || err != nil {
			h.t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
		}
	}
	for name, end := range map[string]func(*httpClient){
		"Connection: close": func(h *httpClient) {
			h.send("POST", "/v1/chat/completions", chat("slow", ""), "Connection: close")
			whole(h)
		},
		"HTTP/1.0": func(h *httpClient) {
			body := chat("slow", "")
			fmt.Fprintf(h.conn, "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			whole(h)
		},
		"an abort amid the answer": func(h *httpClient) { part(h) },
		"an abort before the answer": func(h *httpClient) {
			h.send("POST", "/v1/chat/completions", chat("slow", `,"ignore_eos":true`))
			waitfor.True(h.t, "it is being answered", func() bool { return r.inFlight("slow") > 0 })
		},
		"half a request": func(h *httpClient) {
			io.WriteString(h.conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: 500\r\n\r\n"+
				`{"model":"slow",`)
			waitfor.True(h.t, "the process has it", func() bool { return r.inFlight("slow") > 0 })
		},
		"a half-close": func(h *httpClient) {
			h.send("POST", "/v1/chat/completions", chat("slow", ""))
			if err := h.conn.(*net.UnixConn).CloseWrite(); err != nil {
				h.t.Fatal(err)
			}
			whole(h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := r.http()
			h.t = t
			end(h)
			h.conn.Close()
			waitfor.True(t, "nothing is in flight", func() bool { return r.inFlight("slow") == 0 })
		})
	}
	waitfor.True(t, "the model is unloaded", func() bool {
		gone := false
		r.call(func() { gone = r.find("slow").state == unloaded })
		return gone
	})
	const want = `msg=unloading model=slow why="idle for 300ms (--idle-unload)"`
	if text := r.log.String(); !strings.Contains(text, want) {
		t.Errorf("the log does not say why the model was unloaded: %s", text)
	}
}

// inFlight returns the number of answers that a model's process owes, as the front sees it; 0 without a process.
func (r *running) inFlight(name string) (n int) {
	r.call(func() {
		if m := r.find(name); m.proc != nil {
			n = m.proc.table.InFlight()
		}
	})
	return n
}
