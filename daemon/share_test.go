package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// TestWaitroom: a user below its share is never refused, less than twice the limit is inside, each user's requests come
// out in order and users take turns. The seed of a failure is in its message.
func TestWaitroom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		w := admission.NewWaitroom[job](limit, 0)
		inside, waiting := map[uint32]int{}, map[uint32][]string{}
		total, next := 0, 0
		var last uint32
		others := false // waited when last had its turn
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			uid := rapid.SampledFrom([]uint32{1, 1, 1, 1, 2, 3, 4}).Draw(t, "uid")
			switch rapid.SampledFrom([]string{"enter", "enter", "enter", "next", "leave"}).Draw(t, "what") {
			case "enter":
				users := len(inside)
				if inside[uid] == 0 {
					users++
				}
				_, _, ok := w.Enter(uid)
				if !ok && (inside[uid] < limit/users || total < limit) {
					t.Fatalf("user %d has %d of %d inside, limit %d, %d users: refused", uid, inside[uid], total, limit,
						users)
				}
				if inside[uid] == 0 && !ok {
					t.Fatalf("user %d has nothing inside and is refused", uid)
				}
				if !ok {
					continue
				}
				inside[uid]++
				total++
				next++
				id := fmt.Sprint(next)
				waiting[uid] = append(waiting[uid], id)
				r := newTestRequest(id, uid)
				if e := w.Put(uid, job{r: r}); e != nil {
					t.Fatalf("%+v", e)
				}
				if rapid.IntRange(0, 9).Draw(t, "withdraw") == 9 {
					q := waiting[uid]
					if j, ok := w.Withdraw(uid, func(j job) bool { return j.r == r }); !ok || j.r != r {
						t.Fatalf("request %s of user %d is not there", id, uid)
					}
					waiting[uid] = q[:len(q)-1]
				}
				if _, ok := w.Withdraw(uid, func(j job) bool { return j.r == nil }); ok {
					t.Fatal("an unknown request is there")
				}
			case "next":
				j, ok, closed := w.Next()
				n := 0
				for _, q := range waiting {
					n += len(q)
				}
				if ok != (n > 0) || closed {
					t.Fatalf("%d wait, next says %v %v", n, ok, closed)
				}
				if !ok {
					continue
				}
				q := waiting[j.r.Owner]
				if q[0] != j.r.wireID {
					t.Fatalf("user %d: %s comes before %s", j.r.Owner, j.r.wireID, q[0])
				}
				if j.r.Owner == last && others {
					t.Fatalf("user %d twice in a row, others wait", last)
				}
				others = n > len(q)
				last, waiting[j.r.Owner] = j.r.Owner, q[1:]
			case "leave":
				if inside[uid] > len(waiting[uid]) {
					inside[uid]--
					total--
					if w.Leave(uid); inside[uid] == 0 {
						delete(inside, uid)
					}
				}
			}
			if most := 2*limit + 4; w.Count() != int64(total) || total > most {
				t.Fatalf("%d inside, counted %d, at most %d", total, w.Count(), most)
			}
		}
		n := 0
		for _, q := range waiting {
			n += len(q)
		}
		if jobs := w.Close(&wire.Error{Code: wire.ShuttingDown}); len(jobs) != n {
			t.Fatalf("%d waited, %d are returned", n, len(jobs))
		}
		if _, ok, closed := w.Next(); ok || !closed {
			t.Fatal("it is closed and does not say so")
		}
		if e := w.Put(1, job{}); e == nil || e.Code != wire.ShuttingDown {
			t.Fatalf("a closed room says %+v", e)
		}
	})
}

func newTestRequest(id string, uid uint32) *request {
	return &request{wireID: id, Prepared: prepare.NewPrepared(uid)}
}

// as is a client within the process, in the name of a user.
type as struct {
	*ipc.Local
	t *testing.T
}

func (r *running) as(uid uint32) *as {
	r.t.Helper()
	c, err := r.poller.Open(ipc.Peer{UID: uid, GID: uid})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return &as{c, r.t}
}

func (c *as) send(id string, edit func(*wire.Request)) {
	q := wire.DefaultRequest()
	q.ID, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = id, "flood", 100_000, true
	if edit != nil {
		edit(&q)
	}
	c.Request(&q)
}

// end waits for the request's eos or error event and passes over all others.
func (c *as) end(id string) wire.Event {
	c.t.Helper()
	for {
		if ev := c.nextEnd(); ev.ID == id {
			return ev
		}
	}
}

// ends are the eos or error events of n requests, by id.
func (c *as) ends(n int) map[string]wire.Event {
	c.t.Helper()
	all := map[string]wire.Event{}
	for range n {
		ev := c.nextEnd()
		all[ev.ID] = ev
	}
	return all
}

// nextEnd waits for the next eos or error event.
func (c *as) nextEnd() wire.Event { return c.next(wire.EventEOS, wire.EventError) }

// why asks about the user's requests. The connection must have no others.
func (c *as) why(q wire.WhyQuestion) *reports.WhyReport {
	c.t.Helper()
	c.Ask(&wire.Frame{Kind: wire.KindWhy, ID: "why", Why: q})
	var rep reports.WhyReport
	if err := json.Unmarshal(c.next(wire.EventReport).Report, &rep); err != nil {
		c.t.Fatal(err)
	}
	return &rep
}

