package daemon

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What the HTTP bodies that have come in part may hold together, in bytes: every connection may send one as slowly as
// --body-timeout allows.
const (
	maxBodies      = 256 << 20 // of all users
	maxOwnerBodies = 64 << 20  // of one user or owner of API keys
)

// bodyRoom counts the bytes of bodies that are being read. It is safe for concurrent use; the zero value is ready.
type bodyRoom struct {
	mu  sync.Mutex
	all int
	by  map[uint32]int
}

var errNoBodyRoom = errors.New("no room for the body")

func noBodyRoom() *wire.Error {
	return &wire.Error{Code: wire.QueueLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
		"bodies that have come in part hold %d MiB of this user's memory, or %d MiB of all users'; send them one after another",
		maxOwnerBodies>>20, maxBodies>>20)}
}

// take adds n bytes of owner's, and reports whether there was room.
func (b *bodyRoom) take(owner uint32, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+n > maxBodies || b.by[owner]+n > maxOwnerBodies {
		return false
	}
	if b.by == nil {
		b.by = map[uint32]int{}
	}
	b.all += n
	b.by[owner] += n
	return true
}

// give takes n bytes of owner's away.
func (b *bodyRoom) give(owner uint32, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.by[owner] -= n; b.by[owner] <= 0 {
		delete(b.by, owner)
	}
}

// bodyReader reads a body into the room.
type bodyReader struct {
	from  io.Reader
	room  *bodyRoom
	owner uint32
	held  int
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		if !r.room.take(r.owner, n) {
			return 0, errNoBodyRoom
		}
		r.held += n
	}
	return n, err
}

// close gives back what the body holds.
func (r *bodyReader) close() { r.room.give(r.owner, r.held) }
