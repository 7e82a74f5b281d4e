package toolcall

import "github.com/uma-serve/uma-serve/model/toolcall/stream"

// The parser around the calls of a section: before the first, between two, and at the end.

// between reads the text around the calls of a section, and returns false where it must wait for more.
func (p *Parser) between() bool {
	at, more := p.separators()
	if !more {
		p.pos = at
		return false
	}
	f := p.sectionEnd()
	if f == stream.No {
		f = p.listBracket()
	}
	if f == stream.No {
		f = p.opening(at)
	}
	switch {
	case f == stream.Yes:
	case f == stream.Wait:
		p.pos = at
		return false
	case p.inside > 0:
		p.pos = at
		p.leave()
	default:
		p.pos = at
		p.fail(NoCall)
	}
	return true
}

// separators reads white space and, after a call, commas and the markers that end a call. at is the position to return
// to while more text must come; more reports whether other text follows.
func (p *Parser) separators() (at int, more bool) {
	at = p.pos
	for {
		if !p.skipSpace() {
			return at, false
		}
		if p.state == inSection {
			return at, true
		}
		if c := p.buf[p.pos]; c == ',' || c == ';' {
			p.pos++
			continue
		}
		n, f := stream.OneOf(p.rest(), p.spec.after, p.last())
		if f != stream.Yes {
			return at, f == stream.No
		}
		p.pos += n
		at = p.pos
	}
}

// sectionEnd reads the marker that closes a section.
func (p *Parser) sectionEnd() stream.Found {
	if !p.open && p.inside == 0 {
		return stream.No
	}
	n, f := stream.OneOf(p.rest(), p.spec.close, p.last())
	if f != stream.Yes {
		return f
	}
	p.pos += n
	if p.inside == 0 {
		p.fail(NoCall)
	} else {
		p.leave()
	}
	return stream.Yes
}

// inList reports whether the syntax writes calls as entries of a list.
func (p *Parser) inList() bool {
	n := p.spec.syntax.Notation
	return n == Envelope || n == Keyed || n == Keywords
}

// listBracket reads a bracket that begins or ends a list of calls.
func (p *Parser) listBracket() stream.Found {
	switch c := p.buf[p.pos]; {
	case c == '[' && p.inList() && !p.list && p.inside == 0:
		p.pos++
		p.list = true
	case c == ']' && p.list && p.inside > 0:
		p.pos++
		p.list = false
		if !p.open || len(p.spec.close) == 0 {
			p.leave()
		}
	default:
		return stream.No
	}
	return stream.Yes
}

// opening reads what begins a call. The section's first call begins with its section, others at position at.
func (p *Parser) opening(at int) stream.Found {
	s, f := p.spec, p.spec.syntax
	if len(s.before) > 0 {
		n, f := stream.OneOf(p.rest(), s.before, p.last())
		if f == stream.Yes {
			p.mark(at)
			p.pos += n
			p.call(inName)
		}
		return f
	}
	c := p.buf[p.pos]
	if p.inside > 0 && !p.list && !p.bare && (!p.open || len(s.close) == 0) && (len(s.close) > 0 || c != '{') {
		return stream.No // the syntax has one call in a section
	}
	named := stream.NameByte(c)
	switch {
	case p.inList() && c == '{':
		p.mark(at)
		p.pos++
		p.call(inKey)
		p.depth, p.keyed = 0, f.Notation == Keyed
	case named && (p.list || p.inside == 0) &&
		(f.Notation == Keywords || f.Notation == Envelope && p.open && len(s.middle) > 0),
		p.inside == 0 && (named || stream.IsFence(c)) &&
			(f.Notation == Tagged || f.Notation == Object || f.Notation == Braces):
		p.mark(at)
		p.call(inName)
	default:
		return stream.No
	}
	return stream.Yes
}

// mark notes where a call begins: with its section, if it is the first.
func (p *Parser) mark(at int) {
	if p.inside > 0 {
		p.from = at
	}
}

// leave ends a section.
func (p *Parser) leave() {
	p.state, p.open, p.list, p.bare = inText, false, false, false
}
