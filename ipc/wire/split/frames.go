package split

import (
	"encoding/binary"
	"fmt"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

const headerBytes = 4 // of a frame: the length of its payload

// bufferStep is the initial size of a splitter's buffer for a partial frame, in bytes. The buffer doubles as bytes
// arrive, so a peer pays for memory with bytes sent, never with a length announced.
const bufferStep = 512

// Frames cuts a byte stream, delivered in pieces of any size, into frames. One belongs to each connection, while
// the read buffer may be shared by all of them: a frame that lies whole in the bytes given to Next is returned in
// place, and a connection between two frames holds no memory. The zero value is ready and has the default limit.
type Frames struct {
	// Max is the most payload bytes of a frame, 0 = DefaultMaxFrameBytes. Not to be changed inside a frame.
	Max int

	// buf holds the received part of an incomplete frame, header included; nil between frames.
	// Invariant: len(buf) < headerBytes, or len(buf) <= headerBytes + announced length <= headerBytes + Max.
	buf  []byte
	done bool // buf holds a whole frame that the last Next returned
}

// Next takes the bytes that arrived (or the rest of them) and returns the next frame's payload and the rest of in. A
// nil payload without an error means that all of in was taken and more bytes are needed. The payload is valid until the
// next call. After a FrameError the stream is lost: the connection can only be closed.
//
//	for in := buf[:n]; ; {
//		payload, rest, err := s.Next(in)
//		if err != nil || payload == nil {
//			return err
//		}
//		in = rest
//		…
//	}
func (s *Frames) Next(in []byte) (payload, rest []byte, err error) {
	if s.done {
		s.buf, s.done = nil, false
	}
	if s.buf == nil {
		if len(in) < headerBytes {
			s.keep(in, headerBytes)
			return nil, nil, nil
		}
		n, err := s.length(in)
		if err != nil {
			return nil, in, err
		}
		if len(in)-headerBytes >= n {
			end := headerBytes + n
			return in[headerBytes:end:end], in[end:], nil
		}
		s.keep(in, headerBytes+n)
		return nil, nil, nil
	}
	if missing := headerBytes - len(s.buf); missing > 0 {
		k := min(missing, len(in))
		s.keep(in[:k], headerBytes)
		in = in[k:]
		if k < missing {
			return nil, nil, nil
		}
	}
	n, err := s.length(s.buf)
	if err != nil {
		return nil, in, err
	}
	total := headerBytes + n
	k := min(total-len(s.buf), len(in))
	s.keep(in[:k], total)
	in = in[k:]
	if len(s.buf) < total {
		return nil, nil, nil
	}
	s.done = true
	return s.buf[headerBytes:total:total], in, nil
}

// keep appends b to buf, which will never hold more than total bytes.
func (s *Frames) keep(b []byte, total int) {
	if len(b) == 0 {
		return
	}
	if need := len(s.buf) + len(b); need > cap(s.buf) {
		grown := make([]byte, len(s.buf), max(need, min(max(2*cap(s.buf), bufferStep), total)))
		copy(grown, s.buf)
		s.buf = grown
	}
	s.buf = append(s.buf, b...)
}

func (s *Frames) length(header []byte) (int, error) {
	limit := s.Max
	if limit == 0 {
		limit = wire.DefaultMaxFrameBytes
	}
	n := binary.LittleEndian.Uint32(header)
	switch {
	case n == 0:
		return 0, frameErrorf(wire.InvalidJSON, "a frame of 0 bytes; a frame holds one JSON object")
	case uint64(n) > uint64(limit):
		return 0, frameErrorf(wire.FrameTooLarge, "a frame of %d bytes; --max-frame-bytes is %d", n, limit)
	}
	return int(n), nil
}

// Missing returns the least number of bytes that the frame in progress still needs: within the header, the rest of the
// header; after it, the rest of the frame. It is 0 between frames.
func (s *Frames) Missing() int {
	switch {
	case s.buf == nil || s.done:
		return 0
	case len(s.buf) < headerBytes:
		return headerBytes - len(s.buf)
	}
	return headerBytes + int(binary.LittleEndian.Uint32(s.buf)) - len(s.buf)
}

// Buffered returns the bytes of memory that the splitter holds.
func (s *Frames) Buffered() int { return cap(s.buf) }

// End is called when the peer has sent its last byte: an error says that it ended inside a frame.
func (s *Frames) End() error {
	if missing := s.Missing(); missing > 0 {
		return frameErrorf(wire.InvalidJSON,
			"the connection ended inside a frame: %d bytes received, at least %d missing", len(s.buf), missing)
	}
	return nil
}

// FrameError says that the byte stream can no longer be cut into frames (or lines): send it as an error event
// without id, then close the connection.
type FrameError struct {
	Code    wire.Code
	Message string
}

func (e *FrameError) Error() string { return string(e.Code) + ": " + e.Message }

// Event returns the answer to send.
func (e *FrameError) Event() wire.Error { return wire.Error{Code: e.Code, Message: e.Message} }

func frameErrorf(code wire.Code, format string, args ...any) *FrameError {
	return &FrameError{Code: code, Message: fmt.Sprintf(format, args...)}
}
