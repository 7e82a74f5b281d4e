package wire_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// TestPythonExample runs the client that docs/protocol.md shows against a server that answers one request.
func TestPythonExample(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	_, code, ok := strings.Cut(section(t, "## Connecting"), "```python\n")
	code, _, closed := strings.Cut(code, "```")
	if !ok || !closed {
		t.Fatal("docs/protocol.md shows no Python client")
	}
	dir, err := os.MkdirTemp("", "uma") // t.TempDir can be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "uma-serve"), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "uma-serve", "uma.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() { served <- serveOne(ln) }()

	cmd := exec.Command(python, "-c", code)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "PYTHONIOENCODING=utf-8")
	out, err := cmd.CombinedOutput()
	ln.Close() // a client that never connected must not keep the server waiting
	if serr := <-served; serr != nil {
		t.Errorf("server: %v", serr)
	}
	if got := string(out); err != nil || !strings.HasPrefix(got, "Größe\n") ||
		!strings.Contains(got, "'reason': 'stop'") {
		t.Errorf("the example prints %q, %v", got, err)
	}
}

// serveOne answers the first request of one connection with a thought, two tokens and an eos.
func serveOne(ln net.Listener) error {
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	var s split.Frames
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		if p := split.Sniff(buf[:n], false); p != split.Framed {
			return fmt.Errorf("sniffed %v", p)
		}
		payload, _, err := s.Next(buf[:n])
		if err != nil {
			return err
		}
		if payload == nil {
			continue
		}
		def := DefaultRequest()
		f, err := Parse(new(Parser), payload, &def)
		if err != nil {
			return err
		}
		if len(f.Request.Messages) != 1 || f.ID != "1" {
			return fmt.Errorf("request %+v", f.Request)
		}
		out := AppendToken(nil, &Token{ID: f.ID, Text: []byte("hm"), Phase: Thinking})
		for _, text := range []string{"Grö", "ße"} {
			out = AppendToken(out, &Token{ID: f.ID, Text: []byte(text), Phase: Output})
		}
		_, err = c.Write(AppendEOS(out, &EOS{ID: f.ID, Reason: Stop, Streamed: true}))
		return err
	}
}
