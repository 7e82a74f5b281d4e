package split

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// split feeds stream to a splitter in pieces whose sizes are taken from cuts, in turn, and returns copies of the
// payloads and the first error. It checks what holds after every call.
func split(t testing.TB, max int, stream []byte, cuts []byte) (payloads []string, err error) {
	t.Helper()
	s := Frames{Max: max}
	shared := make([]byte, len(stream)) // the read buffer all connections share: overwritten by each read
	received := 0
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if len(cuts) > 0 {
			n = min(n, int(cuts[i%len(cuts)])+1)
		}
		for j := range shared {
			shared[j] = 0xEE
		}
		in := shared[:copy(shared, stream[:n])]
		stream, received = stream[n:], received+n
		for {
			payload, rest, err := s.Next(in)
			if held, most := s.Buffered(), max+headerBytes; held > most {
				t.Fatalf("holds %d bytes, limit %d", held, most)
			}
			if held := s.Buffered(); held > 2*received+bufferStep {
				t.Fatalf("holds %d bytes after %d received", held, received)
			}
			if err != nil {
				var fe *FrameError
				if !errors.As(err, &fe) || payload != nil {
					t.Fatalf("payload %q with %T %v", payload, err, err)
				}
				return payloads, err
			}
			if payload == nil {
				if len(rest) != 0 {
					t.Fatalf("%d bytes left and no frame", len(rest))
				}
				break
			}
			if len(payload) == 0 || len(payload) > max {
				t.Fatalf("a payload of %d bytes, limit %d", len(payload), max)
			}
			payloads = append(payloads, string(payload))
			in = rest
		}
	}
	if (s.Missing() > 0) != (s.Buffered() > 0) || (s.Missing() > 0) != (s.End() != nil) {
		t.Fatalf("Missing %d, Buffered %d, End %v", s.Missing(), s.Buffered(), s.End())
	}
	return payloads, s.End()
}

func TestSplitterCuts(t *testing.T) {
	var stream []byte
	want := []string{"{}", strings.Repeat("x", 3000), "y", strings.Repeat("z", 5)}
	for _, p := range want {
		stream = wire.AppendFrame(stream, []byte(p))
	}
	for _, cuts := range [][]byte{nil, {0}, {1}, {2}, {3}, {4}, {255}, {0, 200, 3}, {6, 1}} {
		got, err := split(t, 3000, stream, cuts)
		if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("cuts %v: %d frames, %v", cuts, len(got), err)
		}
	}
}

func TestSplitterErrors(t *testing.T) {
	for _, c := range []struct {
		name, stream, want string
		frames             int
		code               wire.Code
	}{
		{"one byte too many", "\x02\x00\x00\x00{}\x0b\x00\x00\x00", "a frame of 11 bytes; --max-frame-bytes is 10", 1,
			wire.FrameTooLarge},
		{"text on a framed connection", "\x02\x00\x00\x00{}hello", "a frame of 1819043176 bytes", 1,
			wire.FrameTooLarge},
		{"highest length", "\xff\xff\xff\xff", "a frame of 4294967295 bytes", 0, wire.FrameTooLarge},
		{"empty frame", "\x02\x00\x00\x00{}\x00\x00\x00\x00", "a frame of 0 bytes", 1, wire.InvalidJSON},
		{"end inside a header", "\x02\x00", "ended inside a frame: 2 bytes received, at least 2 missing", 0,
			wire.InvalidJSON},
		{"end inside a payload", "\x09\x00\x00\x00{}", "ended inside a frame: 6 bytes received, at least 7 missing", 0,
			wire.InvalidJSON},
	} {
		for _, cuts := range [][]byte{nil, {0}, {2}} {
			got, err := split(t, 10, []byte(c.stream), cuts)
			var fe *FrameError
			if !errors.As(err, &fe) || fe.Code != c.code || !strings.Contains(fe.Message, c.want) ||
				len(got) != c.frames {
				t.Errorf("%s, cuts %v: %d frames, %v", c.name, cuts, len(got), err)
			}
		}
	}
}

