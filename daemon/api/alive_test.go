package api_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// events is a stream of what Next returns.
type events func() *wire.Event

func (e events) Next() *wire.Event { return e() }
func (e events) Ready() bool       { return false }
func (e events) Close()            {}

// TestKeepAlive: a stream is never silent for longer than three seconds; what is no stream has one byte, its answer's.
func TestKeepAlive(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(w *api.Writer)
		want string
	}{
		// 3, 4 and 5 s after the beginning; 3, 4, … 10 s after the first token.
		"events": {func(w *api.Writer) { w.Streams = true },
			strings.Repeat(":\n\n", 3) + "data: 1\n\n" + "data: 1\n\n" + strings.Repeat(":\n\n", 7) + "data: 1\n\n"},
		"lines": {func(w *api.Writer) { w.KeepAlive = func() { w.Line("") } },
			strings.Repeat("\"\"\n", 3) + "data: 1\n\n" + "data: 1\n\n" + strings.Repeat("\"\"\n", 7) + "data: 1\n\n"},
		"every 2 s": {func(w *api.Writer) { w.Streams, w.Ping = true, 2 },
			strings.Repeat(":\n\n", 2) + "data: 1\n\n:\n\ndata: 1\n\n" + strings.Repeat(":\n\n", 4) + "data: 1\n\n"},
		"never":     {func(w *api.Writer) { w.Streams, w.Ping = true, -1 }, strings.Repeat("data: 1\n\n", 3)},
		"one value": {func(*api.Writer) {}, strings.Repeat("data: 1\n\n", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, rec := &api.Server{}, httptest.NewRecorder()
				w := s.NewWriter(rec)
				c.set(w)
				times := []time.Duration{5500 * time.Millisecond, 2900 * time.Millisecond, 9500 * time.Millisecond}
				in := events(func() *wire.Event {
					if len(times) == 0 {
						return nil
					}
					time.Sleep(times[0])
					times = times[1:]
					return &wire.Event{Kind: wire.EventToken}
				})
				if err := s.Follow(w, in, func(*wire.Event) bool { w.Event("", 1); return true }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // nothing is written behind the end
				if got := rec.Body.String(); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}
