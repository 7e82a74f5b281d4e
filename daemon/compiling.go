package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A compilation can take seconds, and all users share the intake goroutine. A request whose grammar is not compiled is
// therefore parked here while a builder goroutine compiles it: one build of each user at a time, users in turn. After
// the build the request goes through intake again.

// formBuilders is the number of builds that run at once.
const formBuilders = 2

// buildQueue is one user's builds, in the order of arrival.
type buildQueue struct {
	owner  uint32
	busy   bool // builds[0] runs
	builds []*build
}

// build compiles one grammar for one user. Invariant: jobs is empty only if the build runs and stop is set.
type build struct {
	*formSource
	jobs []job // the requests that wait for it
	stop atomic.Bool
}

// formWait is a request's wait for its grammars.
type formWait struct {
	at   time.Time // of its beginning; zero: it did not wait
	took time.Duration
}

// park adds j to the build of src. The caller holds f.mu.
func (f *forms) park(src *formSource, j job) {
	j.parked = f.now()
	if j.wait.at.IsZero() {
		j.wait.at = j.parked
	}
	f.count(+1)
	u := f.users[j.r.Owner]
	if u == nil {
		u = &buildQueue{owner: j.r.Owner}
		f.users[u.owner] = u
		f.turns = append(f.turns, u)
	}
	for _, o := range u.builds {
		if o.key == src.key && !o.stop.Load() {
			o.jobs = append(o.jobs, j)
			return
		}
	}
	u.builds = append(u.builds, &build{formSource: src, jobs: []job{j}})
	f.dispatch()
}

func (f *forms) count(n int) {
	f.parked += n
	f.metrics.GrammarCompiling.Set(int64(f.parked))
}

// dispatch starts the next builds in turn. The caller holds f.mu.
func (f *forms) dispatch() {
	for f.running < formBuilders && len(f.turns) > 0 {
		u := f.turns[0]
		f.turns = slices.Delete(f.turns, 0, 1)
		u.busy = true
		f.running++
		b := u.builds[0]
		// not nil: compiled for another user since, or the user's spending is too high
		c := f.known(b.formSource, u.owner)
		f.builders.Go(func() { f.build(u, b, c) })
	}
}

// build compiles b, unless its result c is known, and returns its requests to intake. It runs in a builder goroutine.
func (f *forms) build(u *buildQueue, b *build, c *compiled) {
	fresh := c == nil
	if fresh {
		c = f.run(u.owner, b)
	}
	f.mu.Lock()
	if fresh {
		f.charge(u.owner, c.took)
	}
	if fresh && !b.stop.Load() {
		f.keep(c)
	}
	jobs, now := b.jobs, f.now()
	b.jobs = nil
	f.count(-len(jobs))
	for i := range jobs {
		jobs[i].wait.took += now.Sub(jobs[i].parked)
		jobs[i].built = append(jobs[i].built, c)
	}
	f.running--
	u.busy = false
	if f.drop(u, b); len(u.builds) > 0 {
		f.turns = append(f.turns, u)
	}
	f.dispatch()
	f.mu.Unlock()
	if len(jobs) > 0 {
		f.back(jobs)
	}
}

// run compiles b for owner.
func (f *forms) run(owner uint32, b *build) *compiled {
	f.mu.Lock()
	compile := f.compile
	f.mu.Unlock()
	if compile == nil {
		compile = func(src *formSource, l grammar.Limits) (*grammar.Grammar, error) { return src.compile(l) }
	}
	c := &compiled{key: b.key, owner: owner, vocab: f.vocabulary()}
	limits := formLimits
	limits.Stop = b.stop.Load
	began := f.now()
	g, err := compile(b.formSource, limits)
	if c.took = f.now().Sub(began); err != nil {
		c.bad = &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("%s: %v", b.field, err)}
		c.bytes.Store(int64(len(c.bad.Message)))
	} else {
		c.grammar, c.free = g, b.free
		c.bytes.Store(int64(g.Bytes()))
	}
	f.metrics.GrammarCompile.Observe(c.took)
	return c
}

