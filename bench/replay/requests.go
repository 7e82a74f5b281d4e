package replay

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/meridian"
	simload "github.com/uma-serve/uma-serve/sim/workload"
)

// charsPerToken is the number of bytes of a text that count as a token. Texts that begin with the same tokens share
// their cells, as in the daemon.
const charsPerToken = 4

// replayable refuses workloads whose requests depend on the text of answers.
func replayable(p *workload.Plan) error {
	if p.Workers > 0 {
		return fmt.Errorf("the replay mode has arrivals only: leave out --concurrency")
	}
	followed := map[int]bool{}
	for _, r := range p.Requests {
		if r.Until > 0 || r.Grader == "exact" || r.Via != "" || r.Schema != "" || p.Name == "edit" ||
			r.After >= 0 && followed[r.After] {
			return fmt.Errorf("workload %s needs a server: the replay mode has requests of known lengths that arrive "+
				"at a time or follow another one (synthetic, chat, reasoning, sharegpt, math500, mix, shared-prefix, "+
				"decode-sweep, long-context, agent-chain)", p.Name)
		}
		followed[r.After] = true
	}
	return nil
}

// watcher passes the plan's requests to the simulation and records their times, as a client would.
type watcher struct {
	plan    []workload.Request
	rows    []simload.Request // of the plan; Arrival is that of requests that follow none
	records []*loadgen.Record
	after   map[int64]int // the request that follows one, by index
	next    int
}

func newWatcher(p *workload.Plan) *watcher {
	w := &watcher{plan: p.Requests, records: make([]*loadgen.Record, len(p.Requests)), after: map[int64]int{},
		rows: make([]simload.Request, len(p.Requests))}
	begun := map[uint64]int{} // the first request whose prompt begins with so many tokens, by their hash
	for i := range p.Requests {
		q, r := &p.Requests[i], &w.rows[i]
		*r = simload.Request{Index: int64(i), Arrival: q.At.Microseconds(), Class: "interactive", Client: q.Kind,
			Think: q.Think, Output: q.Think + q.Output, Lent: true}
		if q.Background {
			r.Class = "background"
		}
		if q.After >= 0 {
			w.after[int64(q.After)] = i
		}
		text := q.Prompt
		for _, m := range q.Messages {
			text += m.Content
		}
		r.Input = max(8, len(text)/charsPerToken)
		if q.Grow {
			before := &w.rows[q.After]
			r.BaseLen = before.Input + before.Output
			r.Input += r.BaseLen
			id := before.Identity()
			r.Base = &id
			continue
		}
		owner, hash := -1, uint64(0)
		for k := 0; (k+1)*charsPerToken <= len(text); k++ {
			hash = simload.Mix64(hash ^ simload.NamedStream(text[k*charsPerToken:(k+1)*charsPerToken]))
			if o, ok := begun[hash]; ok {
				owner, r.BaseLen = o, k+1
			} else {
				begun[hash] = i
			}
		}
		if owner >= 0 {
			id := w.rows[owner].Identity()
			r.Base = &id
		}
	}
	return w
}

// Next implements simload.Source: requests that follow none.
func (w *watcher) Next(r *simload.Request) bool {
	for w.next < len(w.plan) && w.plan[w.next].After >= 0 {
		w.next++
	}
	if w.next == len(w.plan) {
		return false
	}
	w.send(w.next, w.rows[w.next].Arrival, r)
	w.next++
	return true
}

// Ended implements simload.Reactive.
func (w *watcher) Ended(r *simload.Request, _ simload.Outcome, now int64, next *simload.Request) bool {
	i, ok := w.after[r.Index]
	if !ok {
		return false
	}
	w.send(i, max(now+w.plan[i].Pause.Microseconds(), w.rows[i].Arrival), next)
	return true
}

// send lets request i arrive at a time, microseconds.
func (w *watcher) send(i int, us int64, r *simload.Request) {
	*r = w.rows[i]
	r.Arrival = us
	at := us * int64(time.Microsecond)
	w.records[i] = &loadgen.Record{Index: i, Due: at, Sent: at}
}

// Started implements synthetic.Observer.
func (w *watcher) Started(request int64, prompt, cached int) {
	r := w.records[request]
	r.PromptTokens, r.CachedTokens = prompt, cached
}

// Token implements synthetic.Observer.
func (w *watcher) Token(request, now int64, thinking bool) {
	w.records[request].Token(now, thinking, "x", false)
}

// Thought implements synthetic.Observer.
func (w *watcher) Thought(request int64, tokens int, ended meridian.Ended) {
	r := w.records[request]
	r.ThinkTokens, r.ThinkEnded = tokens, ended.String()
}

// End implements synthetic.Observer.
func (w *watcher) End(request, now int64, answered bool) {
	r := w.records[request]
	r.End, r.Reason = now, "stop"
	if !answered {
		r.Reason, r.Err = "", "rejected by the scheduler"
	}
}
