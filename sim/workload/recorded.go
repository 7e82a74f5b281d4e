package workload

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim/latency"
)

// FromRecording makes a workload of a recording of uma-serve (package sched's trace): which request arrived when, how
// many tokens each prompt had, how many tokens it generated and how many of them it thought, which forks probed the
// thought, and when its client did not read. A request that was cancelled ends where it did. Times are counted from the
// first arrival or step.
//
// A recording has no tokens, but it says how many of a prompt's were cached when it started. Whose they were is
// guessed: of the earlier requests of the same user whose history was long enough, the one whose history ends nearest
// behind them. That is exact for the turns of a conversation, and among prompts that begin alike it does not matter
// which. Tokens that no request of the recording can have computed were cached (Request.Resident).
func FromRecording(t *trace.Trace) ([]Request, error) {
	if len(t.Steps) == 0 {
		return nil, nil
	}
	rec := recording{at: map[sched.ReqID]int{}, owners: map[uint32][]int{}, texts: map[sched.ReqID]bool{}}
	origin := t.Steps[0].Now
	for _, step := range t.Steps {
		for i := range step.Events.Arrivals {
			origin = min(origin, step.Now.Add(-step.Events.Arrivals[i].QueuedFor))
		}
		for _, ev := range step.Events.Finishes {
			if ev.Reason == reason.Embedded {
				rec.texts[ev.Req] = true
			}
		}
	}
	for _, step := range t.Steps {
		rec.first = -1
		for i := range step.Events.Len() {
			if err := rec.event(&step.Events, step.Events.At(i),
				int64(step.Now.Sub(origin)/time.Microsecond)); err != nil {
				return nil, fmt.Errorf("recording: line %d: %w", step.Line, err)
			}
		}
	}
	rec.link()
	return rec.rows, nil
}

type recording struct {
	rows   []Request
	past   []past // of each row
	at     map[sched.ReqID]int
	texts  map[sched.ReqID]bool // to embed
	order  []int                // the rows that have started, in that order
	owners map[uint32][]int     // the same for each user
	ends   []end                // that no arrival has followed yet, in order
	// when the first of this step's arrivals came that others came together with; -1 = none yet
	first int64
}

// together is the time, in microseconds, within which requests of one scheduler step count as arrivals at the same
// moment. A daemon that sleeps takes some 100 us to wake, and begins with all requests that have come by then; a
// simulated engine begins with the first.
const together = 1000

// end is the end of row k's answer.
type end struct {
	k     int
	owner uint32
	at    int64
}

// atOnce is the longest time, in microseconds, between an answer and the next request of a client that does not wait.
// early is the longest time by which a client can learn of an end before the decode loop does.
const atOnce, early = 10_000, 2_000

// follow finds the end that an arrival at a time followed: the oldest recent one that no arrival has followed yet.
func (rec *recording) follow(r *Request, owner uint32) {
	for len(rec.ends) > 0 && rec.ends[0].at < r.Arrival-atOnce {
		rec.ends = rec.ends[1:]
	}
	for _, e := range rec.ends {
		if e.owner == owner && e.at <= r.Arrival+early && !rec.past[e.k].followed {
			rec.chain(r, e.k)
			return
		}
	}
}

// chain has r arrive as long after the end of row k as it did.
func (rec *recording) chain(r *Request, k int) {
	p := &rec.past[k]
	p.followed = true
	r.Follows, r.Delay = int64(k)+1, max(0, r.Arrival-p.ended)
}

// nearTurn is the largest difference in tokens between a turn's cached prefix and the end of the text that it
// continues: tokenising the text again may change the tokens where the two meet.
const nearTurn = 2