// TestSplitterMemory: whole frames cost nothing, an announced length costs nothing, a finished frame is let go.
func TestSplitterMemory(t *testing.T) {
	var s Frames
	frame := wire.AppendFrame(nil, bytes.Repeat([]byte("x"), 1000))
	if n := testing.AllocsPerRun(100, func() {
		if p, rest, err := s.Next(frame); len(p) != 1000 || len(rest) != 0 || err != nil {
			t.Fatal("no frame")
		}
		if p, _, _ := s.Next(nil); p != nil {
			t.Fatal("a second frame")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a frame that lies whole in the read buffer", n)
	}
	announced := binary.LittleEndian.AppendUint32(nil, wire.DefaultMaxFrameBytes)
	if p, _, err := s.Next(announced); p != nil || err != nil || s.Buffered() > bufferStep ||
		s.Missing() != wire.DefaultMaxFrameBytes {
		t.Errorf("a peer that announced 1 MiB holds %d bytes (%d missing, %v)", s.Buffered(), s.Missing(), err)
	}
	if p, _, err := s.Next(make([]byte, wire.DefaultMaxFrameBytes)); len(p) != wire.DefaultMaxFrameBytes || err != nil {
		t.Fatalf("%d bytes, %v", len(p), err)
	}
	if p, _, _ := s.Next(nil); p != nil || s.Buffered() != 0 {
		t.Errorf("an idle connection holds %d bytes", s.Buffered())
	}
}

func TestAppendFrameInPlace(t *testing.T) {
	dst, start := wire.BeginFrame([]byte("before"))
	got := wire.EndFrame(append(dst, "{}"...), start)
	if want := wire.AppendFrame([]byte("before"), []byte("{}")); !bytes.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSniff(t *testing.T) {
	for _, c := range []struct {
		first  string
		noMore bool
		want   Protocol
	}{
		{"", false, Unknown}, {"", true, Unknown},
		{"h", false, Unknown}, {"hi\n", false, Unknown}, {"hi\n", true, Newline}, {"\n", true, Newline},
		{"GET", false, Unknown}, {"GET", true, Newline},
		{"\x05\x00", false, Framed}, {"\x05\x00\x00\x00", false, Framed}, {"\x05\x00\x00\x00{", false, Framed},
		{"\x00", false, Framed}, {"\xff\xff\xff", false, Unknown}, {"\xff\xff\xff\x00", false, Framed},
		{"\xff\xff\xff\x01", false, Newline},
		{"GET\x00", false, Framed}, {"hi \n", false, Newline}, {"hello", false, Newline},
		{"GET /health HTTP/1.1", false, HTTP}, {"POST", false, HTTP}, {"HEAD", false, HTTP}, {"PUT ", false, HTTP},
		{"DELE", false, HTTP},
		{"OPTI", false, HTTP}, {"PATC", false, HTTP}, {"CONN", false, HTTP}, {"TRAC", false, HTTP},
		{"PRI * HTTP/2.0", false, HTTP},
		{"get /health", false, Newline}, {"GETS", false, Newline}, {"{\"id", false, Newline},
	} {
		if got := Sniff([]byte(c.first), c.noMore); got != c.want {
			t.Errorf("Sniff(%q, %v) = %v, want %v", c.first, c.noMore, got, c.want)
		}
	}
}

// lines is split for the newline protocol.
func lines(t testing.TB, max int, stream []byte, cuts []byte) (got []string, err error) {
	t.Helper()
	s := Lines{Max: max}
	shared := make([]byte, len(stream))
	for i := 0; len(stream) > 0; i++ {
		n := len(stream)
		if len(cuts) > 0 {
			n = min(n, int(cuts[i%len(cuts)])+1)
		}
		for j := range shared {
			shared[j] = 0xEE
		}
		in := shared[:copy(shared, stream[:n])]
		stream = stream[n:]
		for {
			line, rest, err := s.Next(in)
			if err != nil {
				return got, err
			}
			if line == nil {
				break
			}
			if len(line) > max {
				t.Fatalf("a line of %d bytes, limit %d", len(line), max)
			}
			got = append(got, string(line))
			in = rest
		}
	}
	if line := s.End(); line != nil {
		got = append(got, string(line))
	}
	return got, nil
}

func TestLineSplitter(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   string // joined by |
		code   wire.Code
	}{
		{"one\ntwo\r\n\nlast", "one|two||last", ""},
		{"0123456789\n0123456789\r\n", "0123456789|0123456789", ""},
		{"a\n0123456789x\n", "a", wire.PromptTooLarge},
		{"a\n0123456789xyz and more that never ends", "a", wire.PromptTooLarge},
		{"0123456789\rx\n", "", wire.PromptTooLarge},
		{"a\rb\r\n", "a\rb", ""},
	} {
		for _, cuts := range [][]byte{nil, {0}, {1}, {10}, {11}} {
			got, err := lines(t, 10, []byte(c.stream), cuts)
			var fe *FrameError
			if strings.Join(got, "|") != c.want || (c.code != "") != errors.As(err, &fe) || fe != nil &&
				fe.Code != c.code {
				t.Errorf("%q, cuts %v: %q, %v", c.stream, cuts, got, err)
			}
		}
	}
}

func TestParseLine(t *testing.T) {
	for _, c := range []struct {
		line string
		want LineKind
		bad  string
	}{
		{"", LineEmpty, ""}, {" \t", LineEmpty, ""}, {"metrics", LineMetrics, ""}, {"/metrics", LineMetrics, ""},
		{"metrics please", LinePrompt, ""}, {"héllo", LinePrompt, ""},
		{"a\x00b", 0, "NUL byte, at byte 1"}, {"ab\xff", 0, "not valid UTF-8, from byte 2 on"},
	} {
		got, err := ParseLine([]byte(c.line))
		var re *wire.RequestError
		if got != c.want || errors.As(err, &re) != (c.bad != "") || re != nil &&
			(re.Code != wire.BadRequest || !strings.Contains(re.Message, c.bad)) {
			t.Errorf("%q: %v, %v", c.line, got, err)
		}
	}
}
