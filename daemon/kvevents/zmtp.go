package kvevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ZMTP 3.0 (rfc.zeromq.org/spec/23) with the NULL mechanism, as far as a PUB and a ROUTER socket need it.

const (
	greetingBytes = 64
	maxFrameIn    = 4 << 10 // of a peer: it sends subscriptions and sequence numbers
	maxFramesIn   = 8       // of one message
)

// Flags of a frame.
const (
	flagMore = 1 << iota
	flagLong
	flagCommand
)

var errZMTP = errors.New("the peer does not speak ZMTP 3 with the NULL mechanism")

// greeting returns the first bytes of either side: a signature, version 3.0, the mechanism, and that this side is no
// server of one.
func greeting() []byte {
	b := make([]byte, greetingBytes)
	b[0], b[9], b[10] = 0xff, 0x7f, 3
	copy(b[12:], "NULL")
	return b
}

// checkGreeting returns an error if a peer's greeting is not compatible.
func checkGreeting(b []byte) error {
	if len(b) != greetingBytes || b[0] != 0xff || b[9] != 0x7f || b[10] < 3 ||
		!bytes.Equal(bytes.TrimRight(b[12:32], "\x00"), []byte("NULL")) {
		return errZMTP
	}
	return nil
}

// appendFrame appends a frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = binary.BigEndian.AppendUint64(append(dst, flags|flagLong), uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// appendMultipart appends a message of several frames.
func appendMultipart(dst []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, f)
	}
	return dst
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(dst, flagCommand, append(body, data...))
}

// ready returns the READY command of a socket of some type.
func ready(socketType string) []byte {
	data := append([]byte{byte(len("Socket-Type"))}, "Socket-Type"...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(socketType)))
	return appendCommand(nil, "READY", append(data, socketType...))
}

// frame is a frame that was read.
type frame struct {
	flags byte
	body  []byte
}

// readFrame reads a frame of at most maxFrameIn bytes.
func readFrame(r io.Reader) (f frame, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return f, err
	}
	f.flags = head[0]
	n := uint64(head[1])
	if f.flags&flagLong != 0 {
		if _, err := io.ReadFull(r, head[2:9]); err != nil {
			return f, err
		}
		n = binary.BigEndian.Uint64(head[1:9])
	}
	if f.flags&^(flagMore|flagLong|flagCommand) != 0 || n > maxFrameIn {
		return f, fmt.Errorf("%w: a frame has flags %#x and %d bytes, at most %d are read", errZMTP, f.flags, n,
			maxFrameIn)
	}
	f.body = make([]byte, n)
	_, err = io.ReadFull(r, f.body)
	return f, err
}

// command splits the body of a command frame into name and data.
func command(body []byte) (name string, data []byte) {
	if len(body) == 0 || int(body[0]) >= len(body) {
		return "", nil
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:]
}

// readMessage reads the frames of a message. Commands are given to on, which may end the connection.
func readMessage(r io.Reader, on func(name string, data []byte) error) (frames [][]byte, err error) {
	for {
		f, err := readFrame(r)
		if err != nil {
			return nil, err
		}
		if f.flags&flagCommand != 0 {
			if name, data := command(f.body); on != nil {
				if err := on(name, data); err != nil {
					return nil, err
				}
			}
			continue
		}
		if frames = append(frames, f.body); len(frames) > maxFramesIn {
			return nil, fmt.Errorf("%w: a message has more than %d frames", errZMTP, maxFramesIn)
		}
		if f.flags&flagMore == 0 {
			return frames, nil
		}
	}
}

// subscription is a change of what a subscriber wants: messages whose topic begins with some bytes.
type subscription struct {
	cancel bool
	topic  string
}

// subscriptionOf reads a subscription from a message (ZMTP 3.0) or a command (3.1).
func subscriptionOf(name string, data []byte) (s subscription, ok bool) {
	switch {
	case name == "SUBSCRIBE" || name == "CANCEL":
		return subscription{name == "CANCEL", string(data)}, true
	case name == "" && len(data) > 0 && data[0] <= 1:
		return subscription{data[0] == 0, string(data[1:])}, true
	}
	return s, false
}
