package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/bench/soak"
	uma "github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// event plays one event of the day.
func (r *soakRun) event(ev soak.Event) {
	rng := rand.New(rand.NewPCG(ev.Seed, 1))
	err := [soak.Kinds]func(*rand.Rand) error{
		soak.Chat: r.chat, soak.Agent: r.agent, soak.Cancel: r.cancel, soak.SlowReader: r.slow,
		soak.Restart: r.restart, soak.Storm: r.storm, soak.Switch: r.switches, soak.DiskFault: r.diskFault,
		soak.FabricFault: r.fabricFault, soak.ClockJump: r.clockJump,
	}[ev.Kind](rng)
	if err != nil {
		r.rep.Broken("%v after %v: %v", ev.Kind, time.Since(r.begin).Round(time.Second), err)
	}
}

// errStuck is the cause of a request's end when no event of it came for SoakConfig.Stuck.
var errStuck = errors.New("no progress")

// question is a chat with a model whose answer is the same each time: greedy, and no thought is ended by a signal.
func (r *soakRun) question(rng *rand.Rand, model string) *wire.Request {
	q := wire.DefaultRequest()
	q.Model, q.MaxTokens, q.Sampling.Temperature = model, 96, 0
	q.Think.EarlyExit = wire.ExitOff
	q.Messages = []wire.Message{{Role: "user", Content: r.Questions[rng.IntN(min(len(r.Questions), 64))]}}
	return &q
}

// reading describes the way in which a client reads an answer.
type reading struct {
	timed bool                   // its latencies count
	free  bool                   // it may be any, and it may be refused
	after int                    // tokens after which then is called; 0 = never
	then  func(*uma.Stream) bool // false: leave it
}

// ask reads an answer to its end, or to where how.then leaves it, and compares it with the one of before.
func (r *soakRun) ask(c *uma.Client, q *wire.Request, how reading) (text string, calls []wire.ToolCall, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	begin := time.Now()
	watchdog := time.AfterFunc(r.Stuck, func() { cancel(errStuck) })
	defer watchdog.Stop()
	st, err := c.Stream(ctx, q)
	var b strings.Builder
	var call *wire.ToolCall
	var gaps []float64
	tokens, last, first := 0, begin, 0.0
	for err == nil {
		var ev *wire.Event
		if ev, err = st.Next(); err != nil {
			break
		}
		watchdog.Reset(r.Stuck)
		switch ev.Kind {
		case wire.EventToken:
			now := time.Now()
			if tokens++; tokens == 1 {
				first = ms(now.Sub(begin))
			} else {
				gaps = append(gaps, ms(now.Sub(last)))
			}
			last = now
			b.Write(ev.Token.Text)
			if tokens == how.after && !how.then(st) {
				return b.String(), calls, nil
			}
		case wire.EventToolCall:
			if part := &ev.ToolCall; part.Name != "" {
				calls = append(calls, wire.ToolCall{ID: part.CallID, Name: part.Name})
				call = &calls[len(calls)-1]
			}
			call.Arguments += string(ev.ToolCall.Arguments)
		}
	}
	refused, _ := errors.AsType[*uma.ServerError](err)
	switch {
	case errors.Is(err, errStuck):
		r.rep.Stuck("%s said %.60q, then nothing for %v after %d tokens, %v after it was asked", q.Model, b.String(),
			r.Stuck, tokens, time.Since(begin).Round(time.Millisecond))
		return "", nil, nil
	case how.free && refused != nil && refused.Code == wire.QueueLimit:
		r.rep.Count("refused in a storm", 1)
		return "", nil, nil
	case err != io.EOF:
		return "", nil, err
	}
	r.rep.Count("answers", 1)
	r.rep.Count("tokens", tokens)
	if how.timed {
		r.mu.Lock()
		r.ttft, r.itl = append(r.ttft, first), append(r.itl, gaps...)
		r.mu.Unlock()
	}
	if !how.free && st.End().Reason != wire.Cancelled {
		r.check(q, b.String()+spelled(calls))
	}
	return b.String(), calls, nil
}

// spelled returns the calls as text, without their ids, which are the server's.
func spelled(calls []wire.ToolCall) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, " %s(%s)", c.Name, c.Arguments)
	}
	return b.String()
}

// check compares the answer to q with the answer that was given to it first.
func (r *soakRun) check(q *wire.Request, got string) {
	plain := *q
	plain.ID = ""
	key := string(frames.AppendRequest(nil, &plain, &defaults))
	r.mu.Lock()
	want, known := r.want[key]
	if !known {
		r.want[key] = got
	}
	r.mu.Unlock()
	if known && got != want {
		r.rep.Wrong("%s was asked %.80q and said %.200q, before %.200q", q.Model, q.Messages[len(q.Messages)-1].Content,
			got, want)
	}
}

