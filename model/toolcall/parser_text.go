package toolcall

import (
	"bytes"

	"github.com/uma-serve/uma-serve/model/tags"
)

// The parser in the text of the answer: it looks for the beginning of a call.

// plainText reads text up to what begins a call.
func (p *Parser) plainText() bool {
	s := p.spec
	done := p.pos     // text before it is decided
	blank := !p.shown // only white space so far
	for i := p.pos; i < len(p.buf); {
		c := p.buf[i]
		if blank && s.form.Bare && !isSpace(c) && i >= p.seed && !p.off {
			f := p.bareStart(p.buf[i:])
			if f == yes && p.opt.Whole && !p.whole.off {
				switch p.tools.otherHead(p.buf[i:]) {
				case wait:
					if !p.final {
						f = wait
					}
				case yes:
					f = no // wholeStart reads it
				}
			}
			if f == wait {
				p.pos = done
				return false
			} else if f == yes {
				p.bare, p.from, p.pos = true, done, i
				p.state, p.inside, p.tool = inSection, 0, -1
				return true
			}
		}
		if blank && p.opt.Whole && !p.whole.off && !isSpace(c) && i >= p.seed && !p.off {
			_, _, own := p.start(p.buf[i:])
			f := no
			if own == no {
				f = p.wholeStart(p.buf[i:])
			}
			switch f {
			case wait:
				p.pos = done
				return false
			case yes:
				p.wholeEnd(p.buf[i:])
				return false
			}
		}
		blank = blank && isSpace(c)
		if s.first[c] && !p.off {
			kind, n, f := p.start(p.buf[i:])
			if f == wait {
				p.settle(done, i)
				return false
			}
			if f == yes {
				p.settle(done, i)
				if !p.inCode(i, n) {
					p.begin(i, n, kind)
					return true
				}
				done = p.pos
			}
		}
		if isFence(c) {
			n, f := p.foreign(p.buf[i:])
			if f == wait {
				p.settle(done, i)
				return false
			}
			p.text(p.buf[done:i])
			i += n
			done, p.pos = i, i
			continue
		}
		i++
	}
	p.settle(done, len(p.buf))
	if p.final {
		if p.calls == 0 || !onlySpace(p.rest()) {
			p.text(p.rest())
		}
		p.pos = len(p.buf)
	}
	return false
}

// settle reports the text from done to end, without white space at its end, after which a call may follow.
func (p *Parser) settle(done, end int) {
	i := end
	for !p.off && i > done && isSpace(p.buf[i-1]) && end-i < maxSpace {
		i--
	}
	if !p.off && !p.shown && i == done && end-i < maxSpace {
		p.pos = done
		return
	}
	p.text(p.buf[done:i])
	p.pos = i
}

// start finds what begins at text.
func (p *Parser) start(text []byte) (startKind, int, found) {
	for i := range p.spec.starts {
		s := &p.spec.starts[i]
		if n, f := at(text, s.text, p.final); f != no {
			return s.kind, n, f
		}
	}
	return 0, 0, no
}

// inCode reports whether the marker of n bytes at i in buf is quoted code. A control token is not: a text has none.
func (p *Parser) inCode(i, n int) bool {
	marker := p.buf[i : i+n]
	return marker[0] != tags.HiddenFence && !bytes.Contains(marker, codeFences[1]) &&
		p.code.quotes(p.buf[p.pos:i])
}

// foreign returns how many bytes of a fenced marker of another form are not text: all of a control token's, the fence
// of any other.
func (p *Parser) foreign(text []byte) (int, found) {
	if text[0] != tags.HiddenFence {
		return 1, yes
	}
	for i, c := range text[:min(len(text), maxRecent)] {
		if c == tags.FenceEnd {
			return i + 1, yes
		}
	}
	if len(text) < maxRecent && !p.final {
		return 0, wait
	}
	return 1, yes
}

// begin enters what start found at i.
func (p *Parser) begin(i, n int, kind startKind) {
	p.from, p.pos = p.pos, i+n // white space before a call is not shown; before what is none it is
	p.bare, p.list, p.inside, p.tool = false, false, 0, -1
	switch kind {
	case startContent:
		p.state = inText
	case startOpen, startWeak:
		p.state, p.open, p.bare = inSection, true, kind == startWeak
	case startBefore:
		p.call(inName)
	}
}

// bareStart reports whether a call without an opening may begin at text, which is the answer's beginning.
func (p *Parser) bareStart(text []byte) found {
	switch f := p.spec.form; f.Notation {
	case Envelope, Keyed:
		if text[0] == '{' {
			return yes
		}
		if text[0] != '[' {
			return no
		}
		for _, c := range text[1:] {
			if !isSpace(c) {
				if c == '{' {
					return yes
				}
				return no
			}
		}
	case Keywords:
		if text[0] != '[' {
			return no
		}
		for i, c := range text[1:] {
			if !nameByte(c) {
				if c == '(' && p.tools.find(string(text[1:1+i])) >= 0 {
					return yes
				}
				return no
			}
			if i > maxName {
				return no
			}
		}
	default:
		return no
	}
	if p.final {
		return no
	}
	return wait
}
