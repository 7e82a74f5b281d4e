package core

import (
	"fmt"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// TestNoAnswerGoesFirst: 32 thinking sessions that want three times the pool. No cell of an answer that a preempted
// request will continue is evicted while an idle prefix is there, or a thought that was copied out; thoughts come
// back before their requests run; and every session says what it says alone.
func TestNoAnswerGoesFirst(t *testing.T) {
	const sessions, prompt, think, answer = 32, 16, 40, 130
	for _, policy := range []string{"uma", "meridian"} {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clients pause %t", policy, paused), func(t *testing.T) {
				cfg := testConfig(sessions*(prompt+think+answer)/3, sessions, 128, policy)
				cfg.PartTokens, cfg.ThinkEvict = 16, OffloadThoughts
				m, err := newMachine(cfg)
				if err != nil {
					t.Fatal(err)
				}
				l := &life{machine: m, vocab: 1 << 30}
				var asked []*Request
				for i := range sessions {
					r := &Request{ID: ID(i + 1), Spec: &Spec{Spec: sched.Spec{Owner: 1, MaxTokens: think + answer}},
						Tokens: stream(fmt.Sprint("p", i), prompt+i%7), Control: &script{think: think + i%9}}
					r.Prompt = len(r.Tokens)
					asked = append(asked, r)
					m.arrive(r)
				}
				ingested, restored, waiting := 0, 0, map[ID]bool{}
				for step := 0; len(m.want) > 0; step++ {
					if step > 20_000 {
						t.Fatalf("%d sessions never end", len(m.want))
					}
					if paused {
						id := ID(step%sessions + 1)
						kind := Pause
						if waiting[id] {
							kind = Resume
						}
						if waiting[id] = !waiting[id]; m.want[id] != nil {
							m.c.Handle(m.now, Input{Kind: kind, Req: id})
						}
					}
					before, had := m.c.ledger.Evictions().Cells[blocks.OutputCritical][blocks.Pressure], m.below()
					s := m.next()
					for i := range s.Notes {
						switch s.Notes[i].Kind {
						case Ingested:
							ingested++
						case Restored:
							restored += s.Notes[i].N
						}
					}
					if after := m.c.ledger.Evictions().Cells[blocks.OutputCritical][blocks.Pressure]; after > before {
						for what := range m.below() { // and what this step made idle or preempted does not count
							if had[what] {
								t.Fatalf("step %d: %d cells of answers were evicted while there is %s\n%s", step,
									after-before, what, m.c.tree.Dump())
							}
						}
					}
					m.done(sched.StepOK, func(r *Request, _ int) (Token, bool) { return l.says(r.Tokens), false })
					m.now = max(m.now, s.WakeAt)
				}
				for _, r := range asked {
					if r.Generated() != think+answer {
						t.Errorf("session %d said %d tokens", r.ID, r.Generated())
					}
					for i := r.Prompt; i < len(r.Tokens); i++ {
						if r.Tokens[i] != l.says(r.Tokens[:i]) {
							t.Fatalf("session %d: token %d is not what it says alone", r.ID, i)
						}
					}
				}
				e := m.c.ledger.Evictions()
				t.Logf("%d thoughts came back, %d tokens were restored; evicted for want of cells: %v; %d avoidable",
					ingested, restored, e.Cells, m.c.Avoidable())
				if ingested == 0 || e.Cells[blocks.ThinkComplete][blocks.Pressure] == 0 {
					t.Error("no thought went out and came back: the test shows nothing")
				}
				if m.c.Avoidable() > 0 && !paused {
					t.Errorf("%d blocks of answers were preempted while lower tiers had cells", m.c.Avoidable())
				}
			})
		}
	}
}

// place names cells that can be evicted.
type place struct {
	req   uint64
	ns    uint64
	tier  blocks.Tier
	alone bool // a thought that was copied out and can go before the answer behind it
}

// evictable returns the ends of cached prefixes and the thoughts that eviction may begin with.
func (m *machine) evictable() map[place]bool {
	out := map[place]bool{}
	for _, s := range m.c.tree.Spans(nil) {
		if s.State == blocks.Cached && s.End {
			out[place{s.Req, s.NS, s.Tier, false}] = true
		}
	}
	for id, r := range m.c.requests {
		if _, _, away := m.c.tree.Away(uint64(id)); r.thought.stored && !away && m.c.tree.Parked(uint64(id)) != NoSeq {
			if from, to := m.c.tree.Thought(m.c.tree.Parked(uint64(id))); to > 0 && from == r.thought.from {
				out[place{uint64(id), r.Space(), blocks.ThinkComplete, true}] = true
			}
		}
	}
	return out
}

// inOrder returns an error if a step evicted cells of a tier for want of cells while some of an earlier tier could have
// gone: cells that were evictable before it, had, and still are.
func (m *machine) inOrder(before [blocks.NumTiers][blocks.NumReasons]uint64, had map[place]bool) error {
	after := m.c.ledger.Evictions().Cells
	for tier := range blocks.NumTiers {
		n := after[tier][blocks.Pressure] - before[tier][blocks.Pressure]
		if n == 0 || tier == blocks.Prefix {
			continue
		}
		for p := range m.evictable() {
			if had[p] && p.tier.Before(tier) {
				return fmt.Errorf("%d cells of %v were evicted while there is %+v (%v)\n%s", n, tier, p, p.tier,
					m.c.tree.Dump())
			}
		}
	}
	return nil
}

// below names cells that the block manager evicts before answers and that can be evicted: an idle prefix, or a
// thought of a preempted request that was copied out.
func (m *machine) below() map[string]bool {
	out := map[string]bool{}
	for _, s := range m.c.tree.Spans(nil) {
		if s.State == blocks.Cached && s.Holders.Parked == 0 {
			out[fmt.Sprintf("an idle prefix of request %d", s.Req)] = true
		}
	}
	for id, r := range m.c.requests {
		if _, _, away := m.c.tree.Away(uint64(id)); r.thought.stored && !away && m.c.tree.Parked(uint64(id)) != NoSeq {
			if from, to := m.c.tree.Thought(m.c.tree.Parked(uint64(id))); to > 0 && from == r.thought.from {
				out[fmt.Sprintf("the thought of request %d", id)] = true
			}
		}
	}
	return out
}

// thoughtOnEngine: a background answer is preempted behind its thought, whose cells go out alone and come back; at
// each token the engine would say what it says to the same history alone. A second one loses its answer too.
func thoughtOnEngine(t *testing.T, eng, alone runtime.Engine) {
	t.Helper()
	s := shapeOf(eng)
	for _, second := range []int{s.cells * 2 / 5, s.cells * 9 / 16} { // the thought goes, or the answer with it
		for seq := range Seq(s.sequences) {
			eng.SeqRemove(seq, 0, -1)
		}
		cfg := testConfig(s.cells, 2, min(32, s.batch), "uma")
		cfg.Sequences, cfg.PartTokens, cfg.ThinkEvict = s.sequences, 16, OffloadThoughts
		m, err := newMachine(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m.eng = eng
		l := &life{machine: m, vocab: s.vocab}
		ask := func(id ID, name string, prompt, tokens, think int, class sched.Class) *Request {
			r := &Request{ID: id, Tokens: stream(name, prompt), Control: &script{think: think},
				Spec: &Spec{Spec: sched.Spec{Owner: 1, Class: class, Prompt: prompt, MaxTokens: tokens}}}
			for i := range r.Tokens {
				r.Tokens[i] %= Token(s.vocab / 2)
			}
			m.arrive(r)
			return r
		}
		said := map[ID][]Token{}
		ingested, restored := 0, 0
		run := func(until func() bool) {
			for step := 0; !until(); step++ {
				if step > 5000 {
					t.Fatal("it never ends")
				}
				st := m.next()
				for i := range st.Notes {
					switch st.Notes[i].Kind {
					case Ingested:
						ingested++
					case Restored:
						restored += st.Notes[i].N
					}
				}
				m.done(sched.StepOK, func(r *Request, row int) (Token, bool) {
					said[r.ID] = append(said[r.ID], argmax(eng.Logits(row)))
					return l.says(r.Tokens), false
				})
			}
		}
		first := ask(1, "a", 84, 100, 50, sched.Background)
		run(func() bool { return first.Generated() == 80 })
		other := ask(2, "b", second-20, 20, 0, sched.Interactive)
		run(func() bool { return len(m.want) == 0 })
		if ingested+restored == 0 {
			t.Errorf("beside %d cells no thought came back: the test shows nothing", second)
		}
		t.Logf("beside %d cells: %d thoughts came back in place, %d tokens were restored", second, ingested, restored)
		for _, r := range []*Request{first, other} {
			for i, row := range solo(t, alone, r.Tokens, r.Prompt) {
				want := argmax(row)
				if said[r.ID][i] != want {
					t.Fatalf("beside %d cells: request %d: token %d would be %d, alone it is %d", second, r.ID, i,
						said[r.ID][i], want)
				}
			}
		}
	}
}

// TestThoughtOnFake is thoughtOnEngine on the fake engine. llama.cpp is in llama_test.go.
func TestThoughtOnFake(t *testing.T) {
	f := fake.Config{Seed: 7}
	f.ContextTokens, f.Batch, f.Sequences = 240, 32, 24
	thoughtOnEngine(t, fake.New(f), fake.New(f))
}
