package valkey_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

// hostile is a server that answers as one would, but for one command.
type hostile struct {
	net.Listener
	at     string              // the command that it answers with reply
	reply  func(w io.Writer)   // then it closes the connection
	wait   sync.WaitGroup      // connections
	answer func(string) string // of the other commands; nil: as a lone Redis 7
}

func startHostile(t testing.TB, at string, reply func(io.Writer)) *hostile {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{Listener: l, at: at, reply: reply}
	h.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.wait.Go(func() { defer c.Close(); h.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); h.wait.Wait() })
	return h
}

func (h *hostile) url() string { return "redis://" + h.Addr().String() + "?connect_timeout=1s" }

// serve reads commands, which come well-formed from the client.
func (h *hostile) serve(c net.Conn) {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(c)
	number := func() int {
		line, err := r.ReadString('\n')
		if err != nil {
			return -1
		}
		n, err := strconv.Atoi(strings.TrimRight(line[1:], "\r\n"))
		if err != nil {
			return -1
		}
		return n
	}
	for {
		n := number()
		if n <= 0 {
			return
		}
		var words []string
		for range n {
			size := number()
			if size < 0 {
				return
			}
			b := make([]byte, size+2)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			words = append(words, string(b[:size]))
		}
		name := strings.ToUpper(words[0])
		if len(words) > 1 && (name == "CLUSTER" || name == "CLIENT") {
			name += " " + strings.ToUpper(words[1])
		}
		if strings.HasPrefix(name, h.at) {
			h.reply(c)
			return
		}
		answer := "+OK\r\n"
		switch {
		case h.answer != nil && h.answer(name) != "":
			answer = h.answer(name)
		case name == "HELLO":
			answer = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.4.0\r\n+proto\r\n:3\r\n"
		case strings.HasPrefix(name, "CLUSTER"):
			answer = "-ERR This instance has cluster support disabled\r\n"
		case name == "GET":
			answer = "$-1\r\n"
		case name == "EXISTS", name == "UNLINK", name == "PEXPIRE":
			answer = ":0\r\n"
		case name == "PING":
			answer = "+PONG\r\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// replies are answers of a hostile store that would crash a client which trusts their lengths.
var replies = map[string]func(io.Writer){
	"a negative array":       say("*-5\r\n"),
	"a negative map":         say("%-5\r\n"),
	"a map of -1":            say("%-1\r\n"),
	"a negative set":         say("~-5\r\n"),
	"a negative string":      say("$-5\r\n"),
	"a negative error":       say("!-1\r\n"),
	"a huge string":          say("$999999999999\r\n"),
	"a string of MaxInt64":   say("$9223372036854775807\r\n"),
	"a string that wraps":    say("$18446744073709551615\r\n"),
	"a huge error":           say("!999999999999\r\n"),
	"a huge verbatim string": say("=999999999999\r\n"),
	"a huge array":           say("*999999999999\r\n"),
	"an array of 2^31":       say("*2147483648\r\n"),
	"a big map":              say("%1073741824\r\n"),
	"a big set":              say("~100000000\r\n"),
	"many arrays in arrays":  say(strings.Repeat("*1\r\n", 1<<20)),
	"many maps in maps":      say(strings.Repeat("%1\r\n+k\r\n", 1<<20)),
	"arrays side by side":    say("*60000\r\n" + strings.Repeat("*1000\r\n", 60000)),
	"a number without end":   say(":" + strings.Repeat("1", 4<<20)),
	"a length without end":   say("$" + strings.Repeat("1", 4<<20)),
	"a line without end":     say("+" + strings.Repeat("x", 4<<20)),
	"an error without end":   say("-" + strings.Repeat("x", 4<<20)),
	"a streamed string":      say("$?\r\n;999999999999\r\n"),
	"a streamed array":       say("*?\r\n" + strings.Repeat(":1\r\n", 1<<20)),
	"attributes without end": say(strings.Repeat("|1\r\n+k\r\n+v\r\n", 1<<20)),
	"pushes without end":     say(strings.Repeat(">2\r\n+invalidate\r\n*0\r\n", 1<<20)),
	"a negative push":        say(">-7\r\n"),
	"a big number":           say("(" + strings.Repeat("9", 1<<20) + "\r\n"),
	"an unknown type":        say("@1\r\n"),
	"an end of nothing":      say(".\r\n"),
	"no CRLF":                say("+OK\n+OK\n$3\r\nabcdefgh"),
	"unrequested answers":    say(strings.Repeat("+OK\r\n", 1<<20)),
	"unrequested strings":    say("$-1\r\n$-1\r\n*0\r\n%0\r\n"),
	"only a type":            say("*"),
	"only CRLF":              say("\r\n\r\n"),
	"zero bytes":             say(strings.Repeat("\x00", 1<<20)),
	"nothing":                say(""),
	"many long strings":      say("*1000\r\n" + strings.Repeat("$4000000\r\n"+strings.Repeat("y", 4000000)+"\r\n", 20)),
	"a piece too long":       say("$67108865\r\n"),
	"integers as strings":    say("%2\r\n+version\r\n:5\r\n+proto\r\n%0\r\n"),
	"keys that are maps":     say("%1\r\n%1\r\n+a\r\n+b\r\n+c\r\n"),
	"an array of nulls":      say("*4\r\n_\r\n_\r\n_\r\n_\r\n"),
	"slots far outside": say("*1\r\n*3\r\n:-9223372036854775808\r\n:9223372036854775807\r\n*2\r\n$9\r\n" +
		"127.0.0.1\r\n:1\r\n"),
	"shards of nonsense": say("*1\r\n%2\r\n+slots\r\n*3\r\n:1\r\n:2\r\n:3\r\n+nodes\r\n*1\r\n%2\r\n+health\r\n" +
		":1\r\n+role\r\n*0\r\n"),
	"a shard without nodes":  say("*1\r\n%2\r\n+slots\r\n*2\r\n:0\r\n:16383\r\n+nodes\r\n*0\r\n"),
	"moved to nowhere":       say("-MOVED 99999 :0\r\n"),
	"moved to the moon":      say("-MOVED 1 [::1%25eth0]:99999\r\n"),
	"ask without an address": say("-ASK\r\n"),
}

func say(s string) func(io.Writer) { b := []byte(s); return func(w io.Writer) { w.Write(b) } }

// allocated returns the bytes allocated on the heap since the process began.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestHostileStore: whatever a store answers, to whichever command, costs an error and no more: no panic, no exhausted
// memory, no wait beyond the deadline. The replies themselves are constants, so what is allocated is the client's.
func TestHostileStore(t *testing.T) {
	value := fabrictest.Value(1, 100_000)
	for _, at := range []string{"HELLO", "CLUSTER", "GET", "SET", "CLIENT"} {
		for name, reply := range replies {
			t.Run(at+"/"+name, func(t *testing.T) {
				h := startHostile(t, at, reply)
				f := open(t, h.url())
				before := allocated()
				_, pullErr := f.Pull(limit(t, 2*time.Second), "k", nil)
				pushErr := f.Push(limit(t, 2*time.Second), "k", value)
				if d := allocated() - before; d > 64<<20 {
					t.Errorf("%d MiB were allocated", d>>20)
				}
				for what, err := range map[string]error{"pull": pullErr, "push": pushErr} {
					if err != nil && !errors.Is(err, fabric.ErrUnavailable) && !errors.Is(err, fabric.ErrNotFound) &&
						!errors.Is(err, fabric.ErrCorrupt) {
						t.Errorf("%s: %v", what, err)
					}
					if err != nil && strings.Contains(err.Error(), "panicked") {
						t.Errorf("%s: the library panicked: %v", what, err)
					}
				}
			})
		}
	}
}

// TestHostileStoreHeals: a store that answered nonsense and then behaves is used again.
func TestHostileStoreHeals(t *testing.T) {
	s := redistest.Start(t)
	p := startProxy(t, s.Addr())
	f := open(t, p.url())
	fabrictest.MustPush(t, f, "k", []byte("value"))
	h := startHostile(t, "GET", say("*-5\r\n"))
	p.mu.Lock()
	p.target = h.Addr().String()
	p.mu.Unlock()
	p.cut()
	_, err := f.Pull(limit(t, 5*time.Second), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	p.mu.Lock()
	p.target = s.Addr()
	p.mu.Unlock()
	fabrictest.WantPull(t, f, "k", []byte("value"))
}

// FuzzStore: a server answers one of the commands with any bytes, whole or in two pieces.
func FuzzStore(f *testing.F) {
	commands := []string{"HELLO", "CLUSTER", "GET", "SET", "CLIENT", "NONE"}
	for i := range commands {
		for _, reply := range replies {
			var b bytes.Buffer
			reply(&b)
			if b.Len() < 4096 {
				f.Add(uint8(i), uint16(3), b.Bytes())
			}
		}
	}
	value := fabrictest.Value(1, 10_000)
	f.Fuzz(func(t *testing.T, at uint8, cut uint16, data []byte) {
		h := startHostile(t, commands[int(at)%len(commands)], func(w io.Writer) {
			n := min(int(cut), len(data))
			w.Write(data[:n])
			w.Write(data[n:])
		})
		c, err := valkey.Open(h.url())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		before := allocated()
		_, _ = c.Pull(ctx, "k", nil)
		err = c.Push(ctx, "k", value)
		if d := allocated() - before; d > 256<<20 { // the fuzzer's own goroutine allocates too
			t.Fatalf("%d MiB were allocated for %d bytes", d>>20, len(data))
		}
		if err != nil && strings.Contains(fmt.Sprint(err), "panicked") {
			t.Fatal(err)
		}
	})
}
