package core

import (
	"fmt"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
)

// TestNoAnswerGoesFirst: 32 thinking sessions that want three times the pool. No cell of an answer that a preempted request
// will continue is evicted while an idle prefix is there, or a thought that was copied out; thoughts come back before their
// requests run; and every session says what it says alone.
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
					r := &Request{ID: ID(i + 1), Owner: 1, Tokens: stream(fmt.Sprint("p", i), prompt+i%7), MaxTokens: think + answer,
						Control: &script{think: think + i%9}}
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
								t.Fatalf("step %d: %d cells of answers were evicted while there is %s\n%s", step, after-before, what,
									m.c.tree.Dump())
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
				t.Logf("%d thoughts came back, %d tokens were restored; evicted for want of cells: %v; %d avoidable", ingested, restored,
					e.Cells, m.c.Avoidable())
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

// below names cells that the block manager evicts before answers and that can be evicted: an idle prefix, or a thought of a
// preempted request that was copied out.
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
