package core

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// TestScripts runs the stories of testdata/*.txt: interleavings of inputs and steps, and what the core decides.
// Commands:
//
//	new cells=N running=N batch=N [policy=P] [store=PART] [evict=MODE] [shift] [fixed] [price]
//	arrive ID prompt=NAME:N[+NAME:N…] [max=N] [owner=N] [background] [chat] [think=N] [probe=AFTER:ROWS] [system=N]
//	       [embed [every-row] [whole]] [guess=N] [says=NAME:N+…]
//	cancel ID / pause ID / resume ID / end-think ID / drain / pin N / drop N
//	history ID [NAME:N+…]                what the next turn begins with
//	part ID                              the next part of restore ID comes to hand; `broken` as well: there is none
//	next                                 decide, carry out what comes before the batch, print it
//	done [eog=ID,…] [kvfull|failed]      decode, answer every row
//	run [N]                              next and done until idle, or N times; prints only what is no plain decode
//	books                                cells by kind
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Cmd + " " + args(d) + "\n" + d.Input) {
				if f := strings.Fields(line); len(f) > 0 {
					if f[0] == "new" {
						m = scripted(t, f[1:])
						continue
					}
					m.command(t, f[0], f[1:], &out)
				}
			}
			return out.String()
		})
	})
}

// args is the rest of a directive's first line, as it was written.
func args(d *datadriven.TestData) string {
	var out []string
	for _, a := range d.CmdArgs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%q is no number", s)
	}
	return n
}

func scripted(t *testing.T, words []string) *machine {
	cells, running, batch, policy, part, evict, shift, fixed, price := 256, 4, 64, "uma", 0, "", false, false, false
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "cells":
			cells = number(t, v)
		case "running":
			running = number(t, v)
		case "batch":
			batch = number(t, v)
		case "policy":
			policy = v
		case "store":
			part = number(t, v)
		case "evict":
			evict = v
		case "shift":
			shift = true
		case "price":
			price = true
		case "fixed":
			fixed = true
		default:
			t.Fatalf("new: %q is unknown", w)
		}
	}
	cfg := testConfig(cells, running, batch, policy)
	cfg.PartTokens, cfg.ThinkEvict, cfg.ContextShift, cfg.Seals = part, evict, shift, fixed
	cfg.ByPrice = price
	m, err := newMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tokens reads NAME:N+NAME:N.
func tokens(t *testing.T, s string) (out []Token) {
	for part := range strings.SplitSeq(s, "+") {
		name, n, _ := strings.Cut(part, ":")
		out = append(out, stream(name, number(t, n))...)
	}
	return out
}

func (m *machine) command(t *testing.T, name string, words []string, out *strings.Builder) {
	id := func() ID { return ID(number(t, words[0])) }
	switch name {
	case "arrive":
		m.arrive(arrival(t, words))
		for _, w := range words {
			if v, ok := strings.CutPrefix(w, "says="); ok {
				m.says[id()] = tokens(t, v)
			}
		}
	case "cancel", "pause", "resume", "end-think", "drain":
		in := Input{Kind: map[string]InputKind{"cancel": Cancel, "pause": Pause, "resume": Resume,
			"end-think": EndThink, "drain": Drain}[name]}
		if name != "drain" {
			in.Req = id()
		}
		m.c.Handle(m.now, in)
	case "history":
		in := Input{Kind: History, Req: id()}
		if len(words) > 1 {
			in.Tokens = tokens(t, words[1])
		}
		m.c.Handle(m.now, in)
	case "threads":
		m.c.Handle(m.now, Input{Kind: Threads, N: number(t, words[0]), Disturbed: len(words) > 1})
	case "wait": // milliseconds
		m.now = m.now.Add(time.Duration(number(t, words[0])) * time.Millisecond)
	case "fast":
		m.store.slow = false
	case "slow":
		m.store.slow = true
	case "full":
		m.store.full = true
	case "part":
		f := m.store.fetches[RestoreID(number(t, words[0]))]
		if f == nil {
			out.WriteString("no such restore\n")
			return
		}
		f.broken = len(words) > 1 && words[1] == "broken"
		m.atHand(RestoreID(number(t, words[0])))
	case "pin":
		if err := m.c.Pin(uint64(number(t, words[0]))); err != nil {
			fmt.Fprintln(out, err)
		}
	case "drop":
		if err := m.c.Drop(uint64(number(t, words[0]))); err != nil {
			fmt.Fprintln(out, err)
		}
	case "next":
		out.WriteString(m.next().String())
	case "done":
		m.doneWords(t, words)
	case "run":
		m.run(t, words, out)
	case "books":
		c := m.c.tree.Cells()
		fmt.Fprintf(out, "own %d shared %d cached %d pinned %d free %d\n", c.Own, c.Shared, c.Cached, c.Pinned, c.Free)
	default:
		t.Fatalf("command %q is unknown", name)
	}
}

func (m *machine) doneWords(t *testing.T, words []string) {
	outcome, ends := sched.StepOK, map[ID]bool{}
	for _, w := range words {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "kvfull":
			outcome = sched.StepKVFull
		case "failed":
			outcome = sched.StepFailed
		case "aborted":
			outcome = sched.StepAborted
		case "eog":
			for s := range strings.SplitSeq(v, ",") {
				ends[ID(number(t, s))] = true
			}
		default:
			t.Fatalf("done: %q is unknown", w)
		}
	}
	m.done(outcome, func(r *Request, _ int) (Token, bool) {
		if n := r.Generated(); n < len(m.says[r.ID]) {
			return m.says[r.ID][n], ends[r.ID]
		}
		return 1000 + Token(r.Generated()), ends[r.ID]
	})
}

// run repeats next and done, and prints the steps that do more than decode.
func (m *machine) run(t *testing.T, words []string, out *strings.Builder) {
	n := 1000
	if len(words) > 0 {
		n = number(t, words[0])
	}
	for range n {
		s := m.next()
		for line := range strings.Lines(s.String()) {
			if !strings.HasPrefix(line, "decode") && line != "idle\n" {
				out.WriteString(line)
			}
		}
		idle := s.Idle
		m.doneWords(t, nil)
		if idle && s.WakeAt == 0 {
			return
		}
		m.now = max(m.now, s.WakeAt)
	}
}

func arrival(t *testing.T, words []string) *Request {
	r := &Request{ID: ID(number(t, words[0])), Spec: &Spec{Spec: sched.Spec{MaxTokens: 8, Owner: 1}}}
	s := &script{}
	r.Control = s
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "prompt":
			r.Tokens = tokens(t, v)
			r.Prompt = len(r.Tokens)
		case "max":
			r.MaxTokens = number(t, v)
		case "owner":
			r.Owner = uint32(number(t, v))
		case "background":
			r.Class = sched.Background
		case "embed":
			r.Kind, r.Control, r.MaxTokens = Embed, nil, 1
		case "every-row":
			r.EveryRow = true
		case "whole":
			r.Whole = true
		case "chat":
			r.Chat = true
		case "guess":
			r.Speculate = number(t, v)
		case "says":
		case "think":
			s.think = number(t, v)
		case "probe":
			at, rows, _ := strings.Cut(v, ":")
			s.forks = map[int]int{number(t, at): number(t, rows)}
		case "system":
			r.Shareable = number(t, v)
			r.Keep = r.Shareable
		default:
			t.Fatalf("arrive: %q is unknown", w)
		}
	}
	return r
}

var _ Thinking = (*meridian.Control)(nil)
