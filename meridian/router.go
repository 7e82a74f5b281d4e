package meridian

import (
	"slices"

	"github.com/uma-serve/uma-serve/model/tags"
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

// String returns the phase's name in metrics and traces.
func (p Phase) String() string {
	return [...]string{"prefill", "think_decode", "output_decode", "complete"}[p]
}

// Event is the set of phase changes that one token caused.
type Event uint8

const (
	EnterThink  Event = 1 << iota // a think block was opened
	ExitThink                     // a think block was closed
	ForceBudget                   // the first token of a forced close (Step.Reason)
	Completed                     // the generation ended
	None        Event = 0
)

// Has reports whether e includes all of x.
func (e Event) Has(x Event) bool { return e&x == x }

// Router follows one request's phase, token by token. With maxBlocks 1 the phase never moves back.
type Router struct {
	given     given
	tags      *Tags
	phase     Phase
	maxBlocks int
	blocks    int       // opened so far
	verbatim  bool      // within a call: its text holds no markers of thinking
	think     int       // think tokens in all blocks
	out       [2][]byte // thinking and answer that the current token released

	marker matching
	header headerState
	edge   edges
	token  reading
}

// given are the facts of the request about its text; they do not change.
type given struct {
	calls  bool // the request has tools: the answer comes with the markers that a tool parser needs
	marked bool // thoughts come with such markers too
	bound  bool // Options.Bound without Headed: what reads like a marker in the answer is text
	headed bool // Options.Headed
}

// matching looks for markers of several tokens. Invariant: held is the longest suffix of the text that may become a
// marker; its length is the depth of the matcher's state.
type matching struct {
	m      *matcher // of the current phase; nil: no marker to look for
	state  uint16
	held   []heldByte
	ended  int                       // bytes of held that are a marker, unless they begin a longer one; 0: none
	recent [maxMarkerBytes]tokenSize // ring of the last tokens, to find the ones that a marker covers
	nth    uint8
}

// edges are the beginning and end of an answer. Invariant: lead is white space, and empty unless leading.
type edges struct {
	leading bool   // no text of the answer is visible yet
	strip   bool   // the answer follows a thought: its leading line breaks are not shown
	lead    []byte // white space that is shown if visible text follows
	tail    []byte // the marker that ends the answer, and white space, shown if text follows
	wrapped bool   // the answer began with its marker
}

// reading is the token being read: its bytes read and left, whether it counts as thought, whether it was forced.
type reading struct {
	read, left      int
	counted, forced bool
}

// headerState is the place in messages with headers (tags.Channels).
type headerState struct {
	section messageSection
	plain   bool   // in a message to the user, or behind it
	call    bool   // in a message that calls a tool
	other   bool   // in a message to a tool of the model's own: its text is left out
	aside   bool   // in a thought past maxBlocks: its text is thinking, but the phase remains OutputDecode
	head    []byte // the header so far
	recipe  *tags.Channels
}

// messageSection is the section of a message to which the next byte belongs.
type messageSection uint8

const (
	inText messageSection = iota // of a message, or of a model whose messages have no headers
	inHeader
	inPromptHeader  // in a header that the prompt began
	betweenMessages // a message has ended and none has begun
)

func (s messageSection) header() bool { return s == inHeader || s == inPromptHeader }

// heldByte is a byte that is held back. The bit hidden marks a byte of a control token's name, which is never shown.
type heldByte uint16

const hidden heldByte = 0x100

// tokenSize is the number of bytes that the matcher read for a token, and whether the token was counted as thought.
type tokenSize struct {
	bytes   uint16
	counted bool
}

const (
	maxHeadBytes = 256 // longest header of a message; a longer one is text
	maxLeadBytes = 256 // longest white space that is held back
)

// NewRouter starts a request after a prompt that ends as begin says (Tags.Begin).
func NewRouter(tags *Tags, maxBlocks int, begin Begin) Router {
	r := Router{tags: tags, maxBlocks: maxBlocks}
	if tags == nil {
		return r
	}
	r.out[1] = make([]byte, 0, 2*maxLeadBytes)
	r.edge.lead = make([]byte, 0, maxLeadBytes)
	if tags.inside != nil {
		r.marker.held = make([]heldByte, 0, 2*maxMarkerBytes)
		r.out[0] = make([]byte, 0, 2*maxLeadBytes)
		r.edge.tail = make([]byte, 0, 2*maxLeadBytes)
	}
	if r.header.recipe = tags.family.Channels; r.header.recipe != nil {
		r.header.head = make([]byte, 0, 2*maxHeadBytes)
		if begin.Header {
			r.header.section = inPromptHeader
		}
	}
	r.edge.leading, r.edge.strip = true, begin.Closed
	if begin.Thinking {
		r.phase, r.blocks = ThinkDecode, 1
	}
	r.look()
	return r
}

// look selects the matcher of the current phase.
func (r *Router) look() {
	r.marker.m, r.marker.state = nil, 0
	if r.tags == nil || r.verbatim && r.header.recipe == nil {
		return
	}
	switch r.phase {
	case Prefill:
		r.marker.m = r.tags.before
	case ThinkDecode:
		r.marker.m = r.tags.inside
	case OutputDecode:
		if r.given.bound {
			if r.edge.leading && !r.edge.wrapped {
				r.marker.m = r.tags.begins
			}
			return
		}
		if r.marker.m = r.tags.answer; 0 < r.blocks && r.blocks < r.maxBlocks {
			r.marker.m = r.tags.reopens
		}
	}
}

// Verbatim says whether the answer is within a call of a tool: there, markers of thinking are text.
func (r *Router) Verbatim(on bool) {
	if on != r.verbatim && len(r.marker.held) == 0 && r.phase != ThinkDecode {
		r.verbatim = on
		r.look()
	}
}

// Phase returns the request's phase.
func (r *Router) Phase() Phase { return r.phase }

// ThinkTokens returns the number of think tokens of the turn so far, without tags.
func (r *Router) ThinkTokens() int { return r.think }

// Blocks returns the number of think blocks that the turn has opened.
func (r *Router) Blocks() int { return r.blocks }

// endsMessage reports whether tok ends the thought's message within the turn, though the vocabulary calls it an end of
// generation.
func (r *Router) endsMessage(tok runtime.Token) bool {
	return len(r.tags.closeSeq) > 1 && tok == r.tags.closeSeq[0]
}

// OnToken moves the request by one decoded token. eog says that the token ends the generation. forced says that it is
// part of a forced marker, and so does not count as thought even while the marker is incomplete.
func (r *Router) OnToken(tok runtime.Token, piece []byte, eog, forced bool) (s Step) {
	if eog && r.phase == ThinkDecode && r.endsMessage(tok) {
		eog = false
	}
	switch {
	case r.phase == Complete:
	case eog:
		s.Think, s.Answer = r.Flush()
		s.Plain = r.header.plain
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

// byID is OnToken for tags whose markers are all single tokens.
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
		if r.blocks > 0 && !r.verbatim {
			if r.blocks < r.maxBlocks && slices.Contains(r.tags.open, tok) {
				r.enter(&s)
				return s
			}
			if slices.Contains(r.tags.close, tok) {
				return s // after a forced close, a model that continues to think may close again
			}
		}
	}
	s.Answer = r.show(piece)
	return s
}

// show returns the text of the answer that becomes visible with piece: piece itself, or a slice of the Router that is
// valid until the next token.
func (r *Router) show(piece []byte) []byte {
	if !r.edge.leading {
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
	r.edge.lead, r.edge.tail = r.edge.lead[:0], r.edge.tail[:0]
}

// exit begins the answer: after a block, or in Prefill after a close tag without a block.
func (r *Router) exit(s *Step) {
	if r.phase == ThinkDecode {
		s.Event |= ExitThink
	}
	r.phase = OutputDecode
	r.edge.strip = true
	r.edge.lead = r.edge.lead[:0]
}

// releaseHeld releases all held bytes.
func (r *Router) releaseHeld() {
	for _, b := range r.marker.held {
		r.release(b)
	}
	r.marker.held, r.marker.ended = r.marker.held[:0], 0
}

// release assigns one byte to the current phase, or to a header.
func (r *Router) release(b heldByte) {
	switch {
	case b&hidden != 0 && r.given.calls && !r.header.section.header() && !r.header.aside &&
		(r.phase != ThinkDecode || r.given.marked):
		r.text(byte(b))
	case b&hidden != 0:
	case r.header.section.header():
		if r.header.head = append(r.header.head, byte(b)); b != '\n' && len(r.header.head) < maxHeadBytes {
			return
		}
		r.header.section = inPromptHeader // not a header: the model does not follow the format
		r.headless()
	default:
		r.header.section = inText
		r.text(byte(b))
	}
}

// headless turns the bytes read since the prompt's header into text, because no message followed the header.
func (r *Router) headless() {
	if r.header.section != inPromptHeader {
		return
	}
	r.header.section = inText
	for _, b := range r.header.head {
		r.text(b)
	}
	r.header.head = r.header.head[:0]
}

// text adds a byte to the text of the current phase.
func (r *Router) text(b byte) {
	switch {
	case r.header.other:
	case r.phase == ThinkDecode || r.header.aside:
		r.out[0] = append(r.out[0], b)
	case len(r.edge.tail) > 0:
		if r.edge.tail = append(r.edge.tail, b); !isSpaceByte(b) || len(r.edge.tail) > maxLeadBytes {
			r.showTail()
		}
	default:
		r.visible(b)
	}
}

// showTail shows a marker that did not end the answer, because the answer continues.
func (r *Router) showTail() {
	for _, b := range r.edge.tail {
		r.visible(b)
	}
	r.edge.tail = r.edge.tail[:0]
}

// visible adds a byte to the answer. It holds back white space before the first text, because a thought may follow, and
// drops the line breaks that a model writes between thought and answer.
func (r *Router) visible(b byte) {
	if !r.edge.leading {
		r.out[1] = append(r.out[1], b)
		return
	}
	if isSpaceByte(b) {
		switch {
		case r.edge.strip && b == '\n':
			r.edge.lead = r.edge.lead[:0]
			return
		case len(r.edge.lead) < maxLeadBytes:
			r.edge.lead = append(r.edge.lead, b)
			return
		}
	}
	r.showLead()
	r.out[1] = append(r.out[1], b)
}

// showLead begins the visible answer.
func (r *Router) showLead() {
	r.out[1] = append(r.out[1], r.edge.lead...)
	r.edge.lead, r.edge.leading = r.edge.lead[:0], false
	if r.phase == Prefill {
		r.phase = OutputDecode
	}
}

// remember records a token's size for uncount.
func (r *Router) remember(size int, counted bool) {
	r.marker.recent[r.marker.nth%maxMarkerBytes] = tokenSize{uint16(min(size, 1<<15)), counted}
	r.marker.nth++
}

// uncount subtracts from the think tokens those before the current one that lie entirely in the last n bytes, which are
// part of a marker.
func (r *Router) uncount(n int) {
	for i := 1; n > 0 && i <= maxMarkerBytes; i++ {
		t := &r.marker.recent[(r.marker.nth-uint8(i))%maxMarkerBytes]
		if n -= int(t.bytes); n < 0 {
			return
		}
		if t.counted {
			t.counted = false
			r.think--
		}
	}
}

// Flush releases the held bytes at the end of the text. It does not show the marker that ends an answer, nor white
// space after a thought without an answer.
func (r *Router) Flush() (think, answer []byte) {
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	r.headless()
	if r.marker.ended > 0 {
		var s Step
		r.settle(&s)
	}
	r.releaseHeld()
	r.marker.state = 0
	r.edge.tail = r.edge.tail[:0]
	if r.edge.leading && !r.edge.strip && len(r.edge.lead) > 0 {
		r.showLead()
	}
	return r.out[0], r.out[1]
}

func isSpaceByte(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }
