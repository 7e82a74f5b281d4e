package daemon

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The Server is the poller's ipc.Handler: these methods run on the poller goroutine and only look, count and hand
// over. Control questions are answered here at once, from atomics: they never wait for a decode step.

// Request takes a generation request in, or refuses it.
func (s *Server) Request(c *ipc.Conn, w *wire.Request) {
	s.take(&request{conn: c, wireID: w.ID, arrived: time.Now()}, w)
}

// Line is a prompt of the newline protocol: a user's message when the model can chat, raw text otherwise. The
// answer streams back as plain bytes. Which of the two is decided by intake, when the model is known.
func (s *Server) Line(c *ipc.Conn, prompt string) {
	w := wire.DefaultRequest()
	w.Stream = true
	w.Prompt = prompt
	s.take(&request{conn: c, lines: true, arrived: time.Now()}, &w)
}

// take registers r, so that a cancel finds it at any time from now on, and hands it to intake.
func (s *Server) take(r *request, w *wire.Request) {
	s.sessions.add(r)
	if e := s.refusal(); e != nil {
		s.refuse(r, e)
		return
	}
	r.Owner = r.conn.UID()
	if mine, users, ok := s.room.enter(r.Owner); !ok {
		s.metrics.Refusals.Inc(refusedShare)
		s.refuse(r, &wire.Error{Code: wire.QueueLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
			"%d requests are running or waiting (--max-queue plus --parallel), %d of them yours, and your share among %d users is %d; try again later",
			s.room.limit, mine, users, max(1, s.room.limit/users))})
		return
	}
	if e := s.room.put(r.Owner, job{r, w}); e != nil {
		s.room.leave(r.Owner)
		s.refuse(r, e)
		return
	}
	s.metrics.Prompts.Inc()
}

// refusedShare is the reason of requests_refused_total for what never reaches the scheduler, whose reasons are the others.
const refusedShare = "user_share"

// refusal is why no request can be taken now, nil if one can.
func (s *Server) refusal() *wire.Error {
	switch {
	case s.draining.Load():
		return shuttingDown()
	case s.cfg.WhileLoading == loadingRefuse && s.loop.Load() == nil:
		return s.stillLoading()
	}
	return nil
}

// refuse answers a request that never reaches the decode loop.
func (s *Server) refuse(r *request, e *wire.Error) {
	s.metrics.Rejected(string(e.Code))
	e.ID = r.wireID
	s.log.Debug("refused", "session", r.conn.ID(), "request", r.wireID, "code", e.Code, "message", e.Message)
	if r.lines {
		r.conn.Reply(wire.AppendErrorLine(nil, e))
	} else {
		r.conn.Reply(wire.AppendError(nil, e))
	}
	s.sessions.remove(r)
}

// Cancel ends a request at the client's wish, within one step: also in the middle of its prefill.
func (s *Server) Cancel(c *ipc.Conn, id string) {
	if r := s.sessions.find(c, id); r != nil {
		s.cancel(r)
	}
}

// Closed cancels what a client that went away has in flight.
func (s *Server) Closed(c *ipc.Conn, cause ipc.Cause) {
	for _, r := range s.sessions.of(c) {
		s.cancel(r)
	}
	s.Writable(c) // what waited for room has nobody to go to any more
	s.log.Debug("session ended", "session", c.ID(), "cause", cause.String())
}

// abortFrom is how many tokens of a prompt the running decode must hold for a cancel to break it off, where others are in
// the batch: aborting costs them this step's work. A request that is alone in its batch is always broken off, because
// on a slow machine even a few tokens take long.
const abortFrom = 64

func (s *Server) cancel(r *request) {
	if r.cancelled.Swap(true) {
		return
	}
	r.cancelledAt.Store(time.Now().UnixNano())
	l := s.loop.Load()
	if l == nil { // intake sees that it is cancelled, unless it waits for the model
		if j, ok := s.room.withdraw(r); ok {
			s.room.leave(r.Owner)
			s.endUnstarted(j)
		}
		return
	}
	l.mail.put(command{kind: cmdCancel, req: r})
	if r.abortable.Load() && l.caps.CanAbort && l.caps.CanRemoveRange {
		l.eng.Abort()
	}
}

