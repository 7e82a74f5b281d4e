package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of a message between an engine process and its front. The front does not trust it: an engine process parses
// files of strangers.
const (
	maxEvents      = 4096
	maxEventBlocks = 1 << 16
)

// Flags of an event.
const (
	flagRemoved = 1 << iota
	flagAll     // the process reports everything again: what it has said before does not hold
)

// Message has changes of one model's cache, from an engine process to its front.
type Message struct {
	// Again: the events report everything that the process holds, and earlier ones do not hold any more.
	Again  bool
	Events []Event
}

var errMessage = errors.New("a message about KV blocks is malformed")

// AppendMessage appends m to dst: little-endian integers, lists behind their length.
func AppendMessage(dst []byte, m *Message) []byte {
	le := binary.LittleEndian
	flags := byte(0)
	if m.Again {
		flags = flagAll
	}
	dst = le.AppendUint32(append(dst, flags), uint32(len(m.Events)))
	for i := range m.Events {
		e := &m.Events[i]
		flags = 0
		if e.Removed {
			flags = flagRemoved
		}
		dst = le.AppendUint32(append(dst, flags, byte(e.Tier)), uint32(len(e.Hashes)))
		for _, h := range e.Hashes {
			dst = le.AppendUint64(dst, h)
		}
		if e.Removed {
			continue
		}
		dst = le.AppendUint64(dst, e.NS)
		dst = le.AppendUint32(dst, uint32(e.First))
		dst = le.AppendUint64(dst, e.Parent)
		for _, t := range e.Tokens {
			dst = le.AppendUint32(dst, uint32(t))
		}
	}
	return dst
}

// reader takes integers from the front of a message. After a failure it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad = r.bad || n < 0 || n > len(r.b); r.bad {
		return make([]byte, 8)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// ParseMessage reads what AppendMessage has written. It allocates no more than b is long.
func ParseMessage(b []byte) (m Message, err error) {
	r := &reader{b: b}
	m.Again = r.u8()&flagAll != 0
	n := r.u32()
	if n > maxEvents {
		return m, fmt.Errorf("%w: it has %d events, at most %d are allowed", errMessage, n, maxEvents)
	}
	for range n {
		e := Event{Removed: r.u8()&flagRemoved != 0, Tier: Tier(r.u8())}
		blocks := int(r.u32())
		if blocks == 0 || blocks > maxEventBlocks || e.Tier >= NumTiers || 8*blocks > len(r.b) {
			return m, fmt.Errorf("%w: an event of tier %d has %d blocks, 1 … %d are allowed", errMessage, e.Tier,
				blocks, maxEventBlocks)
		}
		e.Hashes = make([]uint64, blocks)
		for i := range e.Hashes {
			e.Hashes[i] = r.u64()
		}
		if !e.Removed {
			e.NS, e.First, e.Parent = r.u64(), int(r.u32()), r.u64()
			if 4*BlockTokens*blocks > len(r.b) || e.First > 1<<24 {
				return m, fmt.Errorf("%w: tokens are missing", errMessage)
			}
			e.Tokens = make([]int32, BlockTokens*blocks)
			for i := range e.Tokens {
				e.Tokens[i] = int32(r.u32())
			}
		}
		m.Events = append(m.Events, e)
	}
	if r.bad || len(r.b) > 0 {
		return m, fmt.Errorf("%w: it has %d bytes behind its end, or ends early", errMessage, len(r.b))
	}
	return m, nil
}
