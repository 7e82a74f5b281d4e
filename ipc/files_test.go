package ipc

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// naming is a frame whose request names files.
func naming(id, pad string, numbers ...int) []byte {
	content := []any{map[string]any{"type": "text", "text": "look" + pad}}
	for _, k := range numbers {
		content = append(content, map[string]any{"type": "image_url", "image_url": map[string]any{
			"url": fmt.Sprint("fd:", k)}})
	}
	return frame(map[string]any{"id": id, "messages": []any{map[string]any{"role": "user", "content": content}}})
}

// sendFiles writes b with files.
func sendFiles(t testing.TB, c net.Conn, b []byte, contents ...string) {
	t.Helper()
	var fds []int
	for _, content := range contents {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	n, _, err := c.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n < len(b) {
		write(t, c, b[n:])
	}
}

// seen answers a request with the contents of its files.
func seen(c *Conn, r *wire.Request) {
	var text []string
	images, _ := r.ByDescriptor()
	for _, im := range images {
		text = append(text, string(im.File))
	}
	r.Prompt = strings.Join(text, ",")
	echo(c, r)
}

// said reads the next answer: what its tokens say, or its error's message.
func said(t testing.TB, c io.Reader) (id, text string) {
	t.Helper()
	for {
		ev, err := readFrame(c)
		if err != nil {
			t.Fatal(err)
		}
		id, _ = ev["id"].(string)
		switch ev["event"] {
		case "token":
			text += ev["text"].(string)
		case "eos":
			return id, text
		case "error":
			return id, ev["message"].(string)
		}
	}
}

// fileServers returns how to connect to a Loop, and to a front that passes every connection to a Loop: as a client
// does, and with a message that is longer than the socket's buffer, so that the front reads it.
func fileServers(t *testing.T) map[string]func() net.Conn {
	h := newRecorder()
	h.onReq = seen
	alone := serve(t, Config{}, h)

	f := newFront(t)
	engine := newRecorder()
	engine.onReq = seen
	l := serve(t, Config{}, engine)
	together(t, l, func() {
		if _, err := l.AddLink(f.other, f.table, func(LinkMessage) {}, func(error) {}); err != nil {
			t.Error(err)
		}
	})
	return map[string]func() net.Conn{
		"alone":   func() net.Conn { return dial(t, alone) },
		"a front": func() net.Conn { return f.dial(t) },
	}
}

// TestFilesComeWithFrames: a request has the files that it names, which came with its frame, whatever else comes.
func TestFilesComeWithFrames(t *testing.T) {
	long := strings.Repeat(" and look", 60_000)
	for name, connect := range fileServers(t) {
		for _, pad := range []string{"", long} {
			c := connect()
			ask := func(b []byte, want string, files ...string) {
				t.Helper()
				sendFiles(t, c, b, files...)
				if id, text := said(t, c); id != "a" || !strings.Contains(text, want) {
					t.Errorf("%s, %d bytes: %s said %q, want %q", name, len(b), id, text, want)
				}
			}
			ask(naming("a", pad, 0), "red", "red")
			ask(naming("a", pad, 1, 0), "blue,red", "red", "blue")
			ask(naming("a", pad), "", "unnamed") // and none is left for the next request
			ask(naming("a", pad, 0), "fd:0 is missing: 0 files came with the frame")
			ask(naming("a", pad, 0, 1), "fd:1 is missing: 1 files came with the frame", "red")
			ask(frame(map[string]any{"id": "a", "messages": 7}), "messages", "of a request that is refused")
			ask(naming("a", pad, 0), "green", "green")
			ask(naming("a", pad, 0), "(--max-frame-bytes)", strings.Repeat("x", 2<<20))
			ask(naming("a", pad, 0), "fd:0 is empty", "")
			ask(naming("a", pad, rights.MaxFiles-1), "last", append(make([]string, rights.MaxFiles-1), "last")...)
			ask(naming("a", pad, rights.MaxFiles), "was not taken in", make([]string, rights.MaxFiles+1)...)
			c.Close()
		}
	}
}

// TestFilesAndPipelines: requests that a client sends without waiting are handled in their order, each with its files,
// and a client that leaves meanwhile leaves no file open (serve looks).
func TestFilesAndPipelines(t *testing.T) {
	for name, connect := range fileServers(t) {
		c := connect()
		const n = 30
		go func() {
			for i := range n {
				if i%3 == 0 {
					write(t, c, request(fmt.Sprint(i), "plain"))
				} else {
					sendFiles(t, c, naming(fmt.Sprint(i), strings.Repeat("x", i*1000), 0), fmt.Sprint("file ", i))
				}
			}
		}()
		for i := range n {
			want := fmt.Sprint("file ", i)
			if i%3 == 0 {
				want = ""
			}
			if id, text := said(t, c); id != fmt.Sprint(i) || text != want {
				t.Errorf("%s: %s said %q, want %q", name, id, text, want)
			}
		}
		c.Close()
		gone := connect()
		sendFiles(t, gone, naming("x", "", 0), "red")
		sendFiles(t, gone, naming("y", "", 0)[:20], "blue")
		gone.Close()
	}
}
