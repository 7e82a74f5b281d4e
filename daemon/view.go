package daemon

import (
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/daemon/viewing"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/sched"
)

// view encodes the images of j beside the intake, which prepares others meanwhile, and queues j again with its views.
func (s *Server) view(m *prepare.Model, j job) {
	turn := s.viewing.Begin(j, j.r.Owner, func() bool { return !j.r.life.Cancelled() && !s.draining.Load() })
	j.r.life.Enter(stage.Viewing)
	go func() {
		views, bad := m.View(j.r.Owner, j.w, turn)
		s.viewing.End(j)
		if bad == nil && s.draining.Load() {
			bad = admission.ShuttingDown()
		}
		switch {
		case j.r.life.Cancelled():
			s.endUnstarted(j)
			return
		case bad == nil:
			j.r.Views = views
			j.r.life.Enter(stage.Waiting)
			bad = s.room.PutBack([]job{j})
		}
		if bad != nil {
			s.refuseJobs([]job{j}, bad)
		}
	}()
}

// whyViewing adds the requests whose images are encoded to the report of a why question.
func (s *Server) whyViewing(rep *reports.WhyReport, q wire.WhyQuestion, uid uint32, now time.Time) {
	s.viewing.Each(func(j job, since time.Time, busy bool) {
		if j.r.Owner != uid && !s.cfg.Privileged(uid) || q.Request != "" && j.r.wireID != q.Request {
			return
		}
		text := "Its images wait to be encoded: one is encoded at a time, in turns of users."
		if busy {
			text = "Its images are being encoded, beside the steps of others."
		}
		rep.Requests = slices.Insert(rep.Requests, 0, j.waits("viewing", text, since, now))
	})
}

// giveWay leaves the processor to an image that is being encoded, before a step that is predicted to take so long. The
// encoder's threads have a low priority: during a step they do next to nothing, and this is their time.
func (l *loop) giveWay(plan *sched.Plan) {
	if l.model.viewer == nil || !l.model.viewer.Encoding() {
		return
	}
	l.model.viewer.WaitEncoded(viewing.Given(plan, l.model.itlTarget))
}
