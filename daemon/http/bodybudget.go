package httpd

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limits of the memory of partly received HTTP bodies, in bytes. Each connection may send a body as slowly as
// config.Tuning.BodyTimeout allows.
const (
	maxBodies      = 256 << 20 // all users
	maxOwnerBodies = 64 << 20  // one user or API-key owner
)

// bodyBudget counts the bytes of partly received bodies. Safe from any goroutine; the zero value is ready.
type bodyBudget struct {
	mu  sync.Mutex
	all int
	by  map[uint32]int
}

var errBodyBudget = errors.New("too many unfinished bodies")

func bodyBudgetError() *wire.Error {
	return &wire.Error{Code: wire.QueueLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
		"unfinished HTTP bodies take %d MiB for this user, or %d MiB for all users; send them one after another",
		maxOwnerBodies>>20, maxBodies>>20)}
}

// reserve adds n bytes to owner's share. It returns false, and adds nothing, if a limit would be exceeded.
func (b *bodyBudget) reserve(owner uint32, n int) bool {
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

// release returns n bytes of owner's share.
func (b *bodyBudget) release(owner uint32, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.by[owner] -= n; b.by[owner] <= 0 {
		delete(b.by, owner)
	}
}

// bodyReader reads a body within a budget.
type bodyReader struct {
	from     io.Reader
	budget   *bodyBudget
	owner    uint32
	reserved int // bytes reserved
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		if !r.budget.reserve(r.owner, n) {
			return 0, errBodyBudget
		}
		r.reserved += n
	}
	return n, err
}

// close releases the body's bytes.
func (r *bodyReader) close() { r.budget.release(r.owner, r.reserved) }
