package meridian

import (
	"bytes"

	"github.com/uma-serve/uma-serve/runtime"
)

// match is OnToken for tags whose markers are found in the text.
func (r *Router) match(tok runtime.Token, piece []byte, forced bool) (s Step) {
	if r.given.bound && r.phase == OutputDecode && !r.edge.leading && len(r.marker.held) == 0 {
		r.marker.m = nil // the text of a bound answer has begun, in which there are no markers
	}
	text, mask, isSpecial := r.tags.read(tok, piece)
	counted := r.phase == ThinkDecode && !forced && !r.header.section.header()
	r.out[0], r.out[1] = r.out[0][:0], r.out[1][:0]
	if !isSpecial && len(r.marker.held) == 0 && !r.header.section.header() && !r.header.aside && !r.header.other &&
		len(r.edge.tail) == 0 && (r.marker.m == nil || r.marker.m.skips(text)) {
		r.remember(len(text), counted)
		if r.phase == ThinkDecode {
			s.Think = piece
		} else {
			s.Answer, s.Plain = r.show(piece), r.header.plain
		}
		if len(piece) > 0 {
			r.header.section = inText
		}
		if counted {
			r.think++
		}
		return s
	}
	r.token.counted, r.token.forced = counted, forced
	for i, b := range text {
		r.token.read, r.token.left = i+1, len(text)-i-1
		h := heldByte(b) | mask
		if isSpecial && (i == 0 || i == len(text)-1) {
			h |= hidden
		}
		r.push(h, &s)
	}
	r.remember(len(text), r.token.counted)
	if r.token.counted {
		r.think++
	}
	s.Think, s.Answer, s.Plain = r.out[0], r.out[1], r.header.plain
	return s
}

// push reads one byte. It releases bytes that can no longer become a marker, and acts on a complete marker.
func (r *Router) push(b heldByte, s *Step) {
	k := &r.marker
	if k.m == nil {
		r.release(b)
		return
	}
	if n := &k.m.node[k.m.next[k.state][byte(b)]]; k.ended > 0 && n.depth != len(k.held)+1 {
		r.settle(s)
		r.push(b, s)
		return
	}
	k.held = append(k.held, b)
	k.state = k.m.next[k.state][byte(b)]
	n := &k.m.node[k.state]
	waits := n.longer || k.ended > 0 && n.match != n.depth
	keep := n.depth
	if n.match > 0 && !waits {
		keep = n.match
	}
	if plain := len(k.held) - keep; plain > 0 {
		before := r.phase
		for _, b := range k.held[:plain] {
			r.release(b)
		}
		k.held = k.held[:copy(k.held, k.held[plain:])]
		if r.phase != before && r.header.recipe == nil {
			// The first text of an answer changes the markers to look for, so the held bytes are read again.
			var again [2 * maxMarkerBytes]heldByte
			rest := again[:copy(again[:], k.held)]
			k.held = k.held[:0]
			r.look()
			for _, b := range rest {
				r.push(b, s)
			}
			return
		}
		if r.given.bound && r.phase == OutputDecode && !r.edge.leading {
			r.releaseHeld()
			k.m = nil
			return
		}
	}
	switch {
	case n.longer:
		k.ended = n.match
	case n.match > 0 && !waits:
		k.ended = 0
		r.mark(n, s)
	}
}

// settle acts on the marker with which the held text begins, which is none of a longer one, and reads the rest again.
func (r *Router) settle(s *Step) {
	var again [2 * maxMarkerBytes]heldByte
	rest := again[:copy(again[:], r.marker.held[r.marker.ended:])]
	n := r.marker.m.next[0][byte(r.marker.held[0])]
	for _, b := range r.marker.held[1:r.marker.ended] {
		n = r.marker.m.next[n][byte(b)]
	}
	r.marker.held, r.marker.ended = r.marker.held[:r.marker.ended], 0
	r.mark(&r.marker.m.node[n], s)
	for _, b := range rest {
		r.push(b, s)
	}
}

// mark acts on a complete marker, which is the held text.
func (r *Router) mark(n *matchNode, s *Step) {
	if r.phase == ThinkDecode {
		if n.match >= r.token.read || len(r.out[0]) == 0 {
			r.token.counted = false // the token is part of the tag only
		}
		r.uncount(n.match - r.token.read)
	}
	before := r.phase
	switch n.kind {
	case markOpen:
		r.enter(s)
		r.token.counted = r.token.counted || !r.token.forced && r.token.left > 0
	case markClose:
		r.exit(s)
	case markAside:
		r.header.aside = true
	case markHidden:
		r.header.aside = r.header.aside && r.header.recipe != nil
	case markWrap:
		if !r.edge.leading || r.edge.wrapped {
			r.releaseHeld()
			break
		}
		r.edge.wrapped, r.edge.strip = true, true
		if r.given.bound {
			r.marker.held = r.marker.held[:0]
			r.look()
		}
	case markUnwrap:
		if !r.edge.wrapped {
			r.releaseHeld()
			break
		}
		r.showTail()
		for _, b := range r.marker.held {
			if b&hidden == 0 {
				r.edge.tail = append(r.edge.tail, byte(b))
			}
		}
		if len(r.edge.tail) == 0 { // the marker has no visible text
			r.edge.wrapped = false
		}
	case markHeader:
		if r.header.section.header() {
			r.header.head = append(r.header.head, ' ')
		} else {
			r.header.head = r.header.head[:0]
		}
		r.header.section = inHeader
	case markMessage:
		if r.given.headed && !r.header.section.header() {
			break // it ends no header
		}
		r.message(s)
	case markEnd:
		r.headless()
		if r.header.call {
			r.out[1] = append(r.out[1], r.tags.callMarks[2]...)
			r.header.call = false
		}
		r.header.section, r.header.other = betweenMessages, false
	}
	r.marker.held, r.marker.state = r.marker.held[:0], 0
	if r.phase != before {
		r.look()
	}
}

// message begins the message whose header has ended.
func (r *Router) message(s *Step) {
	h, in := &r.header, r.header.section.header()
	h.call = r.given.calls && in && len(r.tags.callHead) > 0 && bytes.Contains(h.head, r.tags.callHead)
	h.plain = in && h.recipe.User != "" && bytes.Contains(h.head, []byte(h.recipe.User))
	thought := !h.call && in && bytes.Contains(h.head, r.tags.thinkHead)
	h.other = !h.call && in && h.recipe.Call != "" && toOwnTool(h.head)
	s.Other = s.Other || h.other
	h.section, h.aside = inText, false
	switch {
	case thought && r.phase == ThinkDecode:
	case thought && (r.blocks == 0 || r.blocks < r.maxBlocks):
		r.enter(s)
		r.token.counted = false
	case thought:
		h.aside = true
	case r.phase == ThinkDecode:
		r.exit(s)
	default:
		r.phase = OutputDecode
	}
	if h.call {
		r.out[1] = append(append(append(r.out[1], r.tags.callMarks[0]...), h.head...), r.tags.callMarks[1]...)
		r.edge.leading = false
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
