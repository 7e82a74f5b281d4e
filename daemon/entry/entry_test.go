package entry

import (
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// mute is a handler that answers nothing.
type mute struct{}

func (mute) Request(c ipc.Client, r *wire.Request) { c.Done(r.ID) }
func (mute) Embed(c ipc.Client, e *wire.Embed)     { c.Done(e.ID) }
func (mute) Line(c *ipc.Conn, _ string)            { c.Done("") }
func (mute) Cancel(ipc.Client, string)             {}
func (mute) EndThink(ipc.Client, string)           {}
func (mute) Admin(ipc.Client, *wire.Frame)         {}
func (mute) Writable(ipc.Client)                   {}
func (mute) Closed(ipc.Client, ipc.Cause)          {}

// open opens an Entry with a socket in dir.
func open(t *testing.T, dir string, check func() error, args ...string) (*Entry, error) {
	t.Helper()
	fs, c, _ := config.NewFlagSet()
	args = append([]string{"--model", "x", "--socket", filepath.Join(dir, "s"), "--listen", "127.0.0.1:0"}, args...)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(nil); err != nil {
		t.Fatal(err)
	}
	return Open(c, slog.New(slog.DiscardHandler), Options{Handler: mute{}, Check: check})
}

// TestEntry: it serves what its routes answer, describes its sockets, and stops.
func TestEntry(t *testing.T) {
	e, err := open(t, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := e.Start(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}), nil)
	a := e.Addresses()
	if a.Socket != e.Config.Socket || len(a.Listen) != 2 || len(a.Listeners) != 2 ||
		a.Listen[0] != "unix://"+a.Socket || a.Listeners[1].Address != e.Listeners[1].Address() {
		t.Errorf("%+v", a)
	}
	resp, err := http.Get(a.Listen[1])
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("%s", resp.Status)
	}
	if in := e.Info(); in.Socket != a.Socket || in.Live.Sessions > 1 || in.Memory.GoHeap == 0 || in.PID == 0 {
		t.Errorf("%+v", in)
	}
	http.DefaultClient.CloseIdleConnections()
	select {
	case <-ended:
		t.Error("it has ended by itself")
	default:
	}
	e.Stop(time.Second)
	waitfor.Recv(t, "the end", ended)
	if e.Err() != nil {
		t.Error(e.Err())
	}
}

// TestPollerEndsFirst: Stop does not wait for a poller that has ended before.
func TestPollerEndsFirst(t *testing.T) {
	e, err := open(t, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := e.Start(http.NotFoundHandler(), nil)
	e.Loop.Stop(0)
	waitfor.Recv(t, "the end", ended)
	e.Stop(time.Second)
}

// TestFailedCheckFreesTheSocket: the sockets are closed, so that the path can be bound again.
func TestFailedCheckFreesTheSocket(t *testing.T) {
	broken, dir := errors.New("broken"), t.TempDir()
	if _, err := open(t, dir, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	e, err := open(t, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}
