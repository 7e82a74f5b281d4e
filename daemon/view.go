package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// viewing are the requests whose images are decoded and encoded, each on a goroutine of its request: one picture at a
// time, so that the pixels of one at most are in memory, and in turns of users (viewturns.go).
type viewing struct {
	turns viewTurns

	mu   sync.Mutex
	jobs map[*request]*viewed
	busy *request // the one that has the turn
}

// viewed is a request whose images are encoded.
type viewed struct {
	job
	since time.Time
	stop  chan struct{} // closed by a cancel
}

// turn returns what a request of owner needs to be served in turns. It gives up when stop is closed or goOn says so.
func (v *viewing) turn(owner uint32, stop <-chan struct{}, goOn func() bool) prepare.Turn {
	return prepare.Turn{
		Take: func() bool {
			if !v.turns.take(owner, stop) {
				return false
			}
			if !goOn() {
				v.turns.give()
				return false
			}
			return true
		},
		Give: v.turns.give,
		GoOn: goOn,
	}
}

// cancel wakes a request that waits for its turn.
func (v *viewing) cancel(r *request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if j := v.jobs[r]; j != nil && j.stop != nil {
		close(j.stop)
		j.stop = nil
	}
}

// view encodes the images of j beside the intake, which prepares others meanwhile, and queues j again with its views.
func (s *Server) view(m *prepare.Model, j job) {
	v := &s.viewing
	stop := make(chan struct{})
	v.mu.Lock()
	if v.jobs == nil {
		v.jobs = map[*request]*viewed{}
	}
	v.jobs[j.r] = &viewed{job: j, since: time.Now(), stop: stop}
	v.mu.Unlock()
	j.r.life.enter(stageViewing)
	go func() {
		turn := v.turn(j.r.Owner, stop, func() bool { return !j.r.life.cancelled() && !s.draining.Load() })
		take, give := turn.Take, turn.Give
		turn.Take = func() bool {
			ok := take()
			if ok {
				v.setBusy(j.r)
			}
			return ok
		}
		turn.Give = func() { v.setBusy(nil); give() }
		views, bad := m.View(j.r.Owner, j.w, turn)
		v.mu.Lock()
		delete(v.jobs, j.r)
		v.mu.Unlock()
		if bad == nil && s.draining.Load() {
			bad = shuttingDown()
		}
		switch {
		case j.r.life.cancelled():
			s.endUnstarted(j)
			return
		case bad == nil:
			j.r.Views = views
			j.r.life.enter(stageWaiting)
			bad = s.room.PutBack([]job{j})
		}
		if bad != nil {
			s.refuseJobs([]job{j}, bad)
		}
	}()
}

func (v *viewing) setBusy(r *request) {
	v.mu.Lock()
	v.busy = r
	v.mu.Unlock()
}

// whyViewing adds the requests whose images are encoded to the report of a why question.
func (s *Server) whyViewing(rep *reports.WhyReport, q wire.WhyQuestion, uid uint32, now time.Time) {
	v := &s.viewing
	v.mu.Lock()
	defer v.mu.Unlock()
	for r, j := range v.jobs {
		if r.Owner != uid && !s.cfg.Privileged(uid) || q.Request != "" && r.wireID != q.Request {
			continue
		}
		text := "Its images wait to be encoded: one is encoded at a time, in turns of users."
		if v.busy == r {
			text = "Its images are being encoded, beside the steps of others."
		}
		rep.Requests = slices.Insert(rep.Requests, 0, reports.WhyRequest{
			Request: r.wireID, UID: r.Owner, Class: prepare.Class(j.w).String(), State: "viewing",
			AgeMs: wire.Ms(now.Sub(r.arrived)),
			Decisions: []reports.Decision{{AtMs: wire.Ms(j.since.Sub(r.arrived)), LastMs: wire.Ms(now.Sub(r.arrived)),
				Times: 1, Reason: "viewing", Text: text}},
		})
	}
}

// viewerOf returns eng as a reader of images; nil: its model reads none.
func viewerOf(eng runtime.Engine) runtime.Viewer {
	if v, ok := eng.(runtime.Viewer); ok && v.Images() != nil {
		return v
	}
	return nil
}

// mostGiven is the longest time between two steps that an image is given, where no answer waits for its next token.
const mostGiven = 200 * time.Millisecond

// giveWay leaves the processor to an image that is being encoded, before a step that is predicted to take so long. The
// encoder's threads have a low priority: during a step they do next to nothing, and this is their time. A step
// with tokens of answers gives at most twice its own time, and never so much that an answer would miss the ITL target.
func (l *loop) giveWay(plan *sched.Plan) {
	if l.viewer == nil || !l.viewer.Encoding() {
		return
	}
	l.viewer.WaitEncoded(given(plan, l.itlTarget))
}

func given(plan *sched.Plan, target time.Duration) time.Duration {
	for i := range plan.Batch {
		if plan.Batch[i].Kind != sched.SlicePrefill {
			if target <= 0 {
				return min(2*plan.Predicted, mostGiven)
			}
			return min(2*plan.Predicted, target*4/5-plan.Predicted, mostGiven)
		}
	}
	return min(plan.Predicted/2, mostGiven)
}
