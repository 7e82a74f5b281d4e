package toolbox

import (
	"context"
	"errors"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// Results are the results of questions to a server, by which they are counted: ok; failed, the tool itself says so;
// error, the server or its process; timeout; and canceled, the client has left.
var Results = [...]string{"ok", "failed", "error", "timeout", "canceled"}

const (
	resultOK = iota
	resultFailed
	resultError
	resultTimeout
	resultCanceled
)

// Counts are the numbers of a server's calls, refusals, bytes and starts since the daemon started.
type Counts struct {
	Calls, Lists [len(Results)]uint64
	Refused      [len(setup.Refusals)]uint64 // calls and requests that did not reach the server
	CallTime     time.Duration               // from question to answer, with the wait for a place and for a start
	Sent         uint64                      // bytes of the arguments of calls
	Received     uint64                      // and of their results
	Starts       uint64
	Running      bool
	Inside       int // questions that wait or are asked
}

// Counts returns the counts of a server of Names.
func (b *Box) Counts(name string) Counts {
	s := b.servers[name]
	s.count.Lock() // not mu, which is held while a bridge starts
	defer s.count.Unlock()
	c := s.counts
	c.Running = s.started != nil && !s.started.gone()
	return c
}

// Refused counts a call, or a request for the server's tools, that did not reach the server.
func (b *Box) Refused(name string, why setup.Refusal) {
	if s := b.servers[name]; s != nil {
		s.count.Lock()
		s.counts.Refused[why]++
		s.count.Unlock()
	}
}

// enter counts a question that begins.
func (s *server) enter() {
	s.count.Lock()
	s.counts.Inside++
	s.count.Unlock()
}

// start counts a bridge that has started.
func (s *server) start(br *bridge) {
	s.count.Lock()
	s.started = br
	s.counts.Starts++
	s.count.Unlock()
}

// leave counts a question that has ended with a or err.
func (s *server) leave(ctx context.Context, q *setup.Question, began time.Time, a *setup.Answer, err error) {
	result := resultOK
	switch {
	case errors.Is(err, errTooSlow):
		result = resultTimeout
	case err != nil && ctx.Err() != nil:
		result = resultCanceled
	case err != nil:
		result = resultError
	case a.Result != nil && a.Result.Failed:
		result = resultFailed
	}
	s.count.Lock()
	defer s.count.Unlock()
	s.counts.Inside--
	if q.Kind == setup.List {
		s.counts.Lists[result]++
		return
	}
	s.counts.Calls[result]++
	s.counts.CallTime += time.Since(began)
	s.counts.Sent += uint64(len(q.Arguments))
	if a != nil && a.Result != nil {
		s.counts.Received += uint64(len(a.Result.Text))
	}
}
