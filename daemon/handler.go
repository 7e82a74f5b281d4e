package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The Server is the poller's ipc.Handler. These methods run on the poller goroutine, or on that of an HTTP handler.
// They check, count and pass work on, and answer health, metrics and info from atomics, without waiting for a decode
// step.

// Request admits or refuses a generation request.
func (s *Server) Request(c ipc.Client, w *wire.Request) {
	prepare.WithSystem(s.cfg, w)
	s.admit(&request{conn: c, wireID: w.ID, arrived: time.Now(), wishes: wishes{stream: w.Stream},
		metadata: w.Metadata}, w)
}

// Embed takes a request for embeddings in, or refuses it.
func (s *Server) Embed(c ipc.Client, w *wire.Embed) {
	s.admit(&request{conn: c, wireID: w.ID, arrived: time.Now(), wishes: wishes{stream: true}, metadata: w.Metadata,
		embed: &embedding{w: w}}, nil)
}

// Line is a prompt of the newline protocol. Intake makes it a user's message if the model has a chat template, else raw
// text. The answer streams back as plain bytes.
func (s *Server) Line(c *ipc.Conn, prompt string) {
	w := wire.DefaultRequest()
	w.Stream = true
	w.Prompt = prompt
	s.admit(&request{conn: c, wishes: wishes{lines: true}, arrived: time.Now()}, &w)
}

// admit registers r, so that a cancel finds it from now on, and queues it for intake. w is nil where r asks for
// embeddings.
func (s *Server) admit(r *request, w *wire.Request) {
	s.sessions.Add(r)
	if e := s.refusal(); e != nil {
		s.refuse(r, e)
		return
	}
	r.Prepared = prepare.NewPrepared(r.conn.UID())
	if e, why := s.quotas.Over(r.Owner, s.sessions.Count(r.conn), r.arrived); e != nil {
		s.metrics.Refusals.Inc(why)
		s.refuse(r, e)
		return
	}
	if mine, users, ok := s.room.Enter(r.Owner); !ok {
		e, why := s.room.TooMany(mine, users)
		s.metrics.Refusals.Inc(why)
		s.refuse(r, e)
		return
	}
	r.life.Enter(stage.Waiting)
	if e := s.room.Put(r.Owner, job{r: r, w: w}); e != nil {
		s.room.Leave(r.Owner)
		s.refuse(r, e)
		return
	}
	s.metrics.Prompts.Inc()
}

// refusal returns the error of new requests while the daemon drains; nil if it admits requests.
func (s *Server) refusal() *wire.Error {
	if s.draining.Load() {
		return admission.ShuttingDown()
	}
	return nil
}

// refuse answers a request that never reaches the decode loop.
func (s *Server) refuse(r *request, e *wire.Error) {
	r.life.Enter(stage.Ending)
	s.metrics.Rejected(string(e.Code))
	e.ID = r.wireID
	s.log.Debug("refused", "session", r.conn.ID(), "request", r.wireID, "code", e.Code, "message", e.Message)
	r.conn.ReplyEvent(wire.ErrorEvent(e))
	s.sessions.Remove(r)
}

// EndThink ends the thinking of a request within a few tokens: at the end of a line or sentence.
func (s *Server) EndThink(c ipc.Client, id string) {
	if r, ok := s.sessions.Find(c, id); ok {
		s.endThinking(r)
	}
}

func (s *Server) endThinking(r *request) {
	if r.endThink.Swap(true) {
		return
	}
	if l := s.loop.Load(); l != nil { // without a loop, arrive reads the flag later
		l.mail.Put(command{kind: cmdEndThink, req: r})
	}
}

// Writable tells the decode loop that c's send ring has room again.
func (s *Server) Writable(c ipc.Client) {
	if l := s.loop.Load(); l != nil {
		l.mail.Put(command{kind: cmdWritable, conn: c})
	}
}

// Admin answers metrics, health and info at once. The decode loop answers why and kv between two steps, or they are
// answered beside a long step (inquiry).
func (s *Server) Admin(c ipc.Client, q *wire.Frame) {
	k, id := q.Kind, q.ID
	var body []byte
	switch k {
	case wire.KindMetrics:
		body = s.metrics.AppendJSON(nil)
	case wire.KindHealth:
		body = api.MustJSON(s.health())
	case wire.KindInfo:
		body = api.MustJSON(s.info())
	case wire.KindWhy:
		s.ask(&inquiry{c: c, id: id, reads: true, asked: &whyQuestion{s, q.Why, c.UID()}})
		return
	case wire.KindKV:
		s.ask(&inquiry{c: c, id: id, reads: q.KV.Op == wire.KVShow, asked: &kvQuestion{s, q.KV, c.UID()}})
		return
	}
	c.ReplyEvent(wire.ReportEvent(k, id, body))
}