// dialed runs fn with a connection.
func (r *soakRun) dialed(fn func(*uma.Client) error) error {
	c, err := uma.Dial(context.Background(), r.p.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}

func (r *soakRun) chat(rng *rand.Rand) error {
	return r.dialed(func(c *uma.Client) error {
		_, _, err := r.ask(c, r.question(rng, soakModel), reading{timed: true})
		return err
	})
}

// soakTool is a function whose calls are short.
var soakTool = wire.Tool{Name: "look_up", Description: "Looks a number up.", Strict: true,
	Parameters: []byte(`{"type":"object","properties":{"table":{"enum":["a","b","c"]},"row":{"enum":[1,2,3,5,8]}},` +
		`"required":["table","row"],"additionalProperties":false}`)}

// agent calls a tool, says what it returned and continues, over rounds that share their beginning.
func (r *soakRun) agent(rng *rand.Rand) error {
	return r.dialed(func(c *uma.Client) error {
		q := r.question(rng, soakModel)
		q.Tools = []wire.Tool{soakTool}
		for range 3 {
			q.ToolChoice = wire.ToolChoice{Mode: wire.ToolRequired}
			text, calls, err := r.ask(c, q, reading{})
			if err != nil {
				return err
			}
			q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: text, ToolCalls: calls})
			for i, call := range calls {
				calls[i].ID = fmt.Sprint("call", i) // the server's differ each time
				q.Messages = append(q.Messages, wire.Message{Role: "tool", Name: call.Name, ToolCallID: calls[i].ID,
					Content: fmt.Sprint(len(call.Arguments) % 7)})
			}
			q.ToolChoice = wire.ToolChoice{Mode: wire.ToolNone}
			if text, _, err = r.ask(c, q, reading{}); err != nil {
				return err
			}
			q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: text},
				wire.Message{Role: "user", Content: "Go on."})
		}
		return nil
	})
}

// cancel cancels an answer, or asks for the end of its thinking and lets it finish.
func (r *soakRun) cancel(rng *rand.Rand) error {
	return r.dialed(func(c *uma.Client) error {
		q := r.question(rng, soakModel)
		_, _, err := r.ask(c, q, reading{free: true, after: 1 + rng.IntN(12), then: func(st *uma.Stream) bool {
			if rng.IntN(4) == 0 {
				st.EndThink()
			} else {
				st.Cancel()
			}
			return true
		}})
		return err
	})
}

// restart ends a client in the middle of two answers, without a word, and asks one of them again.
func (r *soakRun) restart(rng *rand.Rand) error {
	again := r.question(rng, soakModel)
	err := r.dialed(func(c *uma.Client) error {
		var others sync.WaitGroup
		other := r.question(rng, soakModel)
		others.Go(func() { r.ask(c, other, reading{free: true}) }) // it ends with the connection
		_, _, err := r.ask(c, again, reading{free: true, after: 1 + rng.IntN(12), then: func(*uma.Stream) bool {
			c.Close()
			return false
		}})
		others.Wait()
		return err
	})
	if err != nil {
		return err
	}
	return r.dialed(func(c *uma.Client) error {
		_, _, err := r.ask(c, again, reading{})
		return err
	})
}

// storm sends prompts that no other request shares, of both classes.
func (r *soakRun) storm(rng *rand.Rand) error {
	return r.dialed(func(c *uma.Client) error {
		n := 4 + rng.IntN(8)
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			q := wire.DefaultRequest()
			q.Model, q.MaxTokens = soakModel, 4+rng.IntN(12)
			q.Prompt = prompt(rng.IntN(1<<30), 950, 100+rng.IntN(400))
			if i%2 == 1 {
				q.Priority = wire.PriorityBackground
			}
			all.Go(func() { _, _, errs[i] = r.ask(c, &q, reading{free: true}) })
		}
		all.Wait()
		return errors.Join(errs...)
	})
}

// switches asks the other model.
func (r *soakRun) switches(rng *rand.Rand) error {
	return r.dialed(func(c *uma.Client) error {
		for range 3 {
			if _, _, err := r.ask(c, r.question(rng, soakOther), reading{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// slow reads the first token of an answer, then nothing for a while, so that the daemon's buffers for it fill up and
// its request is paused, then the rest. Twenty probabilities with each token fill them soon.
func (r *soakRun) slow(rng *rand.Rand) error {
	c, err := dial(r.p.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	q := r.question(rng, soakModel)
	q.ID, q.MaxTokens, q.Sampling.IgnoreEOS, q.Sampling.Logprobs = "slow", 600, true, 20
	if err := c.send(q); err != nil {
		return err
	}
	var b strings.Builder
	for {
		c.SetReadDeadline(time.Now().Add(r.Stuck))
		ev, err := c.next()
		switch {
		case err != nil:
			return err
		case ev.Kind == wire.EventToken:
			if b.Len() == 0 {
				time.Sleep(time.Duration((0.5 + rng.Float64()) * float64(r.Fault)))
			}
			b.Write(ev.Token.Text)
		case ev.Kind == wire.EventError:
			return fmt.Errorf("%s: %s", ev.Error.Code, ev.Error.Message)
		case ev.Kind == wire.EventEOS:
			r.rep.Count("answers", 1)
			r.check(q, b.String())
			return nil
		}
	}
}
