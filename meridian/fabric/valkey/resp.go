package valkey

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// The client library trusts the server: it allocates a declared length before the bytes arrive, panics on a negative
// one, parses nesting by recursion, reads lines of any length, and panics on an unexpected reply on its own goroutine,
// where the panic cannot be recovered. Therefore each byte passes a checker that knows the sent commands (ADR-0008).
// The connection to a server that exceeds the limits is closed.

// Limits on a reply. Real replies are far below: a piece has at most maxChunk bytes, and the description of a cluster
// of 500 shards about 20,000 elements and 500 KiB.
const (
	maxLine     = 16 << 10 // bytes of a line, its CRLF included
	maxNumber   = 32       // bytes of a line that holds a number
	maxText     = 4 << 20  // bytes of lines and strings in the replies to all pending commands except GET
	maxElements = 64 << 10 // elements of aggregates, likewise
	maxDepth    = 8
	maxAwaited  = 64 << 10 // pending commands: a window has 2,048
)

// errProtocol: the server sent an unexpected or too large reply.
var errProtocol = fmt.Errorf("%w: the server breaks the protocol", fault.ErrUnavailable)

// dialogue follows both directions of a connection.
type dialogue struct {
	mu      sync.Mutex
	awaited []bool // pending commands whose reply has not begun, oldest first: true for GET

	out respScanner // owned by the goroutine that writes
	in  respScanner // owned by the goroutine that reads

	// Sums over the replies since no command was pending; used by the reader.
	get            bool
	text, elements int64
}

func newDialogue() *dialogue {
	d := &dialogue{}
	d.out.limits, d.in.limits = (*commands)(d), (*answers)(d)
	return d
}

// commands follows the client's commands, which are arrays of bulk strings. It limits only their number.
type commands dialogue

func (c *commands) begin() error                 { return nil }
func (c *commands) line(byte, []byte) error      { return nil }
func (c *commands) aggregate(byte, int64) error  { return nil }
func (c *commands) bulk(byte, int64, bool) error { return nil }
func (c *commands) first(name []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.awaited) >= maxAwaited {
		return fmt.Errorf("%w: %d commands are unanswered", errProtocol, maxAwaited)
	}
	c.awaited = append(c.awaited, bytes.EqualFold(name, []byte("GET")))
	return nil
}

// answers checks the server's replies against the limits.
type answers dialogue

func (a *answers) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.awaited) == 0 {
		return fmt.Errorf("%w: an answer that was not asked for", errProtocol)
	}
	a.get = a.awaited[0]
	a.awaited = a.awaited[1:]
	if len(a.awaited) == 0 {
		a.awaited = nil
		// Start new sums: earlier bytes have been passed on.
		a.text, a.elements = 0, 0
	}
	return nil
}

func (a *answers) first([]byte) error { return nil }

func (a *answers) line(kind byte, line []byte) error {
	a.text += int64(len(line))
	switch {
	case a.text > maxText:
		return fmt.Errorf("%w: more than %d bytes of text", errProtocol, maxText)
	case kind == ':' || kind == '_' || kind == '#' || kind == ',':
		return checkScalar(kind, line)
	}
	return nil
}

func checkScalar(kind byte, line []byte) error {
	ok := false
	switch kind {
	case ':':
		_, err := strconv.ParseInt(string(line), 10, 64)
		ok = err == nil
	case ',':
		_, err := strconv.ParseFloat(string(line), 64)
		ok = err == nil || errors.Is(err, strconv.ErrRange)
	case '#':
		ok = string(line) == "t" || string(line) == "f"
	case '_':
		ok = len(line) == 0
	}
	if !ok {
		return fmt.Errorf("%w: %q after %q", errProtocol, line, kind)
	}
	return nil
}

func (a *answers) bulk(kind byte, n int64, top bool) error {
	if a.get && top && kind == '$' {
		if n > maxChunk {
			return fmt.Errorf("%w: a piece of %d bytes, the limit is %d", errProtocol, n, maxChunk)
		}
		return nil
	}
	if n > maxText || a.text+n > maxText {
		return fmt.Errorf("%w: a string of %d bytes, the limit is %d for all that are under way", errProtocol, n,
			maxText)
	}
	a.text += n
	return nil
}

func (a *answers) aggregate(kind byte, n int64) error {
	if kind == '>' || kind == '|' {
		return fmt.Errorf("%w: type %q, which was not asked for", errProtocol, kind)
	}
	if kind == '%' {
		n *= 2 // n is at most MaxInt32
	}
	if a.elements += n; a.elements > maxElements {
		return fmt.Errorf("%w: more than %d elements", errProtocol, maxElements)
	}
	return nil
}

// limits receives each part of a message when its length is known, before its bytes arrive.
type limits interface {
	begin() error                                // a message at the top level begins
	first(text []byte) error                     // the first string of a top-level array, cut after 8 bytes
	line(kind byte, line []byte) error           // a line without its CRLF
	bulk(kind byte, bytes int64, top bool) error // a string of that length follows
	aggregate(kind byte, elements int64) error   // this number of elements (for a map: pairs) follows
}

