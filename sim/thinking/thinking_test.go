package thinking

import (
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
)

// think lets phase control follow a thought of length tokens on its course, and says how it ended and after how many
// tokens.
func think(t *testing.T, m *Model, cfg *meridian.Config, seed uint64, length int) (meridian.Ended, int) {
	t.Helper()
	ctl, err := meridian.NewControl(cfg, m.Tags, cfg.Options(), meridian.Begin{Thinking: true})
	if err != nil {
		t.Fatal(err)
	}
	course := NewCourse(seed, length)
	for now := int64(1); ctl.Phase() == meridian.ThinkDecode; now++ {
		n := ctl.ThinkTokens()
		if n > length {
			t.Fatalf("a thought of %d tokens goes on after %d", length, n)
		}
		if ctl.NeedStats() {
			row := course.Row(n)
			ctl.Observe(&row)
		}
		tok, forced := ctl.Next(now)
		if !forced {
			if tok = m.Thought(n); n >= length {
				tok = m.Close
			}
			tok, _ = ctl.Admit(tok, m.Vocab.Piece(tok), false, now)
		}
		ctl.OnToken(tok, m.Vocab.Piece(tok), false, now)
		if _, due := ctl.ProbeDue(); due {
			ctl.OnProbe(course.Probe(ctl.ThinkTokens()))
		}
	}
	sum := ctl.Summary(0)
	return sum.Ended, sum.Tokens
}

// TestCourses: with the default thresholds each kind of thought ends as its name says, behind its turn, and an open one
// as the model decides.
func TestCourses(t *testing.T) {
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	cfg := meridian.DefaultConfig()
	cfg.EarlyExit = meridian.ExitBoth
	const length, thoughts = 5000, 400
	want := [...]meridian.Ended{Open: meridian.EndedNatural, Settles: meridian.EndedConverged,
		Stalls: meridian.EndedStalled, Drifts: meridian.EndedOverthinking}
	var kinds [4]int
	for seed := range uint64(thoughts) {
		c := NewCourse(seed, length)
		kinds[c.Kind]++
		how, tokens := think(t, m, &cfg, seed, length)
		if how != want[c.Kind] {
			t.Errorf("thought %d of kind %d ended %v after %d tokens, want %v", seed, c.Kind, how, tokens, want[c.Kind])
		}
		if c.Kind == Drifts && tokens < c.Turn || c.Kind == Open && tokens != length {
			t.Errorf("thought %d of kind %d turned at %d and ended after %d tokens", seed, c.Kind, c.Turn, tokens)
		}
		if c.Turn < length*3/10 || c.Turn > length*6/10 {
			t.Errorf("thought %d turns at %d of %d", seed, c.Turn, length)
		}
	}
	for kind, share := range map[Kind]float64{Settles: settleShare, Stalls: stallShare, Drifts: driftShare} {
		if got := float64(kinds[kind]) / thoughts; got < share-0.08 || got > share+0.08 {
			t.Errorf("kind %d: %.2f of the thoughts, want about %.2f", kind, got, share)
		}
	}
}

// TestShortThoughtsAreLeftAlone: no signal ends a thought before min_think_tokens.
func TestShortThoughtsAreLeftAlone(t *testing.T) {
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	cfg := meridian.DefaultConfig()
	cfg.EarlyExit = meridian.ExitBoth
	for seed := range uint64(50) {
		if how, tokens := think(t, m, &cfg, seed, 500); how != meridian.EndedNatural || tokens != 500 {
			t.Errorf("thought %d of 500 tokens ended %v after %d", seed, how, tokens)
		}
	}
}
