package daemon

import (
	"net"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// answering is a store that gives every client the same answer, to whatever it sends.
func answering(t *testing.T, answer []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "redis://" + l.Addr().String()
}

// TestDaemonOutlivesAHostileStore: replies that panic inside the client library, or exhaust memory, cost a miss.
// Requests are answered as without the store, and kv shows the errors.
func TestDaemonOutlivesAHostileStore(t *testing.T) {
	ask := raw(text(0, 300), 3)
	want := solo(t, ask)
	for name, answer := range map[string]string{
		"a negative array":       "*-5\r\n",
		"a negative string":      "$-5\r\n",
		"a huge string":          "$999999999999\r\n",
		"a big map":              "%1073741824\r\n",
		"arrays in arrays":       strings.Repeat("*1\r\n", 1<<18),
		"a line without end":     "+" + strings.Repeat("x", 1<<20),
		"pushes":                 strings.Repeat(">2\r\n+invalidate\r\n*0\r\n", 1000),
		"unrequested answers":    strings.Repeat("+OK\r\n", 1000),
		"attributes without end": strings.Repeat("|1\r\n+k\r\n+v\r\n", 1000),
	} {
		r := serve(t, fake.Config{}, "--fabric", answering(t, []byte(answer)), "--cache-ram", "64MiB",
			"--shutdown-timeout", "2s")
		c := r.dial()
		if a := r.ask(c, ask); a.err != nil || a.text != want.text {
			t.Errorf("%s: %+v, want %+v", name, a, want)
		}
		eventually(t, name+" is counted", func() bool {
			x := r.tier(wire.TierFabric)
			return x.Errors > 0 && x.LastError != ""
		})
		if h := r.health(); h.Status != "ok" {
			t.Errorf("%s: %+v", name, h)
		}
		if err := r.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