// next waits for the next event of one of the kinds and passes over all others.
func (c *as) next(kinds ...wire.EventKind) wire.Event {
	c.t.Helper()
	for {
		ev := c.Take()
		switch {
		case ev == nil:
			if err := c.Err(); err != nil {
				c.t.Fatal(err)
			}
			waitfor.Recv(c.t, "an event", c.Wake())
		case slices.Contains(kinds, ev.Kind):
			return *ev
		}
	}
}

// TestOneUserFloods: in each of five ways one user sends more than the server takes; another user's requests are
// answered, and none of them is refused.
func TestOneUserFloods(t *testing.T) {
	const flooder, other, parallel, queue = 1001, 1002, 4, 16
	drain := func(c *as) { // reads for ever, so that only the flood's own limits hold
		for c.Err() == nil {
			if c.Take() == nil {
				<-c.Wake()
			}
		}
	}
	one := func(edit func(*wire.Request)) func(*running) {
		return func(r *running) {
			c := r.as(flooder)
			go drain(c)
			for i := range 3 * (parallel + queue) {
				c.send(fmt.Sprint(i), edit)
			}
		}
	}
	for name, flood := range map[string]func(*running){
		"many requests on one connection": one(nil),
		"many connections": func(r *running) {
			for range 3 * (parallel + queue) {
				c := r.as(flooder)
				go drain(c)
				c.send("x", nil)
			}
		},
		"background work": one(func(q *wire.Request) { q.Priority = wire.PriorityBackground }),
		"long prompts":    one(func(q *wire.Request) { q.Prompt = strings.Repeat("long ", 500) }),
		"a client that reads nothing": func(r *running) {
			c := r.as(flooder)
			for i := range 3 * (parallel + queue) {
				c.send(fmt.Sprint(i), func(q *wire.Request) { q.Sampling.Logprobs = 20 })
			}
		},
	} {
		for _, policy := range []string{"meridian", "uma"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				t.Parallel()
				r := serve(t, fake.Config{}, "--policy", policy,
					"--parallel", fmt.Sprint(parallel), "--max-queue", fmt.Sprint(queue), "-c", "20000", "-b", "512",
					"--no-prefix-cache")
				h := r.hold() // all of the flood comes before its first step
				flood(r)
				eventually(t, "the flood is refused for its share", func() bool {
					return r.metrics.Refusals.Value(admission.RefusedShare)+
						r.metrics.Refusals.Value(reason.QueueFull.String()) > 0
				})
				h.release()
				c := r.as(other)
				for i := range 3 {
					id := fmt.Sprint(i)
					c.send(id, func(q *wire.Request) { q.Prompt, q.MaxTokens = "hello", 3 })
					if ev := c.end(id); ev.Kind != wire.EventEOS {
						t.Fatalf("request %d: %+v", i, ev.Error)
					}
				}
			})
		}
	}
}

// TestDisplaced: the request whose place goes to another user ends with an error that says so and when to come again,
// and is counted by its reason; why tells the same.
func TestDisplaced(t *testing.T) {
	r := serve(t, fake.Config{}, "--parallel", "1", "--max-queue", "2")
	h := r.hold()
	flood := r.as(1001)
	for i := range 3 {
		flood.send(fmt.Sprint(i), func(q *wire.Request) { q.MaxTokens = 9 })
	}
	h.arrived(3)
	h.steps("one runs, two wait", func() bool {
		st := h.loop.core.Scheduler().Stats()
		return st.QueuedInteractive == 2
	})
	newcomer := r.as(1002)
	newcomer.send("n", func(q *wire.Request) { q.MaxTokens = 1 })
	h.arrived(1)
	h.release()
	ev := flood.end("2")
	if e := ev.Error; ev.Kind != wire.EventError || e.Code != wire.QueueLimit || e.RetryAfter <= 0 ||
		!strings.Contains(e.Message, "--max-queue") || !strings.Contains(e.Message, "another user") {
		t.Errorf("%+v", ev)
	}
	if ev := newcomer.end("n"); ev.Kind != wire.EventEOS {
		t.Errorf("%+v", ev.Error)
	}
	if n := r.metrics.Refusals.Value("displaced"); n != 1 {
		t.Errorf("%d are counted as displaced", n)
	}
	var why []reports.WhyRequest
	r.inLoop(func(l *loop) { why = l.why(wire.WhyQuestion{Request: "2"}, 1001, time.Now()).Requests })
	if len(why) != 1 || len(why[0].Decisions) == 0 || why[0].Decisions[len(why[0].Decisions)-1].Reason != "displaced" {
		t.Errorf("why says %+v", why)
	}
}

// TestWhyOfNothing: a report without requests has an empty list, which clients iterate over.
func TestWhyOfNothing(t *testing.T) {
	r := serve(t, fake.Config{})
	if _, body := get(t, r.web(), "/why"); !strings.Contains(string(body), `"requests":[]`) {
		t.Errorf("%s", body)
	}
}
