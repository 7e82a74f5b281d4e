package workload

import (
	"fmt"
	"math"
	"math/rand"
)

// Generator makes the requests of a Spec, one at a time in the order of arrival, equal arrivals in the order of the
// clients. It is Reactive when the Spec has sessions or closed-loop users.
//
// The draws of BLIS are reproduced: from the stream "workload-gen" of the seed, first the tokens of each new
// prefix group, then a seed for each open-loop client, which draws gap, input length, output length, input tokens,
// output tokens for each of its requests.
//
// Invariant (INV-10): a later round arrives no earlier than its predecessor's end plus the think time.
// Invariant (INV-11): every session ends in exactly one of SessionEnds.
type Generator struct {
	spec    *Spec
	clients []*open // a heap by (next arrival, order)
	users   []*user
	later   []Request // open-loop rounds to come, a heap by (arrival, order of creation)
	laterNo int64

	limit   int64 // requests in all, sessions' later rounds included
	horizon int64
	made    int64

	sessionSeeds *rand.Rand
	sessions     map[string]*session
	users0       int // users that have not sent their first request
	byUser       map[string]*user
	Ends         SessionEnds
}

// SessionEnds counts how sessions ended.
type SessionEnds struct {
	Started   int64
	Completed int64 // every round was served
	Cancelled int64 // a round timed out or was dropped
	Horizon   int64 // the next round would arrive after the horizon
	Exhausted int64 // num_requests was reached
}

// open is one open-loop client.
type open struct {
	c      *Client
	order  int
	rng    *rand.Rand
	gap    func(*rand.Rand) int64
	input  func(*rand.Rand) int
	output func(*rand.Rand) int
	ratio  func(*rand.Rand) int
	prefix int // tokens of its group
	at     int64
	count  int64
	cap    int64
	row    Request // the next one
}

type user struct {
	*open
	id string
}

type session struct {
	*open
	rng     *rand.Rand
	stream  uint64
	context int // tokens so far, prefix excluded
}

// New prepares a generator. The Spec must have passed Check.
func (s *Spec) New() *Generator {
	clients := s.clients()
	g := &Generator{spec: s, limit: s.NumRequests, horizon: s.Horizon, sessions: map[string]*session{},
		byUser:       map[string]*user{},
		sessionSeeds: newRand(s.Seed + 7919)}
	if g.limit == 0 {
		g.limit = math.MaxInt64
	}
	if g.horizon == 0 {
		g.horizon = MaxTime
	}
	stream := Stream(s.Seed, "workload-gen")
	prefixes := map[string]int{}
	for i := range clients {
		c := &clients[i]
		if _, known := prefixes[c.PrefixGroup]; c.PrefixGroup != "" && !known {
			prefixes[c.PrefixGroup] = c.prefixLength()
			drawTokens(stream, c.prefixLength())
		}
	}
	sum := 0.0
	for i := range clients {
		sum += clients[i].RateFraction
	}
	userSeeds := newRand(s.Seed + 10007)
	for i := range clients {
		c := &clients[i]
		o := &open{c: c, order: i, input: c.Input.sampler(), output: c.Output.sampler(),
			prefix: prefixes[c.PrefixGroup], cap: math.MaxInt64}
		if c.Reasoning.ReasonRatio != nil {
			o.ratio = c.Reasoning.ReasonRatio.sampler()
		}
		if c.Concurrency > 0 {
			for k := range c.Concurrency {
				u := *o
				u.rng = newRand(userSeeds.Int63())
				g.users = append(g.users, &user{&u, fmt.Sprintf("%s/%d", c.ID, k)})
			}
			continue
		}
		if c.RateFraction == 0 {
			continue
		}
		o.rng = newRand(stream.Int63())
		o.gap = c.Arrival.gaps(s.AggregateRate * c.RateFraction / sum / 1e6)
		if g.limit < math.MaxInt64/2 {
			o.cap = 2 * g.limit
		}
		if g.advance(o) {
			g.clients = append(g.clients, o)
			up(g.clients, len(g.clients)-1, before)
		}
	}
	return g
}

func before(a, b *open) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

// advance draws the client's next request, false when it has no more.
func (g *Generator) advance(o *open) bool {
	for o.count < o.cap {
		gap := o.gap(o.rng)
		if o.at += gap; o.at >= g.horizon {
			return false
		}
		if !o.c.Lifecycle.active(o.at) {
			if !o.activeLater() {
				return false
			}
			continue
		}
		o.count++
		if mt := o.c.Reasoning.MultiTurn; mt != nil && mt.SingleSession && o.count > 1 {
			return false
		}
		if o.c.Reasoning.MultiTurn != nil {
			return true // drawn when the session starts
		}
		o.draw(o.rng, &o.row)
		o.row.Arrival = o.at
		o.deadline(&o.row, 0)
		return true
	}
	return false
}

// activeLater reports whether a window is still to come.
func (o *open) activeLater() bool {
	for _, w := range o.c.Lifecycle.Windows {
		if w.EndUs > o.at {
			return true
		}
	}
	return false
}

// draw draws one request's lengths and tokens.
func (o *open) draw(rng *rand.Rand, r *Request) {
	in, out := o.input(rng), o.output(rng)
	drawTokens(rng, in)
	drawTokens(rng, out)
	*r = Request{Input: in + o.prefix, Output: out, Budget: out, Prefix: o.c.PrefixGroup, PrefixLen: o.prefix,
		Client: o.c.ID, Tenant: o.c.TenantID, Class: o.c.SLOClass, Model: o.c.Model, Streaming: o.c.Streaming}
	if o.ratio != nil {
		r.ReasonRatio = math.Min(1, float64(o.ratio(rng))/100)
		r.Think = int(r.ReasonRatio * float64(out))
	}
}

func (o *open) deadline(r *Request, fallback int64) {
	limit := fallback
	if o.c.Timeout != nil {
		limit = *o.c.Timeout
	}
	if limit > 0 {
		r.Deadline = r.Arrival + limit
	}
}

// Next implements Source.
func (g *Generator) Next(r *Request) bool {
	if g.made >= g.limit {
		return false
	}
	if g.users0 < len(g.users) { // all users start at time 0
		u := g.users[g.users0]
		g.users0++
		u.draw(u.rng, r)
		u.deadline(r, 0)
		r.Session = u.id
		g.byUser[u.id] = u
		g.number(r)
		return true
	}
	if len(g.later) > 0 && (len(g.clients) == 0 || g.later[0].Arrival < g.clients[0].at) {
		*r = g.later[0]
		n := len(g.later) - 1
		g.later[0] = g.later[n]
		g.later = g.later[:n]
		down(g.later, 0, sooner)
		g.number(r)
		return true
	}
	if len(g.clients) == 0 {
		return false
	}
	o := g.clients[0]
	if o.c.Reasoning.MultiTurn != nil {
		g.start(o, r)
	} else {
		*r = o.row
	}
	if !g.advance(o) {
		n := len(g.clients) - 1
		g.clients[0] = g.clients[n]
		g.clients = g.clients[:n]
	}
	down(g.clients, 0, before)
	g.number(r)
	return true
}

func (g *Generator) number(r *Request) {
	r.Index = g.made
	g.made++
}

// start opens a session with its first round. In the open loop all later rounds are drawn here: they come after the
// think time and one microsecond per output token, however long the server really takes.
func (g *Generator) start(o *open, r *Request) {
	seed := g.sessionSeeds.Int63()
	name := fmt.Sprintf("%s/%d", o.c.ID, o.count-1)
	s := &session{open: o, rng: newRand(seed), stream: NamedStream(name)}
	g.round(s, name, 0, o.at, r)
	mt := o.c.Reasoning.MultiTurn
	if o.c.ClosedLoop == nil || *o.c.ClosedLoop {
		g.sessions[name] = s
		g.Ends.Started++
		return
	}
	at := o.at
	prev := *r
	for k := 1; k < mt.MaxRounds; k++ {
		at += mt.ThinkTimeUs + int64(prev.Output)
		var next Request
		g.round(s, name, k, at, &next)
		prev = next
		if at >= g.horizon {
			break
		}
		g.laterNo++
		next.Index = g.laterNo // only to order equal arrivals; numbered when it is handed out
		g.later = append(g.later, next)
		up(g.later, len(g.later)-1, sooner)
	}
}

func sooner(a, b Request) bool {
	return a.Arrival < b.Arrival || a.Arrival == b.Arrival && a.Index < b.Index
}

// round draws a session's k-th round. With growing context its prompt is everything before plus what is new, and its
// tokens are those of the session's own stream, so that the cache finds the earlier rounds.
func (g *Generator) round(s *session, name string, k int, at int64, r *Request) {
	s.draw(s.rng, r)
	r.Arrival, r.Session, r.Round = at, name, k
	s.deadline(r, sessionTimeout)
	if s.c.Reasoning.MultiTurn.ContextGrowth == "accumulate" {
		r.Stream = s.stream
		r.Input = min(r.Input+s.context, MaxTokens)
		s.context = min(r.Input-s.prefix+r.Output, MaxTokens)
	}
}

// Ended implements Reactive.
func (g *Generator) Ended(r *Request, how Outcome, now int64, next *Request) bool {
	if u := g.byUser[r.Session]; u != nil {
		at := now + u.c.ThinkTimeUs
		if at >= g.horizon || g.made >= g.limit {
			return false
		}
		u.draw(u.rng, next)
		next.Arrival, next.Session, next.Round = at, r.Session, r.Round+1
		u.deadline(next, 0)
		g.number(next)
		return true
	}
	s := g.sessions[r.Session]
	if s == nil {
		return false
	}
	mt := s.c.Reasoning.MultiTurn
	at := now + mt.ThinkTimeUs
	switch {
	case how != Completed:
		g.Ends.Cancelled++
	case r.Round+1 >= mt.MaxRounds:
		g.Ends.Completed++
	case at >= g.horizon:
		g.Ends.Horizon++
	case g.made >= g.limit:
		g.Ends.Exhausted++
	default:
		g.round(s, r.Session, r.Round+1, at, next)
		g.number(next)
		return true
	}
	delete(g.sessions, r.Session)
	return false
}

// up and down repair a binary min-heap.
func up[T any](h []T, i int, less func(a, b T) bool) {
	for i > 0 {
		p := (i - 1) / 2
		if !less(h[i], h[p]) {
			return
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
}

func down[T any](h []T, i int, less func(a, b T) bool) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && less(h[c+1], h[c]) {
			c++
		}
		if !less(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