// drop removes b from u. The caller holds f.mu.
func (f *forms) drop(u *buildQueue, b *build) {
	u.builds = slices.DeleteFunc(u.builds, func(o *build) bool { return o == b })
	if len(u.builds) == 0 && !u.busy {
		delete(f.users, u.owner)
		f.turns = slices.DeleteFunc(f.turns, func(o *buildQueue) bool { return o == u })
	}
}

// withdraw removes a cancelled request, and stops its build if no other request waits for it. It returns false if r is
// not parked.
func (f *forms) withdraw(r *request) (job, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.users[r.Owner]
	if u == nil {
		return job{}, false
	}
	for i, b := range u.builds {
		at := slices.IndexFunc(b.jobs, func(j job) bool { return j.r == r })
		if at < 0 {
			continue
		}
		j := b.jobs[at]
		b.jobs = slices.Delete(b.jobs, at, at+1)
		f.count(-1)
		switch {
		case len(b.jobs) > 0:
		case u.busy && i == 0:
			b.stop.Store(true)
		default:
			f.drop(u, b)
		}
		return j, true
	}
	return job{}, false
}

// close stops all builds, refuses new ones and returns the parked requests.
func (f *forms) close() (jobs []job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, u := range f.users {
		for _, b := range slices.Clone(u.builds) {
			jobs = append(jobs, b.jobs...)
			b.jobs = nil
			if b.stop.Store(true); !u.busy || b != u.builds[0] {
				f.drop(u, b)
			}
		}
	}
	f.count(-len(jobs))
	return jobs
}

// wait returns when the builder goroutines have ended, after close.
func (f *forms) wait() { f.builders.Wait() }

// unpark queues requests of one user for intake again, or refuses them after the waitroom's end.
func (s *Server) unpark(jobs []job) {
	if e := s.room.putBack(jobs); e != nil {
		s.refuseJobs(jobs, e)
	}
}

// whyCompiling adds the parked requests to the report of a why question. They come first: the server numbers requests
// after their compilation.
func (s *Server) whyCompiling(rep *wire.WhyReport, q wire.WhyQuestion, uid uint32, now time.Time) {
	list := s.forms.why(func(r *request) bool {
		return (r.Owner == uid || s.cfg.Privileged(uid)) && (q.Request == "" || r.wireID == q.Request)
	}, now)
	slices.SortFunc(list, func(a, b wire.WhyRequest) int { return cmp.Compare(a.AgeMs, b.AgeMs) })
	if list = append(list, rep.Requests...); len(list) == 0 {
		return // an empty array, not null
	}
	rep.Requests = list[:min(len(list), cmp.Or(q.Last, wire.MaxLast))]
}

// why returns the parked requests that wanted accepts.
func (f *forms) why(wanted func(*request) bool, now time.Time) (list []wire.WhyRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.users {
		for i, b := range u.builds {
			for _, j := range b.jobs {
				if wanted(j.r) {
					list = append(list, j.why(b.formSource, u.busy && i == 0, now))
				}
			}
		}
	}
	return list
}

// why returns a parked request's entry. runs reports whether its build runs.
func (j *job) why(src *formSource, runs bool, now time.Time) wire.WhyRequest {
	d := wire.Decision{AtMs: wire.Ms(j.parked.Sub(j.r.arrived)), LastMs: wire.Ms(now.Sub(j.r.arrived)), Times: 1,
		Reason: "compiling",
		Text:   "Its " + src.field + " is being compiled."}
	if !runs {
		d.Text = "Its " + src.field + " waits to be compiled: one form of each user is compiled at a time."
	}
	return wire.WhyRequest{
		Request: j.r.wireID, UID: j.r.Owner, Class: prepare.Class(j.w).String(), State: "compiling",
		AgeMs: wire.Ms(now.Sub(j.r.arrived)),
		Form:  &wire.WhyForm{Form: src.name()}, Decisions: []wire.Decision{d},
	}
}
