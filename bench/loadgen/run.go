package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/bench/workload"
)

// target sends requests to a server. It fills rec and returns when the answer has ended.
type target interface {
	ask(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error
	close()
}

// client is a run.
type client struct {
	job   *Job
	start time.Time
	to    target
	done  func() // a request has ended
	dial  dialer
}

// dialer connects to a server. Tests use one with connections inside the process, for a fake clock.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// now returns the time of the run, ns.
func (c *client) now() int64 { return int64(time.Since(c.start)) }

// asked is the state of a request that depends on others.
type asked struct {
	rec      *Record
	messages []workload.Message
	children []int
	wanted   bool // a later turn needs the answer's text
}

// Run does a job. done is called, from several goroutines, whenever a request has ended; it may be nil.
func Run(ctx context.Context, j *Job, done func()) (*Result, error) {
	return run(ctx, j, done, (&net.Dialer{}).DialContext)
}

func run(ctx context.Context, j *Job, done func(), dial dialer) (*Result, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	if done == nil {
		done = func() {}
	}
	c := &client{job: j, done: done, dial: dial}
	if j.Target == "uma" {
		c.to = newUMA(c)
	} else {
		c.to = newHTTP(c, os.Getenv(j.KeyEnv))
	}
	defer c.to.close()
	state := make([]asked, len(j.Requests))
	for i := range j.Requests {
		if r := &j.Requests[i]; r.After >= 0 {
			parent := &state[r.After]
			parent.children = append(parent.children, i)
			parent.wanted = parent.wanted || r.Grow
		}
	}
	before := cpuTime()
	c.start = time.Now()
	if j.Workers > 0 {
		c.closedLoop(ctx, state)
	} else {
		c.openLoop(ctx, state)
	}
	res := &Result{WallNs: c.now(), CPUNs: int64(cpuTime() - before)}
	for i := range state {
		if state[i].rec != nil {
			res.Records = append(res.Records, state[i].rec)
		}
	}
	return res, context.Cause(ctx)
}

// closedLoop runs Workers clients that take the requests in order; the next turn of a chain is its worker's next
// request.
func (c *client) closedLoop(ctx context.Context, state []asked) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range c.job.Workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(state) || ctx.Err() != nil {
					return
				}
				if c.job.Requests[i].After < 0 {
					c.chain(ctx, state, i, c.now())
				}
			}
		})
	}
	wg.Wait()
}

// openLoop sends each request at its time.
func (c *client) openLoop(ctx context.Context, state []asked) {
	var order []int
	for i := range state {
		if c.job.Requests[i].After < 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(c.job.Requests[a].At - c.job.Requests[b].At) })
	var wg sync.WaitGroup
	for _, i := range order {
		at := c.job.Requests[i].At
		if !sleep(ctx, at-time.Since(c.start)) {
			break
		}
		wg.Go(func() { c.chain(ctx, state, i, int64(at)) })
	}
	wg.Wait()
}

// chain sends request i and then, concurrently, those that depend on it.
func (c *client) chain(ctx context.Context, state []asked, i int, due int64) {
	r := &c.job.Requests[i]
	if at := int64(r.At); due < at { // a chain may begin later than the request it follows
		if !sleep(ctx, time.Duration(at-c.now())) {
			return
		}
		due = at
	}
	if r.Until > 0 && c.now() >= int64(r.Until) {
		return
	}
	s := &state[i]
	s.messages = r.Messages
	if r.Grow {
		parent := &state[r.After]
		s.messages = slices.Concat(parent.messages,
			[]workload.Message{{Role: "assistant", Content: parent.rec.text.String()}}, r.Messages)
	}
	rec := &Record{Index: i, Due: due}
	s.rec = rec
	c.one(ctx, r, s, rec)
	c.done()
	if rec.Err != "" && len(s.children) > 0 && r.Measured {
		return // the conversation lacks its turn
	}
	var wg sync.WaitGroup
	for k, child := range s.children {
		follow := func() {
			if sleep(ctx, c.job.Requests[child].Pause) {
				c.chain(ctx, state, child, c.now())
			}
		}
		if k == len(s.children)-1 {
			follow()
			break
		}
		wg.Go(follow)
	}
	wg.Wait()
}

func (c *client) one(ctx context.Context, r *workload.Request, s *asked, rec *Record) {
	if r.Until > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, c.start.Add(r.Until), errCut)
		defer cancel()
	}
	if c.job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.job.Timeout, errTimeout)
		defer cancel()
	}
	rec.Graded = r.Answer != ""
	rec.Sent = c.now()
	err := c.to.ask(ctx, r, s.messages, rec)
	if rec.End == 0 {
		rec.End = c.now()
	}
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	if err == nil && r.Output >= workload.Endless {
		err = fmt.Errorf("it ended before the workload did (%s): the server's context is full, start it with a "+
			"larger one", rec.Reason)
	}
	var skipped skipError
	switch {
	case err == nil:
	case errors.Is(err, errCut):
		rec.Cut = true
	case errors.As(err, &skipped):
		rec.Skipped = string(skipped)
	default:
		rec.Err = err.Error()
	}
	if rec.Graded && rec.Err == "" {
		rec.Right = rec.Reason == "stop" && r.Right(rec.text.String())
	}
	if !s.wanted {
		rec.text = strings.Builder{}
	}
}

var (
	errCut     = errors.New("the workload has ended")
	errTimeout = errors.New("no answer within --timeout")
)

// skipError says that the server lacks a protocol or an option.
type skipError string

func (e skipError) Error() string { return string(e) }

// sleep waits for d, and returns false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Token notes that a token came at time now. Its text is kept when a grader or a later turn needs it.
func (r *Record) Token(now int64, thinking bool, text string, keep bool) {
	if thinking {
		r.Think = append(r.Think, now)
		return
	}
	r.Output = append(r.Output, now)
	if text == "" {
		return
	}
	if r.Visible == 0 {
		r.Visible = now
	}
	if keep {
		r.text.WriteString(text)
	}
}
