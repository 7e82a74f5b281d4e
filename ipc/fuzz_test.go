package ipc

import (
	"bytes"
	"io"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// FuzzClient sends arbitrary bytes, in two pieces, and then ends its side: the server must answer what it can, end
// the connection and hold nothing of it.
func FuzzClient(f *testing.F) {
	f.Add([]byte("hi\n"), 1)
	f.Add([]byte("a question\r\nmetrics\n"), 4)
	f.Add(request("a", "q"), 3)
	f.Add(append(request("a", "q"), frames.AppendCancel(nil, "a")...), 9)
	f.Add(append(request("a", "q"), 1, 0), 0)
	f.Add([]byte{0, 0, 1, 0, 0}, 2)
	f.Add(bytes.Repeat([]byte{'x'}, 9000), 5000)
	h := &forgetful{}
	l := serve(f, Config{MaxFrameBytes: 4096, MaxPromptBytes: 4096}, h)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if split.Sniff(data, true) == split.HTTP {
			t.Skip("net/http answers it")
		}
		c := dial(t, l)
		cut = max(0, min(cut, len(data)))
		go func() {
			c.Write(data[:cut])
			c.Write(data[cut:])
			c.CloseWrite()
		}()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		eventually(t, "nothing is left behind", func() bool { return l.Info() == Info{} })
	})
}

// forgetful answers and remembers nothing.
type forgetful struct{}

func (*forgetful) Request(c Client, r *wire.Request) { echo(c.(*Conn), r) }
func (*forgetful) Embed(c Client, e *wire.Embed) {
	c.(*Conn).Reply(wire.AppendEOS(nil, &wire.EOS{ID: e.ID, Reason: wire.Stop, Streamed: true}))
	c.Done(e.ID)
}
func (*forgetful) Line(c *Conn, prompt string) { echoLine(c, prompt) }
func (*forgetful) Cancel(Client, string)       {}
func (*forgetful) Writable(Client)             {}
func (*forgetful) Closed(Client, Cause)        {}
func (*forgetful) EndThink(Client, string)     {}
func (*forgetful) Admin(c Client, q *wire.Frame) {
	c.(*Conn).Reply(wire.AppendReport(nil, q.Kind, q.ID, []byte("{}")))
}
