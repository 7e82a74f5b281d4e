package valkey

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// command returns a request in RESP, as a client sends it.
func command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

// asked is a dialogue after these commands.
func asked(t testing.TB, names ...string) *dialogue {
	d := newDialogue()
	for _, n := range names {
		if err := d.out.scan(command(n, "key", "value\r\n*1\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestDialogue(t *testing.T) {
	get, set := []string{"GET"}, []string{"SET"}
	for _, c := range []struct {
		asked []string
		reply string
		want  string // in the error; "" = none
	}{
		{get, "$3\r\nabc\r\n", ""},
		{get, "$0\r\n\r\n", ""},
		{get, "$-1\r\n", ""},
		{get, "_\r\n", ""},
		{get, "-WRONGTYPE x\r\n", ""},
		{[]string{"get", "SET", "PING"}, "$2\r\n\r\n\r\n+OK\r\n+PONG\r\n", ""},
		{set, ":12\r\n", ""},
		{set, ":-9223372036854775808\r\n", ""},
		{set, "#t\r\n", ""},
		{set, ",1.5e3\r\n", ""},
		{set, ",inf\r\n", ""},
		{set, "=5\r\ntxt:a\r\n", ""},
		{set, "*-1\r\n", ""},
		{set, "*0\r\n", ""},
		{set, "%0\r\n", ""},
		{set, "%2\r\n+a\r\n*2\r\n:1\r\n*0\r\n$1\r\nb\r\n~1\r\n_\r\n", ""},
		{[]string{"HELLO", "GET"}, "%1\r\n$6\r\nserver\r\n+redis\r\n$1\r\nx\r\n", ""},
		{set, "+OK\r\n+OK\r\n", "not asked for"},
		{nil, "+OK\r\n", "not asked for"},
		{nil, "", ""},
		{set, "*-5\r\n", `the length "-5"`},
		{set, "*+5\r\n", `the length "+5"`},
		{set, "$ 5\r\n", `the length " 5"`},
		{set, "$\r\n", `the length ""`},
		{set, "%-1\r\n", "-1 after '%'"},
		{set, "$2147483648\r\n", "the length"},
		{get, "$67108865\r\n", "a piece of 67108865 bytes"},
		{get, "$67108864\r\n", ""},
		{set, "$67108864\r\n", "a string of 67108864 bytes"},
		{get, "*1\r\n$67108864\r\n", "a string of 67108864 bytes"},
		{set, "*65537\r\n", "more than 65536 elements"},
		{set, "%32769\r\n", "more than 65536 elements"},
		{set, strings.Repeat("*1\r\n", 9), "8 deep"},
		{set, ">1\r\n+x\r\n", "type '>'"},
		{set, "|1\r\n+x\r\n+y\r\n", "type '|'"},
		{set, "(1\r\n", "type '('"},
		{set, "*?\r\n", `the length "?"`},
		{set, ":12a\r\n", `"12a"`},
		{set, ":\r\n", `""`},
		{set, "#x\r\n", `"x"`},
		{set, "_x\r\n", `"x"`},
		{set, ",x\r\n", `"x"`},
		{set, ":" + strings.Repeat("1", 40), "a number of more than 32 bytes"},
		{set, "+" + strings.Repeat("x", maxLine), "a line of more than"},
		{set, "+OK\n", "without CRLF"},
		{set, "$1\r\nabc", "no CRLF behind"},
		{set, "$1\r\na\n\r", "no CRLF behind"},
		{set, "\r\n", "type '\\r'"},
	} {
		d := asked(t, c.asked...)
		err := d.in.scan([]byte(c.reply))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!errors.Is(err, fault.ErrUnavailable)) {
			t.Errorf("%q after %v: %v, want %q", c.reply[:min(40, len(c.reply))], c.asked, err, c.want)
		}
		// In pieces it comes to the same.
		d = asked(t, c.asked...)
		var piecewise error
		for i := 0; i < len(c.reply) && piecewise == nil; i++ {
			piecewise = d.in.scan([]byte(c.reply[i : i+1]))
		}
		if fmt.Sprint(err) != fmt.Sprint(piecewise) {
			t.Errorf("%q in pieces: %v, whole: %v", c.reply[:min(40, len(c.reply))], piecewise, err)
		}
	}
}

// TestDialogueBudget: what the answers to a burst of commands may take together is bounded, and the next burst has its
// own.
func TestDialogueBudget(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = "SET"
	}
	d := asked(t, many...)
	big := append(append([]byte("$1000000\r\n"), bytes.Repeat([]byte("x"), 1000000)...), '\r', '\n')
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = d.in.scan(big)
	}
	if err == nil || n > maxText/1000000+1 {
		t.Errorf("%d answers of a megabyte: %v", n, err)
	}
	for range 20 {
		d = asked(t, "SET")
		if err := d.in.scan(big); err != nil {
			t.Fatal(err)
		}
	}
	d = newDialogue()
	for i := 0; err == nil || i < 10; i++ {
		if err = d.out.scan(command("SET")); err != nil {
			break
		}
		if i > maxAwaited {
			t.Fatal("commands without end")
		}
	}
}

// FuzzDialogue: no bytes panic, grow memory or are read otherwise in two pieces than in one.
func FuzzDialogue(f *testing.F) {
	f.Add([]byte("%1\r\n$6\r\nserver\r\n+redis\r\n$1\r\nx\r\n"), uint16(5))
	f.Add([]byte("*-5\r\n"), uint16(1))
	f.Add([]byte("$3\r\nabc\r\n+OK\r\n:5\r\n*2\r\n_\r\n#t\r\n"), uint16(7))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		a, b := asked(t, "GET", "SET", "HELLO", "GET"), asked(t, "GET", "SET", "HELLO", "GET")
		whole := a.in.scan(data)
		n := min(int(cut), len(data))
		pieces := b.in.scan(data[:n])
		if pieces == nil {
			pieces = b.in.scan(data[n:])
		}
		if (whole == nil) != (pieces == nil) {
			t.Fatalf("whole: %v, in pieces: %v", whole, pieces)
		}
		if cap(a.in.line) > 4*maxLine || len(a.in.open) > maxDepth {
			t.Fatalf("%d bytes of a line, %d aggregates are held", cap(a.in.line), len(a.in.open))
		}
		_ = a.out.scan(data)
	})
}