// EndThink closes the thinking of a request, within a few tokens: at the end of its line or sentence.
func (s *Server) EndThink(c *ipc.Conn, id string) {
	if r := s.sessions.find(c, id); r != nil {
		s.closeThought(r)
	}
}

func (s *Server) closeThought(r *request) {
	if r.endThink.Swap(true) {
		return
	}
	if l := s.loop.Load(); l != nil { // before, its arrival finds the mark
		l.mail.put(command{kind: cmdEndThink, req: r})
	}
}

// Writable tells the decode loop that a client has read.
func (s *Server) Writable(c *ipc.Conn) {
	if l := s.loop.Load(); l != nil {
		l.mail.put(command{kind: cmdWritable, conn: c})
	}
}

// Admin answers metrics, health and info at once; why and kv are answered by the decode loop between two steps.
func (s *Server) Admin(c *ipc.Conn, q *wire.Frame) {
	k, id := q.Kind, q.ID
	var body []byte
	switch k {
	case wire.KindMetrics:
		body = s.metrics.AppendJSON(nil)
	case wire.KindHealth:
		body = mustJSON(s.health())
	case wire.KindInfo:
		body = mustJSON(s.info())
	case wire.KindWhy:
		why, uid := q.Why, c.UID()
		s.ask(c, id, func(l *loop, now time.Time) []byte {
			rep := l.why(why, uid, now)
			for i := range rep.Requests {
				rep.Requests[i].Owner = s.access.ownerName(rep.Requests[i].UID)
			}
			return wire.AppendWhy(nil, id, rep)
		})
		return
	case wire.KindKV:
		kv, uid := q.KV, c.UID()
		s.ask(c, id, func(l *loop, now time.Time) []byte {
			if kv.Op == wire.KVShow {
				rep := l.kvReport(kv.Tree, uid, now)
				for i := range rep.Entries {
					rep.Entries[i].Owner = s.access.ownerName(rep.Entries[i].UID)
				}
				return wire.AppendKV(nil, id, rep)
			}
			done, copies, err := l.kvDo(kv, uid, now)
			switch {
			case err != nil:
				return wire.AppendError(nil, &wire.Error{ID: id, Code: wire.BadRequest, Message: err.Error()})
			case copies == nil:
				return wire.AppendKVDone(nil, id, done)
			}
			go func() { // files and a fabric take their time: the answer comes when the copies are gone
				if err := l.stores.drop(copies, done); err != nil {
					reply(c, wire.AppendError(nil, &wire.Error{ID: id, Code: wire.InternalFailure, Message: err.Error()}))
					return
				}
				reply(c, wire.AppendKVDone(nil, id, done))
			}()
			return nil
		})
		return
	}
	if c.Protocol() == wire.Newline {
		c.Reply(append(body, '\n'))
		return
	}
	c.Reply(wire.AppendReport(nil, k, id, body))
}

// sessions finds the requests of a connection: written when one comes and when it is finalised, never per token.
type sessions struct {
	mu   sync.Mutex
	live map[*ipc.Conn][]*request
}

func (t *sessions) add(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[*ipc.Conn][]*request{}
	}
	t.live[r.conn] = append(t.live[r.conn], r)
}

func (t *sessions) find(c *ipc.Conn, id string) *request {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.live[c] {
		if r.wireID == id {
			return r
		}
	}
	return nil
}

func (t *sessions) of(c *ipc.Conn) []*request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.live[c])
}

// remove forgets a finalised request; its id may be used again.
func (t *sessions) remove(r *request) {
	t.mu.Lock()
	rest := slices.DeleteFunc(t.live[r.conn], func(o *request) bool { return o == r })
	if len(rest) == 0 {
		delete(t.live, r.conn)
	} else {
		t.live[r.conn] = rest
	}
	t.mu.Unlock()
	r.conn.Done(r.wireID)
}
