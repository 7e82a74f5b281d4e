package pull

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// Addresses of the servers in memory.
const (
	hubAddress = "http://127.0.0.1:1"
	cdnAddress = "http://127.0.0.1:2"
	regAddress = "127.0.0.1:3"
)

// pipes is a listener in memory; every dialled address leads to it.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fixture is a Puller and the server in memory that it asks.
type fixture struct {
	*pulltest.Server
	cfg   Config
	dir   string
	notes []string
	seen  []Progress
	chose []Choice
	close func()
}

// newFixture starts s. The caller closes the fixture, in the same bubble.
func newFixture(t *testing.T, s *pulltest.Server) *fixture {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: s}
	go server.Serve(p)
	f := &fixture{Server: s, dir: filepath.Join(t.TempDir(), "models"), close: func() { server.Close() }}
	f.cfg = Config{Endpoint: hubAddress, dial: p.dial, segment: 16 << 10, Connections: 4, Observer: Observer{
		Chosen:   func(c Choice) { f.chose = append(f.chose, c) },
		Progress: func(p Progress) { f.seen = append(f.seen, p) },
		Note:     func(text string) { f.notes = append(f.notes, text) },
	}}
	return f
}

func (f *fixture) pull(ctx context.Context, t *testing.T, name string) (Model, error) {
	t.Helper()
	p, err := New(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p.Pull(ctx, name, f.dir)
}

// files are the names below the models folder.
func (f *fixture) files(t *testing.T) (names []string) {
	t.Helper()
	filepath.WalkDir(f.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(f.dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	return names
}
