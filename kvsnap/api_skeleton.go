package kvsnap

import "errors"

// Tree is the index of what the KV pool holds, token by token, and the ledger of its cells. See the package comment.
// It belongs to one goroutine.
//
// It reads a running request's tokens in the caller's own slice (Prompt.Tokens, and what Progress is given) until
// Retain or Release; they may grow, but those it has been told of must not change until then. A cached prefix has its
// own copy.
type Tree struct{ cfg Config }

// New makes the tree of an empty pool.
func New(cfg Config) (*Tree, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Tree{cfg: cfg}, nil
}

// Lookup says what Start would share, and changes nothing: for admission, and for `uma-cli`.
func (t *Tree) Lookup(p *Prompt) Match { panic("skeleton") }

// Start gives a request a sequence and the cells it can share, or says on whom to wait. On Held nothing has changed
// but that the tree remembers to wake it; call Cancel when the request goes away meanwhile. Start first, then make
// room for the rest with EvictCells: what the request shares is then safe.
func (t *Tree) Start(now Instant, p *Prompt) (Started, error) { panic("skeleton") }

// Cancel forgets a request that is held.
func (t *Tree) Cancel(req uint64) { panic("skeleton") }

// Progress tells that sequence s now holds the first computed of tokens (its prompt and what was generated; the slice
// replaces the one before and begins with the same tokens). Call it after each Decode for each of its sequences: a
// decoded token costs O(1) and no allocation. It returns the held requests to start now, nil for nearly every call.
func (t *Tree) Progress(s Seq, tokens []Token, computed int) (wake []uint64) { panic("skeleton") }

// Stall says that a running request makes no progress for now (its client does not read): nobody waits for it any
// more, and those who did are returned. Stall(s, false) takes that back.
func (t *Tree) Stall(s Seq, stalled bool) (wake []uint64) { panic("skeleton") }

// Retain ends a running request. What it has computed of history — the tokens that its next turn is expected to begin
// with — stays as a cached prefix, the rest goes. history may be longer or shorter than what was computed; nil keeps
// nothing.
func (t *Tree) Retain(now Instant, s Seq, history []Token) Ended { panic("skeleton") }

// Release ends a running request and keeps nothing.
func (t *Tree) Release(s Seq) Ended { panic("skeleton") }

// EvictCells frees at least n cells held by cached prefixes, or all it can: least worth keeping first, tails before
// heads. The victims say what goes, for a copy to be made first; then carry out the actions.
func (t *Tree) EvictCells(n int) (freed int, victims []Victim, actions []Action) { panic("skeleton") }

// Evictable is the number of cells EvictCells can free.
func (t *Tree) Evictable() int { panic("skeleton") }

// Cells is the pool now. O(1).
func (t *Tree) Cells() Cells { panic("skeleton") }

// Own is the number of cells that end with the running sequence s, because nobody else holds them.
func (t *Tree) Own(s Seq) int { panic("skeleton") }

// ScratchSeq is the i-th sequence id that the tree never hands out, 0 ≤ i < Config.Scratch.
func (t *Tree) ScratchSeq(i int) Seq { return Seq(t.cfg.Sequences - 1 - i) }

// Pin keeps a cached prefix from eviction; Unpin takes that back.
func (t *Tree) Pin(entry uint64) error   { panic("skeleton") }
func (t *Tree) Unpin(entry uint64) error { panic("skeleton") }

// Drop removes a cached prefix, pinned or not.
func (t *Tree) Drop(entry uint64) (Ended, error) { panic("skeleton") }

// Find returns the entries that name means: an entry's number, or the beginning (at least 4 digits) of its hash.
func (t *Tree) Find(name string) []uint64 { panic("skeleton") }

// Tokens are the tokens of a cached prefix; not to be written.
func (t *Tree) Tokens(entry uint64) ([]Token, error) { panic("skeleton") }

// Entry is a resident sequence as `uma-cli kv` shows it.
type Entry struct {
	ID       uint64  `json:"id"`            // of the cached prefix; 0 for a running request
	Req      uint64  `json:"req,omitempty"` // the running request, or the one that left it
	NS       uint32  `json:"uid"`
	Seq      Seq     `json:"seq"`
	Running  bool    `json:"running"`
	Pinned   bool    `json:"pinned"`
	Tokens   int     `json:"tokens"`    // cells it holds
	OwnCells int     `json:"own_cells"` // of them: held by nobody else
	OwnBytes int64   `json:"own_bytes"`
	Created  Instant `json:"created"`
	Used     Instant `json:"used"` // last shared by a request
	Hits     int     `json:"hits"` // requests that shared it, over all turns of the conversation
	Turns    int     `json:"turns"`
	Hash     string  `json:"hash"` // 16 hex digits, of the tokens and the namespace
	Why      string  `json:"why"`  // "runs", "end of turn", "pinned", …
}

// Entries appends what is resident, running requests first, then cached prefixes from the most to the least worth
// keeping.
func (t *Tree) Entries(dst []Entry) []Entry { panic("skeleton") }

// Dump is the radix tree as text, for `uma-cli kv --tree`.
func (t *Tree) Dump() string { panic("skeleton") }

// Stats are the counters now.
func (t *Tree) Stats() Stats { panic("skeleton") }

// Check verifies every invariant from scratch, in O(cells).
func (t *Tree) Check() error { return errors.New("skeleton") }
