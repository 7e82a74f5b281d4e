package wireclient

import (
	"io"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// readBytes is the size of a Client's read buffer: some hundred token events.
const readBytes = 16 << 10

// inbox cuts what the socket delivers into frames.
type inbox struct {
	split split.Frames
	buf   []byte
	rest  []byte // the part of buf that is read and not yet cut
}

// next returns the next frame's payload, nil when more bytes are needed. It is valid until the next call of next or
// fill.
func (in *inbox) next() ([]byte, error) {
	if len(in.rest) == 0 {
		return nil, nil
	}
	payload, rest, err := in.split.Next(in.rest)
	in.rest = rest
	return payload, err
}

// fill reads once. It is called when next has taken everything.
func (in *inbox) fill(r io.Reader) error {
	if in.buf == nil {
		in.buf = make([]byte, readBytes)
		in.split.Max = wire.MaxEventBytes
	}
	n, err := r.Read(in.buf)
	in.rest = in.buf[:n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
