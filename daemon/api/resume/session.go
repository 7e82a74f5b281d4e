package resume

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errLost is the error of a read from an offset whose bytes are gone.
var errLost = errors.New("the stream's bytes at this offset are no longer kept")

// session is a stream: the bytes of its answer, as they were sent, and those that read them.
type session struct {
	id    string
	owner uint32
	begun time.Time
	stop  context.CancelFunc // ends the answer with what it has: its last event follows

	mu      sync.Mutex
	tail    []byte        // the newest bytes, at most maxSessionBytes
	dropped int64         // bytes before tail
	ended   time.Time     // zero while the answer runs
	changed chan struct{} // closed with every change of the above, and replaced
}

func newSession(owner uint32, id string, now time.Time, stop context.CancelFunc) *session {
	return &session{id: id, owner: owner, begun: now, stop: stop, changed: make(chan struct{})}
}

// append adds bytes of the answer. Beyond maxSessionBytes the oldest go, an eighth of that at once.
func (s *session) append(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, b...)
	if len(s.tail) > maxSessionBytes {
		over := len(s.tail) - maxSessionBytes*7/8
		s.tail = s.tail[:copy(s.tail, s.tail[over:])]
		s.dropped += int64(over)
	}
	s.tell()
}

// end notes that the answer is complete.
func (s *session) end(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() {
		s.ended = now
		s.tell()
	}
}

// tell wakes the readers. Caller holds mu.
func (s *session) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// read returns a copy of the bytes from an offset on. It waits for one at least; none means that the answer has ended,
// or that ctx has. The error is errLost.
func (s *session) read(ctx context.Context, from int64) ([]byte, error) {
	for {
		s.mu.Lock()
		at, changed, ended := from-s.dropped, s.changed, !s.ended.IsZero()
		if at < 0 {
			s.mu.Unlock()
			return nil, errLost
		}
		if at < int64(len(s.tail)) {
			b := append([]byte(nil), s.tail[at:]...)
			s.mu.Unlock()
			return b, nil
		}
		s.mu.Unlock()
		if ended {
			return nil, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// state returns the number of bytes that the answer had up to now, the first of them that is kept, and the time of its
// end, zero while it runs.
func (s *session) state() (total, kept int64, ended time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped + int64(len(s.tail)), s.dropped, s.ended
}
