package daemon

import (
	"bytes"
	"log/slog"
	"regexp"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestDebugLog: with level debug the log has each step's decisions with their reasons, and the lines of a request have
// its connection, its number in the decisions and its sequence; with level info there is neither.
func TestDebugLog(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var mu sync.Mutex
		var text bytes.Buffer
		r := serveLogging(t, slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(b)
		}), &slog.HandlerOptions{Level: level})), fake.Config{})
		c := r.as(1001)
		c.send("mine", func(q *wire.Request) { q.MaxTokens = 3 })
		if ev := c.end("mine"); ev.Kind != wire.EventEOS {
			t.Fatalf("%+v", ev.Error)
		}
		r.nothingLeft()
		mu.Lock()
		got := text.String()
		mu.Unlock()
		for _, want := range []string{
			`msg=step decisions="plan tokens=\d+ decode=0 .*; `, `; prefill 1 seq=0 at=0 n=\d+ reason=prefill`,
			`; decode 1 seq=0 at=6 row=0 reason=decode`,
			`msg=started session=\d+ request=mine id=1 seq=0 prompt_tokens=5 cached_tokens=0`,
			`msg=done session=\d+ request=mine id=1 seq=-?\d+ reason=length tokens=3`,
		} {
			if found := regexp.MustCompile(want).MatchString(got); found != (level == slog.LevelDebug) {
				t.Errorf("level %v: %s is found: %v\n%s", level, want, found, got)
			}
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
