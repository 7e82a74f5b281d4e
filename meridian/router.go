package meridian

import (
	"bytes"
	"slices"

	"github.com/uma-serve/uma-serve/internal/thinktags"
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

	// Messages with headers (thinktags.Channels).
	header   bool   // inside one
	implicit bool   // which the prompt began
	between  bool   // a message has ended and none has begun
	aside    bool   // in a thought that came after the last block that may be opened: shown as one, without a phase
	head     []byte // the header so far
	recipe   *thinktags.Channels

	// What an answer begins and ends with. Invariant: lead is white space, and empty unless leading.
	leading bool   // nothing of the answer is visible yet
	strip   bool   // it comes after a thought: its leading line breaks are not shown
	lead    []byte // white space that is shown if text follows, and no thought
	tail    []byte // the marker that ends the answer and white space, shown if text follows
	wrapped bool   // the marker that begins the answer was there

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

const (
	maxHeadBytes = 128 // of a message's header; a longer one is text
	maxLeadBytes = 256 // of white space that waits for what follows
)

// NewRouter starts a request whose prompt ends as begin says (Tags.Begin).
func NewRouter(tags *Tags, maxBlocks int, begin Begin) Router {
	r := Router{tags: tags, maxBlocks: maxBlocks}
	if tags == nil {
		return r
	}
	r.out[1] = make([]byte, 0, 2*maxLeadBytes)
	r.lead = make([]byte, 0, maxLeadBytes)
	if tags.inside != nil {
		r.held = make([]heldByte, 0, 2*maxMarkerBytes)
		r.out[0] = make([]byte, 0, 2*maxLeadBytes)
		r.tail = make([]byte, 0, 2*maxLeadBytes)
	}
	if r.recipe = tags.family.Channels; r.recipe != nil {
		r.head = make([]byte, 0, 2*maxHeadBytes)
		r.header, r.implicit = begin.Header, begin.Header
	}
	r.leading, r.strip = true, begin.Closed
	if begin.Thinking {
		r.phase, r.blocks = ThinkDecode, 1
	}
	r.look()
	return r
}

// look chooses what to look for in the current phase.
func (r *Router) look() {
	r.m, r.state = nil, 0
	if r.tags == nil {
		return
	}
	switch r.phase {
	case Prefill:
		r.m = r.tags.before
	case ThinkDecode:
		r.m = r.tags.inside
	case OutputDecode:
		if r.m = r.tags.answer; 0 < r.blocks && r.blocks < r.maxBlocks {
			r.m = r.tags.reopens
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
	if eog && r.phase == ThinkDecode && len(r.tags.closeSeq) > 1 && tok == r.tags.closeSeq[0] {
		eog = false // it ends a message: the vocabulary does not tell that the answer follows
	}
	switch {
	case r.phase == Complete:
	case eog:
		s.Think, s.Answer = r.Flush()
		r.phase, s.Event = Complete, Completed
	case r.tags == nil:
		r.phase = OutputDecode
		s.Answer = piece
	case r.tags.inside != nil:
		return r.match(tok, piece, forced)
	default:
		return r.byID(tok, piece)
	}
	return s
}

// byID is OnToken where every marker is a token of its own.
func (r *Router) byID(tok runtime.Token, piece []byte) (s Step) {
	r.out[1] = r.out[1][:0]
	switch r.phase {
	case Prefill:
		switch {
		case slices.Contains(r.tags.open, tok):
			r.enter(&s)
			return s
		case slices.Contains(r.tags.close, tok):
			r.exit(&s)
			return s
		}
	case ThinkDecode:
		if slices.Contains(r.tags.close, tok) {
			r.exit(&s)
			return s
		}
		r.think++
		s.Think = piece
		return s
	case OutputDecode:
		if r.blocks > 0 {
			if r.blocks < r.maxBlocks && slices.Contains(r.tags.open, tok) {
				r.enter(&s)
				return s
			}
			if slices.Contains(r.tags.close, tok) {
				return s // a model that goes on thinking after a forced close may close once more
			}
		}
	}
	s.Answer = r.show(piece)
	return s
}

// show is what becomes visible of the answer by piece. The slice is piece, or the Router's until the next token.
func (r *Router) show(piece []byte) []byte {
	if !r.leading {
		return piece
	}
	before := r.phase
	for _, b := range piece {
		r.visible(b)
	}
	if r.phase != before {
		r.look()
	}
	return r.out[1]
}

// enter begins a block.
func (r *Router) enter(s *Step) {
	r.phase = ThinkDecode
	r.blocks++
	s.Event |= EnterThink
	r.lead, r.tail = r.lead[:0], r.tail[:0]
}

// exit begins the answer, after a block or, in Prefill, after a tag that closes none.
func (r *Router) exit(s *Step) {
	if r.phase == ThinkDecode {
		s.Event |= ExitThink
	}
	r.phase = OutputDecode
	r.strip = true
	r.lead = r.lead[:0]
}

// match is OnToken where markers are found in the text.
func (r *Router) match(tok runtime.Token, piece []byte, forced bool) (s Step) {
	text, mask, isSpecial := r.tags.read(tok, piece)
	counted := r.phase == ThinkDecode && !forced && !r.header
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	if !isSpecial && len(r.held) == 0 && !r.header && !r.aside && len(r.tail) == 0 && (r.m == nil || r.m.skips(text)) {
		r.remember(len(text), counted)
		if r.phase == ThinkDecode {
			s.Think = piece
		} else {
			s.Answer = r.show(piece)
		}
		if r.between = r.between && len(piece) == 0; counted {
			r.think++
		}
		return s
	}
	r.counted, r.forced = counted, forced
	for i, b := range text {
		r.read, r.left = i+1, len(text)-i-1
		h := heldByte(b) | mask
		if isSpecial && i == 0 {
			h |= hidden
		}
		r.push(h, &s)
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
		if r.phase != before && r.recipe == nil {
			// The first text of an answer: from here on other markers count, so what is held is read again.
			var again [2 * maxMarkerBytes]heldByte
			rest := again[:copy(again[:], r.held)]
			r.held = r.held[:0]
			r.look()
			for _, b := range rest {
				r.push(b, s)
			}
			return
		}
	}
	if n.match > 0 {
		r.mark(n, s)
	}
}

// mark acts on the marker that the held text is.
func (r *Router) mark(n *matchNode, s *Step) {
	if r.phase == ThinkDecode {
		if n.match >= r.read || len(r.out[0]) == 0 {
			r.counted = false // all of it is tags
		}
		r.uncount(n.match - r.read)
	}
	before := r.phase
	switch n.kind {
	case markOpen:
		r.enter(s)
		r.counted = r.counted || !r.forced && r.left > 0
	case markClose:
		r.exit(s)
	case markWrap:
		if !r.leading || r.wrapped {
			r.releaseHeld()
			break
		}
		r.wrapped, r.strip = true, true
	case markUnwrap:
		if !r.wrapped {
			r.releaseHeld()
			break
		}
		r.showTail()
		for _, b := range r.held {
			if b&hidden == 0 {
				r.tail = append(r.tail, byte(b))
			}
		}
		if len(r.tail) == 0 { // nothing that could be shown
			r.wrapped = false
		}
	case markHeader:
		if !r.header {
			r.header, r.head = true, r.head[:0]
		} else {
			r.head = append(r.head, ' ')
		}
		r.between, r.implicit = false, false
	case markMessage:
		r.message(s)
	case markEnd:
		r.headless()
		r.header, r.between = false, true
	}
	r.held, r.state = r.held[:0], 0
	if r.phase != before {
		r.look()
	}
}

// message begins the message whose header has ended.
func (r *Router) message(s *Step) {
	thought := r.header && bytes.Contains(r.head, r.tags.thinkHead)
	r.header, r.implicit, r.between, r.aside = false, false, false, false
	switch {
	case thought && r.phase == ThinkDecode:
	case thought && (r.blocks == 0 || r.blocks < r.maxBlocks):
		r.enter(s)
		r.counted = false
	case thought:
		r.aside = true
	case r.phase == ThinkDecode:
		r.exit(s)
	default:
		r.phase = OutputDecode
	}
}

// releaseHeld releases what is held.
func (r *Router) releaseHeld() {
	for _, b := range r.held {
		r.release(b)
	}
	r.held = r.held[:0]
}

// release makes one byte certain: it belongs to the current phase, or to a header.
func (r *Router) release(b heldByte) {
	switch {
	case b&hidden != 0:
	case r.header:
		if r.head = append(r.head, byte(b)); b != '\n' && len(r.head) < maxHeadBytes {
			return
		}
		r.implicit = true // no header after all: the model does not keep to the format
		r.headless()
	default:
		r.between = false
		r.text(byte(b))
	}
}

// headless: what was read since the prompt's own header is text, for no message followed it.
func (r *Router) headless() {
	if !r.implicit {
		return
	}
	r.header, r.implicit = false, false
	for _, b := range r.head {
		r.text(b)
	}
	r.head = r.head[:0]
}

// text is a byte of the current phase.
func (r *Router) text(b byte) {
	switch {
	case r.phase == ThinkDecode || r.aside:
		r.out[0] = append(r.out[0], b)
	case len(r.tail) > 0:
		if r.tail = append(r.tail, b); !isSpaceByte(b) || len(r.tail) > maxLeadBytes {
			r.showTail()
		}
	default:
		r.visible(b)
	}
}

// showTail: the answer goes on after the text that could have ended it.
func (r *Router) showTail() {
	for _, b := range r.tail {
		r.visible(b)
	}
	r.tail = r.tail[:0]
}

// visible is a byte of the answer. White space before any text waits: a thought may follow it, and the line breaks that a
// model writes between thought and answer are not shown.
func (r *Router) visible(b byte) {
	if !r.leading {
		r.out[1] = append(r.out[1], b)
		return
	}
	if isSpaceByte(b) {
		switch {
		case r.strip && b == '\n':
			r.lead = r.lead[:0]
			return
		case len(r.lead) < maxLeadBytes:
			r.lead = append(r.lead, b)
			return
		}
	}
	r.showLead()
	r.out[1] = append(r.out[1], b)
}

// showLead begins the visible answer.
func (r *Router) showLead() {
	r.out[1] = append(r.out[1], r.lead...)
	r.lead, r.leading = r.lead[:0], false
	if r.phase == Prefill {
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

// Flush releases what is held back, when the text ends without completing a marker. The marker that ends an answer, and
// white space between a thought and no answer, are not shown.
func (r *Router) Flush() (think, answer []byte) {
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	r.headless()
	r.releaseHeld()
	r.state = 0
	r.tail = r.tail[:0]
	if r.leading && !r.strip && len(r.lead) > 0 {
		r.showLead()
	}
	return r.out[0], r.out[1]
}

func isSpaceByte(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }
