package core

import "fmt"

// DraftConfig describes the draft model's engine. The zero value means that there is none.
type DraftConfig struct {
	Sequences int // its ids are 0 … Sequences-1
	Cells     int // KV cells of all
	Batch     int // most tokens of one Decode
	// Tokens is the number of token ids, from 0 on, that both vocabularies share. The draft model reads other tokens as
	// token 0, and never guesses them.
	Tokens int
	Cost   float64 // see sched.Config.DraftCost
	// States: the draft model is a head, and the caller keeps the states of a request's newest rows, so many; 0 = it
	// reads tokens alone.
	States int `json:"states,omitempty"`
	// Block is the number of tokens that a head guesses for a request in one Decode (runtime.Head.Block); 0 = one.
	Block int `json:"block,omitempty"`
	// Shared: the head reads the model's cells and has none (runtime.Head.Shared). Cells is of no meaning then.
	Shared bool `json:"shared,omitempty"`
}

// blocks reports whether a Decode guesses several tokens of a request.
func (d *DraftConfig) blocks() bool { return d.Block > 1 }

// ahead returns the cells that so many guesses of a request take behind its history. The first token's row is that of
// the history's last token, but for a block, which takes its cells whole.
func (d *DraftConfig) ahead(guesses int) int {
	switch {
	case d.Shared:
		return 0
	case d.blocks() && guesses > 0:
		return d.Block
	}
	return max(0, guesses-1)
}

// Validate returns an error that names the first field out of range.
func (d *DraftConfig) Validate() error {
	if *d == (DraftConfig{}) {
		return nil
	}
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"sequences", d.Sequences, 1, MaxSequences}, {"cells", d.Cells, 1, 1 << 30}, {"batch", d.Batch, 1, 1 << 24},
		{"tokens", d.Tokens, 1, 1 << 30}, {"states", d.States, 0, 1 << 20}, {"block", d.Block, 0, MaxGuess},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("core: draft model: %s = %d: must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	if d.Shared && (d.States == 0 || d.blocks()) {
		return fmt.Errorf("core: draft model: it reads the model's cells, with %d states and blocks of %d", d.States,
			d.Block)
	}
	return nil
}
