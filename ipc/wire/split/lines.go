package split

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// Lines cuts a byte stream into lines as Frames cuts it into frames: a line that lies whole in the bytes
// given to Next is returned in place. The zero value is ready and has the default limit.
type Lines struct {
	// Max is the most bytes of a line without its end, 0 = DefaultMaxFrameBytes.
	Max int

	buf  []byte // the received part of a line; nil between lines
	done bool   // buf holds a line that the last Next returned
}

// Next returns the next line without its "\n" or "\r\n", and the rest of in. A nil line without an error means that all
// of in was taken; an empty line is not nil. The line is valid until the next call. The FrameError of a line that is
// too long leaves the stream inside that line: the connection can only be closed.
func (s *Lines) Next(in []byte) (line, rest []byte, err error) {
	if s.done {
		s.buf, s.done = nil, false
	}
	limit := s.Max
	if limit == 0 {
		limit = wire.DefaultMaxFrameBytes
	}
	i := bytes.IndexByte(in, '\n')
	if n := len(s.buf) + len(in); i < 0 && n <= limit+1 { // the +1 may be a '\r'
		s.buf = append(s.buf, in...)
		return nil, nil, nil
	}
	end := i
	if i < 0 {
		end = len(in)
	}
	if s.buf == nil {
		line = in[:end:end]
	} else {
		s.buf, s.done = append(s.buf, in[:min(end, limit+2-len(s.buf))]...), true
		line = s.buf
	}
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) > limit {
		return nil, in, frameErrorf(wire.PromptTooLarge, "a line of more than %d bytes, which is --max-prompt-bytes",
			limit)
	}
	return line, in[i+1:], nil
}

// End returns the line that the peer left without an end when it sent its last byte, nil if there is none.
func (s *Lines) End() (line []byte) {
	if s.done || len(s.buf) == 0 {
		return nil
	}
	s.done = true
	return bytes.TrimSuffix(s.buf, []byte{'\r'})
}

// Partial reports whether a line has begun and not ended.
func (s *Lines) Partial() bool { return !s.done && len(s.buf) > 0 }

// Buffered returns the bytes of memory that the splitter holds.
func (s *Lines) Buffered() int { return cap(s.buf) }

// LineKind is the type of a line in the newline protocol.
type LineKind uint8

const (
	LineEmpty   LineKind = iota // nothing: skip it
	LinePrompt                  // the line is a prompt
	LineMetrics                 // "metrics" or "/metrics": one line of JSON, then close
)

// ParseLine returns the type of a line. A RequestError says why a prompt cannot be served.
func ParseLine(line []byte) (LineKind, error) {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return LineEmpty, nil
	case string(line) == "metrics", string(line) == "/metrics":
		return LineMetrics, nil
	case bytes.IndexByte(line, 0) >= 0:
		return 0, &wire.RequestError{Code: wire.BadRequest,
			Message: fmt.Sprintf("the line holds a NUL byte, at byte %d", bytes.IndexByte(line, 0))}
	case !utf8.Valid(line):
		return 0, &wire.RequestError{Code: wire.BadRequest,
			Message: fmt.Sprintf("the line is not valid UTF-8, from byte %d on", jsontext.InvalidUTF8(line))}
	}
	return LinePrompt, nil
}
