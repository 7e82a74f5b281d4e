package meridian

import (
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Phase of a request's decoding.
type Phase uint8

const (
	Prefill Phase = iota
	ThinkDecode
	OutputDecode
	Complete
)

// String is the phase's name in metrics and traces.
func (p Phase) String() string {
	return [...]string{"prefill", "think_decode", "output_decode", "complete"}[p]
}

// Event is what a token meant for its request's phase. A token can mean several things: a set.
type Event uint8

const (
	EnterThink  Event = 1 << iota // a think block was opened
	ExitThink                     // it was closed
	ForceBudget                   // the first token of a forced close (Step.Reason)
	Completed                     // the generation ended
	None        Event = 0
)

// Has reports whether e includes all of x.
func (e Event) Has(x Event) bool { return e&x == x }

// Router is one request's phase, followed token by token. With a bound of one block phases only move forward.
type Router struct {
	tags      *Tags
	phase     Phase
	maxBlocks int
	blocks    int // opened so far
	think     int // tokens of thought, of all blocks

	// Markers of several tokens. Invariant: held is the text since the last marker that may yet become one, exactly as
	// long as the matcher's state is deep.
	m      *matcher // of the current phase; nil: nothing to look for
	state  uint16
	held   []heldByte
	recent [maxMarkerBytes]tokenSize // ring of the last tokens, to know which of them a marker covers
	nth    uint8
	out    [2][]byte // thinking, answer: what the current token released

	// Of the token being read: bytes read and left, whether it counts as thought, whether it was put there.
	read, left      int
	counted, forced bool
}

// heldByte is a byte that is held back, with hidden set when it belongs to a control token's name and is never shown.
type heldByte uint16

const hidden heldByte = 0x100

// tokenSize is how many bytes the matcher read of a token, and whether the token was counted as thought.
type tokenSize struct {
	bytes   uint16
	counted bool
}

// NewRouter starts a request whose rendered prompt is given: a template may open the think block in the prompt,
// so the prompt's tail decides whether decoding begins inside one. Only the last turn counts, that is what follows
// the last control token that is no marker: a system prompt that talks about tags opens nothing.
func NewRouter(tags *Tags, maxBlocks int, prompt []runtime.Token) Router {
	r := Router{tags: tags, maxBlocks: maxBlocks}
	if tags == nil {
		return r
	}
	begin := len(prompt)
	for begin > 0 && !tags.turnEnd[prompt[begin-1]] {
		begin--
	}
	if tags.either != nil {
		r.held = make([]heldByte, 0, maxMarkerBytes)
		r.out[0], r.out[1] = make([]byte, 0, 2*maxMarkerBytes), make([]byte, 0, 2*maxMarkerBytes)
	}
	if tags.endsOpen(prompt[begin:]) {
		r.phase, r.blocks = ThinkDecode, 1
	}
	r.look()
	return r
}

// endsOpen reports whether the last marker of a turn opens.
func (t *Tags) endsOpen(turn []runtime.Token) (open bool) {
	if t.either == nil {
		for i := len(turn) - 1; i >= 0; i-- {
			if slices.Contains(t.open, turn[i]) {
				return true
			}
			if slices.Contains(t.close, turn[i]) {
				return false
			}
		}
		return false
	}
	state := uint16(0)
	for _, tok := range turn {
		for _, b := range t.text(tok, t.vocab.Piece(tok)) {
			state = t.either.next[state][b]
			if n := &t.either.node[state]; n.match > 0 {
				open, state = n.open, 0
			}
		}
	}
	return open
}

// look chooses what to look for in the current phase.
func (r *Router) look() {
	r.m, r.state = nil, 0
	if r.tags == nil {
		return
	}
	switch r.phase {
	case Prefill:
		r.m = r.tags.either
	case ThinkDecode:
		r.m = r.tags.closes
	case OutputDecode:
		if 0 < r.blocks && r.blocks < r.maxBlocks {
			r.m = r.tags.opens
		}
	}
}

// Phase is where the request is.
func (r *Router) Phase() Phase { return r.phase }

// ThinkTokens is how many tokens of thought the turn has so far, without tags.
func (r *Router) ThinkTokens() int { return r.think }

// Blocks is how many think blocks the turn has opened.
func (r *Router) Blocks() int { return r.blocks }

// OnToken moves the request by one decoded token. eog says that the token ends the generation; forced that it is
// part of a marker which was put there, which makes it no thought even before the marker is complete.
func (r *Router) OnToken(tok runtime.Token, piece []byte, eog, forced bool) (s Step) {
	switch {
	case r.phase == Complete:
	case eog:
		s.Think, s.Answer = r.Flush()
		r.phase, s.Event = Complete, Completed
	case r.tags == nil:
		r.phase = OutputDecode
		s.Answer = piece
	case r.tags.either != nil:
		return r.match(tok, piece, forced)
	default:
		return r.byID(tok, piece)
	}
	return s
}

// byID is OnToken where every marker is a token of its own.
func (r *Router) byID(tok runtime.Token, piece []byte) (s Step) {
	switch r.phase {
	case Prefill:
		switch {
		case slices.Contains(r.tags.open, tok):
			r.phase, s.Event = ThinkDecode, EnterThink
			r.blocks++
			return s
		case slices.Contains(r.tags.close, tok):
			r.phase = OutputDecode
			return s
		case !isSpace(piece):
			r.phase = OutputDecode
		}
		s.Answer = piece
	case ThinkDecode:
		if slices.Contains(r.tags.close, tok) {
			r.phase, s.Event = OutputDecode, ExitThink
			return s
		}
		r.think++
		s.Think = piece
	case OutputDecode:
		if r.blocks > 0 {
			if r.blocks < r.maxBlocks && slices.Contains(r.tags.open, tok) {
				r.phase, s.Event = ThinkDecode, EnterThink
				r.blocks++
				return s
			}
			if slices.Contains(r.tags.close, tok) {
				return s // a model that goes on thinking after a forced close may close once more
			}
		}
		s.Answer = piece
	}
	return s
}

// match is OnToken where markers are found in the text.
func (r *Router) match(tok runtime.Token, piece []byte, forced bool) (s Step) {
	text, mask := piece, heldByte(0)
	if len(piece) == 0 {
		text, mask = r.tags.control[tok], hidden
	}
	counted := r.phase == ThinkDecode && !forced
	if len(r.held) == 0 && (r.m == nil || r.m.skips(text)) {
		r.remember(len(text), counted)
		switch {
		case r.phase == ThinkDecode:
			s.Think = piece
		case r.phase == Prefill && !isSpace(piece):
			r.phase = OutputDecode
			r.look()
			fallthrough
		default:
			s.Answer = piece
		}
		if counted {
			r.think++
		}
		return s
	}
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	r.counted, r.forced = counted, forced
	for i, b := range text {
		r.read, r.left = i+1, len(text)-i-1
		r.push(heldByte(b)|mask, &s)
	}
	r.remember(len(text), r.counted)
	if r.counted {
		r.think++
	}
	s.Think, s.Answer = r.out[0], r.out[1]
	return s
}

// push reads one byte: it releases what can be no marker any more, and acts on a marker that is complete.
func (r *Router) push(b heldByte, s *Step) {
	if r.m == nil {
		r.release(b)
		return
	}
	r.held = append(r.held, b)
	r.state = r.m.next[r.state][byte(b)]
	n := &r.m.node[r.state]
	keep := n.depth
	if n.match > 0 {
		keep = n.match
	}
	if plain := len(r.held) - keep; plain > 0 {
		before := r.phase
		for _, b := range r.held[:plain] {
			r.release(b)
		}
		r.held = r.held[:copy(r.held, r.held[plain:])]
		if r.phase != before {
			// The first text of an answer: from here on other markers count, so what is held is read again.
			var again [maxMarkerBytes]heldByte
			rest := again[:copy(again[:], r.held)]
			r.held = r.held[:0]
			r.look()
			for _, b := range rest {
				r.push(b, s)
			}
			return
		}
	}
	if n.match == 0 {
		return
	}
	r.held = r.held[:0]
	switch {
	case n.open:
		r.phase = ThinkDecode
		r.blocks++
		s.Event |= EnterThink
		r.counted = r.counted || !r.forced && r.left > 0
	default:
		if r.phase == ThinkDecode {
			s.Event |= ExitThink
			if n.match >= r.read || len(r.out[0]) == 0 {
				r.counted = false // all of it is tags
			}
			r.uncount(n.match - r.read)
		}
		r.phase = OutputDecode
	}
	r.look()
}

// release makes one byte certain: it belongs to the current phase.
func (r *Router) release(b heldByte) {
	if b&hidden != 0 {
		return
	}
	if r.phase == ThinkDecode {
		r.out[0] = append(r.out[0], byte(b))
		return
	}
	r.out[1] = append(r.out[1], byte(b))
	if r.phase == Prefill && !isSpaceByte(byte(b)) {
		r.phase = OutputDecode
	}
}

// remember keeps a token's size for uncount.
func (r *Router) remember(size int, counted bool) {
	r.recent[r.nth%maxMarkerBytes] = tokenSize{uint16(min(size, 1<<15)), counted}
	r.nth++
}

// uncount takes back the tokens before the current one that lie wholly in the last n bytes: a marker's.
func (r *Router) uncount(n int) {
	for i := 1; n > 0 && i <= maxMarkerBytes; i++ {
		t := &r.recent[(r.nth-uint8(i))%maxMarkerBytes]
		if n -= int(t.bytes); n < 0 {
			return
		}
		if t.counted {
			t.counted = false
			r.think--
		}
	}
}

// Flush releases what is held back, when the text ends without completing a marker.
func (r *Router) Flush() (think, answer []byte) {
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	for _, b := range r.held {
		r.release(b)
	}
	r.held, r.state = r.held[:0], 0
	return r.out[0], r.out[1]
}

// isSpace reports whether a piece shows nothing but white space: models put a line break before their opening tag.
func isSpace(piece []byte) bool {
	for _, b := range piece {
		if !isSpaceByte(b) {
			return false
		}
	}
	return true
}

func isSpaceByte(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }
