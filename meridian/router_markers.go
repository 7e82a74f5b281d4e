package meridian

import (
	"bytes"

	"github.com/uma-serve/uma-serve/runtime"
)

// match is OnToken for tags whose markers are found in the text.
func (r *Router) match(tok runtime.Token, piece []byte, forced bool) (s Step) {
	if r.bound && r.phase == OutputDecode && !r.leading && len(r.held) == 0 {
		r.m = nil // the text of a bound answer has begun, in which there are no markers
	}
	text, mask, isSpecial := r.tags.read(tok, piece)
	counted := r.phase == ThinkDecode && !forced && !r.part.header()
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	if !isSpecial && len(r.held) == 0 && !r.part.header() && !r.aside && !r.other && len(r.tail) == 0 &&
		(r.m == nil || r.m.skips(text)) {
		r.remember(len(text), counted)
		if r.phase == ThinkDecode {
			s.Think = piece
		} else {
			s.Answer, s.Plain = r.show(piece), r.plain
		}
		if len(piece) > 0 {
			r.part = inText
		}
		if counted {
			r.think++
		}
		return s
	}
	r.counted, r.forced = counted, forced
	for i, b := range text {
		r.read, r.left = i+1, len(text)-i-1
		h := heldByte(b) | mask
		if isSpecial && (i == 0 || i == len(text)-1) {
			h |= hidden
		}
		r.push(h, &s)
	}
	r.remember(len(text), r.counted)
	if r.counted {
		r.think++
	}
	s.Think, s.Answer, s.Plain = r.out[0], r.out[1], r.plain
	return s
}

// push reads one byte. It releases bytes that can no longer become a marker, and acts on a complete marker.
func (r *Router) push(b heldByte, s *Step) {
	if r.m == nil {
		r.release(b)
		return
	}
	if n := &r.m.node[r.m.next[r.state][byte(b)]]; r.ended > 0 && n.depth != len(r.held)+1 {
		r.settle(s)
		r.push(b, s)
		return
	}
	r.held = append(r.held, b)
	r.state = r.m.next[r.state][byte(b)]
	n := &r.m.node[r.state]
	waits := n.longer || r.ended > 0 && n.match != n.depth
	keep := n.depth
	if n.match > 0 && !waits {
		keep = n.match
	}
	if plain := len(r.held) - keep; plain > 0 {
		before := r.phase
		for _, b := range r.held[:plain] {
			r.release(b)
		}
		r.held = r.held[:copy(r.held, r.held[plain:])]
		if r.phase != before && r.recipe == nil {
			// The first text of an answer changes the markers to look for, so the held bytes are read again.
			var again [2 * maxMarkerBytes]heldByte
			rest := again[:copy(again[:], r.held)]
			r.held = r.held[:0]
			r.look()
			for _, b := range rest {
				r.push(b, s)
			}
			return
		}
		if r.bound && r.phase == OutputDecode && !r.leading {
			r.releaseHeld()
			r.m = nil
			return
		}
	}
	switch {
	case n.longer:
		r.ended = n.match
	case n.match > 0 && !waits:
		r.ended = 0
		r.mark(n, s)
	}
}

// settle acts on the marker with which the held text begins, which is none of a longer one, and reads the rest again.
func (r *Router) settle(s *Step) {
	var again [2 * maxMarkerBytes]heldByte
	rest := again[:copy(again[:], r.held[r.ended:])]
	n := r.m.next[0][byte(r.held[0])]
	for _, b := range r.held[1:r.ended] {
		n = r.m.next[n][byte(b)]
	}
	r.held, r.ended = r.held[:r.ended], 0
	r.mark(&r.m.node[n], s)
	for _, b := range rest {
		r.push(b, s)
	}
}

// mark acts on a complete marker, which is the held text.
func (r *Router) mark(n *matchNode, s *Step) {
	if r.phase == ThinkDecode {
		if n.match >= r.read || len(r.out[0]) == 0 {
			r.counted = false // the token is part of the tag only
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
	case markAside:
		r.aside = true
	case markHidden:
		r.aside = r.aside && r.recipe != nil
	case markWrap:
		if !r.leading || r.wrapped {
			r.releaseHeld()
			break
		}
		r.wrapped, r.strip = true, true
		if r.bound {
			r.held = r.held[:0]
			r.look()
		}
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
		if len(r.tail) == 0 { // the marker has no visible text
			r.wrapped = false
		}
	case markHeader:
		if r.part.header() {
			r.head = append(r.head, ' ')
		} else {
			r.head = r.head[:0]
		}
		r.part = inHeader
	case markMessage:
		if r.headed && !r.part.header() {
			break // it ends no header
		}
		r.message(s)
	case markEnd:
		r.headless()
		if r.call {
			r.out[1] = append(r.out[1], r.tags.callMarks[2]...)
			r.call = false
		}
		r.part, r.other = betweenMessages, false
	}
	r.held, r.state = r.held[:0], 0
	if r.phase != before {
		r.look()
	}
}

// message begins the message whose header has ended.
func (r *Router) message(s *Step) {
	r.call = r.calls && r.part.header() && len(r.tags.callHead) > 0 && bytes.Contains(r.head, r.tags.callHead)
	r.plain = r.part.header() && r.recipe.User != "" && bytes.Contains(r.head, []byte(r.recipe.User))
	thought := !r.call && r.part.header() && bytes.Contains(r.head, r.tags.thinkHead)
	r.other = !r.call && r.part.header() && r.recipe.Call != "" && toOwnTool(r.head)
	s.Other = s.Other || r.other
	r.part, r.aside = inText, false
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
	if r.call {
		r.out[1] = append(append(append(r.out[1], r.tags.callMarks[0]...), r.head...), r.tags.callMarks[1]...)
		r.leading = false
	}
}

// toOwnTool reports whether a header names a recipient that is neither a function of the request nor a reader of the
// answer: gpt-oss was trained with such tools (python, browser.search, container.exec).
func toOwnTool(head []byte) bool {
	_, to, found := bytes.Cut(head, []byte("to="))
	if i := bytes.IndexByte(to, ' '); i >= 0 {
		to = to[:i]
	}
	switch string(to) {
	case "", "assistant", "user", "all":
		return false
	}
	return found && !bytes.HasPrefix(to, []byte("functions"))
}