// turn has the arrival of row k follow the end of the request whose conversation it continues, if there is one: its
// cached tokens are the earlier prompt, with the answer or without, and it has more. A client, or an agent's tool,
// takes its time between the two, but it does not ask before it has its answer. Of several such requests it is the
// nearest, then the latest. before are the rows of the same user that started earlier.
func (rec *recording) turn(k, cached int, before []int) {
	r := &rec.rows[k]
	best, nearest := -1, nearTurn+1
	for _, i := range before {
		o, p := &rec.rows[i], &rec.past[i]
		if p.ended == 0 || p.followed && r.Follows != int64(i)+1 || p.ended > r.Arrival+early || o.Embed {
			continue
		}
		for _, end := range [2]int{o.Input, o.Input + o.Output} {
			if r.Input <= end+nearTurn {
				continue // the same again
			}
			d := max(end-cached, cached-end)
			if d < nearest || d == nearest && best >= 0 && p.ended > rec.past[best].ended {
				best, nearest = i, d
			}
		}
	}
	if best < 0 || r.Follows == int64(best)+1 {
		return
	}
	if r.Follows > 0 {
		rec.past[r.Follows-1].followed = false // it only seemed to follow that one
	}
	rec.chain(r, best)
}

// past is the state of a row while the recording is read.
type past struct {
	owner    uint32
	started  bool
	base     int   // the row whose tokens it began with, -1 = none
	accepted int   // tokens that were guessed
	paused   int64 // when its client was found not to read, microseconds; 0 = it reads
	ended    int64 // when it was answered, microseconds; 0 = not yet
	followed bool  // another row arrives after it
}

func (rec *recording) event(in *sched.Events, at sched.Entry, now int64) error {
	switch n := at.N; at.Kind {
	case sched.KindArrive:
		return rec.arrive(&in.Arrivals[n], now)
	case sched.KindStarted:
		if k, known := rec.at[in.Starts[n].Req]; known {
			rec.start(k, in.Starts[n].Cached)
		}
	case sched.KindToken:
		rec.token(&in.Tokens[n])
	case sched.KindFinish:
		rec.finish(&in.Finishes[n], now)
	case sched.KindPause:
		if k, known := rec.at[in.Pauses[n].Req]; known {
			rec.past[k].paused = now
		}
	case sched.KindResume:
		k, known := rec.at[in.Resumes[n].Req]
		if !known {
			return nil
		}
		r, p := &rec.rows[k], &rec.past[k]
		if at := p.paused; at > 0 && now > at && r.Output > 0 {
			r.Stalls = append(r.Stalls, Stall{After: r.Output, Us: now - at})
		}
		p.paused = 0
	}
	return nil
}

func (rec *recording) arrive(ev *sched.EvArrive, now int64) error {
	if ev.Prompt > MaxTokens || ev.MaxTokens < 0 {
		return fmt.Errorf("a prompt of %d tokens: at most %d", ev.Prompt, MaxTokens)
	}
	rec.at[ev.Req] = len(rec.rows)
	arrived := max(0, now-int64(ev.QueuedFor/time.Microsecond))
	if rec.first >= 0 && arrived >= rec.first && arrived-rec.first <= together {
		arrived = rec.first
	} else {
		rec.first = arrived
	}
	r := Request{Index: int64(len(rec.rows)), Arrival: arrived, Input: ev.Prompt,
		Budget: min(ev.MaxTokens, MaxTokens),
		Class:  ev.Class.String(), Tenant: uidPrefix + strconv.FormatUint(uint64(ev.Owner), 10),
		TargetTTFT: int64(ev.TargetTTFT / time.Microsecond), TargetITL: int64(ev.TargetITL / time.Microsecond),
		TargetTTOT: int64(ev.TargetTTOT / time.Microsecond), Strict: ev.Strict}
	if ev.Thinking {
		r.Think = 1
	}
	r.EveryRow, r.Whole = ev.EveryRow, ev.Whole
	r.Embed = r.EveryRow || r.Whole || rec.texts[ev.Req]
	rec.follow(&r, ev.Owner)
	rec.rows = append(rec.rows, r)
	rec.past = append(rec.past, past{owner: ev.Owner, base: -1})
	return nil
}

func (rec *recording) token(ev *sched.EvToken) {
	k, known := rec.at[ev.Req]
	if !known {
		return
	}
	r := &rec.rows[k]
	r.Output += 1 + ev.Accepted
	rec.past[k].accepted += ev.Accepted
	if ev.Probe > 0 {
		r.Probes = append(r.Probes, Probe{After: r.Output, Rows: ev.Probe})
	}
	if ev.Thinking {
		r.Think = r.Output + 1 // this token and, until told otherwise, the next
	}
}

func (rec *recording) finish(ev *sched.EvFinish, now int64) {
	k, known := rec.at[ev.Req]
	if !known {
		return
	}
	r := &rec.rows[k]
	r.Output += 1 + ev.Accepted
	r.Repeat = float64(rec.past[k].accepted+ev.Accepted) / float64(r.Output)
	rec.past[k].ended = now
	rec.ends = append(rec.ends, end{k, rec.past[k].owner, now})
}

// candidates bounds how far back a shared prefix is looked for.
const candidates = 4096

// start notes where row k's cached tokens came from.
func (rec *recording) start(k, cached int) {
	p, r := &rec.past[k], &rec.rows[k]
	if p.started {
		return // again, after a preemption: by then its own history was cached
	}
	p.started = true
	rec.order = append(rec.order, k)
	before := rec.owners[p.owner]
	rec.owners[p.owner] = append(before, k)
	if cached <= 0 || cached >= r.Input {
		return
	}
	before = before[max(0, len(before)-candidates):]
	rec.turn(k, cached, before)
	least := 0
	for i := len(before) - 1; i >= 0; i-- {
		o := &rec.rows[before[i]]
		if o.Embed {
			continue // its cells are not shared
		}
		if more := o.Input + o.Output - cached; more >= 0 && (p.base < 0 || more < least) {
			p.base, least = before[i], more
		}
	}
	if r.BaseLen = cached; p.base < 0 {
		r.BaseLen, r.Resident = 0, cached
	}
}

// link gives the rows the identities of those whose tokens they share. A base started earlier, so its own is complete.
func (rec *recording) link() {
	for _, k := range rec.order {
		if b := rec.past[k].base; b >= 0 {
			rec.rows[b].Lent = true
		}
	}
	for _, k := range rec.order {
		if b := rec.past[k].base; b >= 0 {
			id := rec.rows[b].Identity()
			rec.rows[k].Base = &id
		}
	}
}

// uidPrefix and a number name the tenant that is a user of the machine.
const uidPrefix = "uid"

// UID returns the user id that a tenant of a recording stands for.
func UID(tenant string) (uint32, bool) {
	digits, ok := strings.CutPrefix(tenant, uidPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// StepCosts returns the steps of a recording: what each planned, how long it took, and how long the rest of the loop's
// turn was until it turned to the next one. They are what a cost model is fitted to. A recording without plans is
// replayed: only the scheduler knows then which tokens each slice attended to.
func StepCosts(t *trace.Trace) ([]latency.Sample, error) {
	var out []latency.Sample
	var open latency.Sample
	var began sched.Instant
	var runs latency.Runs
	err := t.Visit(func(step *trace.Step, plan *sched.Plan) {
		for _, ev := range step.Events.Steps {
			if ev.Outcome != sched.StepOK {
				continue
			}
			open.Resident = ev.Resident
			open.Us = float64(ev.Took.Nanoseconds()) / 1000
			open.BetweenUs = float64((step.Now.Sub(began) - ev.Took).Nanoseconds()) / 1000
			out = append(out, open)
		}
		began = step.Now
		for i := range plan.Release {
			runs.End(uint64(plan.Release[i].Req))
		}
		if len(plan.Batch) == 0 {
			return
		}
		continues := runs.Step(Only(plan))
		open = latency.Sample{PrefillTokens: plan.PrefillTokens,
			DecodeTokens: plan.DecodeTokens + plan.ProbeTokens + plan.GuessedTokens}
		for i := range plan.Batch {
			sl := &plan.Batch[i]
			open.Attended += sched.Attended(sl.Start, sl.N)
			open.Read += float64(sl.Start + sl.N)
			open.Runs += runs.Of(uint64(sl.Req), continues)
			if sl.Row >= 0 {
				open.Rows += 1 + sl.Guessed
			}
		}
	})
	return out, err
}

// Only returns the one request that a plan computes something of, or 0.
func Only(plan *sched.Plan) uint64 {
	if len(plan.Batch) != 1 {
		return 0
	}
	return uint64(plan.Batch[0].Req)
}