// respScanner finds where messages of RESP2 and RESP3 begin and end, in pieces of any size, with bounded memory. It
// refuses the streamed types of RESP3 ("?" as a length), which no server sends.
type respScanner struct {
	limits limits
	err    error // sticks

	line    []byte  // of the current line, including its kind
	skip    int64   // bytes of a bulk string, including CRLF, that have not arrived
	tail    [2]byte // of them: the part of the CRLF that has arrived
	open    []int64 // missing elements of each open aggregate
	naming  bool    // the next string is the first of a top-level array
	name    []byte
	started bool // the current message has begun
}

// scan takes the next bytes. After an error pass on nothing more.
func (s *respScanner) scan(b []byte) error {
	for len(b) > 0 && s.err == nil {
		if s.skip > 0 {
			b = s.payload(b)
			continue
		}
		if len(s.line) == 0 && !s.started {
			s.started = true
			if s.err = s.limits.begin(); s.err != nil {
				break
			}
		}
		i := bytes.IndexByte(b, '\n')
		end := i + 1
		if i < 0 {
			end = len(b)
		}
		if len(s.line)+end > maxLine {
			s.err = fmt.Errorf("%w: a line of more than %d bytes", errProtocol, maxLine)
			break
		}
		s.line = append(s.line, b[:end]...)
		b = b[end:]
		if s.err = s.checkKind(); s.err == nil && i >= 0 {
			s.err = s.whole()
			s.line = s.line[:0]
		}
	}
	return s.err
}

// payload takes bytes of a bulk string.
func (s *respScanner) payload(b []byte) []byte {
	n := min(s.skip, int64(len(b)))
	if s.naming && len(s.name) < 8 && s.skip > 2 {
		s.name = append(s.name, b[:min(n, s.skip-2, int64(8-len(s.name)))]...)
	}
	for k := max(s.skip-n, 0); k < min(s.skip, 2); k++ { // the bytes of the CRLF
		s.tail[1-k] = b[s.skip-1-k]
	}
	if s.skip -= n; s.skip == 0 {
		switch {
		case s.tail != [2]byte{'\r', '\n'}:
			s.err = fmt.Errorf("%w: no CRLF behind a string", errProtocol)
		case s.naming:
			s.naming = false
			if s.err = s.limits.first(s.name); s.err == nil {
				s.element()
			}
		default:
			s.element()
		}
	}
	return b[n:]
}

const (
	lineKinds      = "+-:_#,"
	bulkKinds      = "$!="
	aggregateKinds = "*~%>|"
)

// checkKind checks an incomplete line: it refuses an unknown kind and an overlong number at once.
func (s *respScanner) checkKind() error {
	kind := s.line[0]
	switch {
	case kind == '+' || kind == '-':
		return nil
	case bytes.IndexByte([]byte(lineKinds+bulkKinds+aggregateKinds), kind) < 0:
		return fmt.Errorf("%w: type %q", errProtocol, kind)
	case len(s.line) > maxNumber:
		return fmt.Errorf("%w: a number of more than %d bytes", errProtocol, maxNumber)
	}
	return nil
}

// whole takes a complete line.
func (s *respScanner) whole() error {
	if len(s.line) < 3 || s.line[len(s.line)-2] != '\r' {
		return fmt.Errorf("%w: a line without CRLF", errProtocol)
	}
	kind, text := s.line[0], s.line[1:len(s.line)-2]
	if bytes.IndexByte([]byte(lineKinds), kind) >= 0 {
		if err := s.limits.line(kind, text); err != nil {
			return err
		}
		s.element()
		return nil
	}
	n, err := length(text)
	if err != nil {
		return err
	}
	if n == -1 { // the null of RESP2
		if kind != '$' && kind != '*' {
			return fmt.Errorf("%w: a length of -1 after %q", errProtocol, kind)
		}
		s.element()
		return nil
	}
	if bytes.IndexByte([]byte(bulkKinds), kind) >= 0 {
		if err := s.limits.bulk(kind, n, len(s.open) == 0); err != nil {
			return err
		}
		s.skip = n + 2
		return nil
	}
	if len(s.open) >= maxDepth {
		return fmt.Errorf("%w: aggregates in aggregates, more than %d deep", errProtocol, maxDepth)
	}
	if err := s.limits.aggregate(kind, n); err != nil {
		return err
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	if n == 0 {
		s.element()
		return nil
	}
	if len(s.open) == 0 {
		s.naming, s.name = kind == '*', s.name[:0]
	}
	s.open = append(s.open, n)
	return nil
}

// length parses a length and refuses what the library, which accepts any digits, would misread.
func length(text []byte) (int64, error) {
	if string(text) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: the length %q", errProtocol, text)
	}
	return int64(n), nil
}

// element records the end of a value, and of the aggregates whose last value it was.
func (s *respScanner) element() {
	for len(s.open) > 0 {
		last := len(s.open) - 1
		if s.open[last]--; s.open[last] > 0 {
			return
		}
		s.open = s.open[:last]
	}
	s.started = false
}
