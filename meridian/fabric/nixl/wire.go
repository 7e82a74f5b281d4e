package nixl

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// A daemon asks its agent over the Unix socket, one operation a connection: a Request, after StatusSend the sealed
// value, and an answer of AnswerBytes with what follows it.
//
//	request   op 1, name 32, size 8 (little-endian), header of the sealed value 44
//	answer    status 1, size 8: of the value that follows StatusOK of OpGet, of the text that follows StatusFailed

// Op is a request's operation.
type Op byte

const (
	OpPush   Op = 'P' // StatusKnown, or StatusSend and, after the value, StatusOK
	OpGet    Op = 'G'
	OpRenew  Op = 'R'
	OpDelete Op = 'D' // on every peer
)

// Status is the state of an operation after a request.
type Status byte

const (
	StatusOK       Status = iota
	StatusKnown           // the agent has this value
	StatusSend            // the agent has room: the value is to follow
	StatusNotFound        // no agent has it
	StatusTooLarge        //
	StatusFailed          // a text follows
)

const (
	// RequestBytes is the length of a request.
	RequestBytes = 1 + 32 + 8 + seal.HeaderBytes
	// AnswerBytes is the length of an answer without what follows it.
	AnswerBytes = 1 + 8
	maxText     = 1 << 10
)

// Request is one operation.
type Request struct {
	Op     Op
	Name   [32]byte
	Size   int64 // of the sealed value that is pushed
	Header [seal.HeaderBytes]byte
}

// Append appends the request's bytes.
func (r *Request) Append(b []byte) []byte {
	b = append(append(b, byte(r.Op)), r.Name[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Size))
	return append(b, r.Header[:]...)
}

// ReadRequest reads one.
func ReadRequest(r io.Reader) (q Request, err error) {
	var b [RequestBytes]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return q, err
	}
	q.Op = Op(b[0])
	copy(q.Name[:], b[1:])
	q.Size = int64(binary.LittleEndian.Uint64(b[33:]))
	copy(q.Header[:], b[41:])
	return q, nil
}

// AppendAnswer appends the head of an answer; size is the number of bytes that follow.
func AppendAnswer(b []byte, s Status, size int64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, byte(s)), uint64(size))
}

// readAnswer reads an answer and converts a failure to an error of package fabric.
func readAnswer(r io.Reader) (s Status, size int64, err error) {
	var b [AnswerBytes]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return 0, 0, fmt.Errorf("%w: the agent ended the connection: %w", fault.ErrUnavailable, err)
	}
	s, size = Status(b[0]), int64(binary.LittleEndian.Uint64(b[1:]))
	switch s {
	case StatusOK, StatusKnown, StatusSend:
		return s, size, nil
	case StatusNotFound:
		return s, 0, fault.ErrNotFound
	case StatusTooLarge:
		return s, 0, fault.ErrTooLarge
	case StatusFailed:
		if size < 0 || size > maxText {
			return s, 0, fmt.Errorf("%w: a text of %d bytes", fault.ErrUnavailable, size)
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(r, text); err != nil {
			return s, 0, fmt.Errorf("%w: the agent ended the connection: %w", fault.ErrUnavailable, err)
		}
		return s, 0, fmt.Errorf("%w: %s", fault.ErrUnavailable, text)
	}
	return s, 0, fmt.Errorf("%w: the agent answers status %d", fault.ErrUnavailable, s)
}
