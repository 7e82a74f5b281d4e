package toolcall

import (
	"bytes"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// The parser in the text of the answer: it looks for the beginning of a call.

// plainText reads text up to what begins a call.
func (p *Parser) plainText() bool {
	s := p.spec
	done := p.pos     // text before it is decided
	blank := !p.shown // only white space so far
	for i := p.pos; i < len(p.buf); {
		c := p.buf[i]
		if blank && s.syntax.Bare && !stream.IsSpace(c) && i >= p.seed && !p.off {
			f := p.bareStart(p.buf[i:])
			if f == stream.Yes && p.opt.Whole && !p.whole.off {
				switch p.tools.otherHead(p.buf[i:]) {
				case stream.Wait:
					if !p.final {
						f = stream.Wait
					}
				case stream.Yes:
					f = stream.No // wholeStart reads it
				}
			}
			if f == stream.Wait {
				p.pos = done
				return false
			} else if f == stream.Yes {
				p.bare, p.from, p.pos = true, done, i
				p.state, p.inside, p.tool = inSection, 0, -1
				return true
			}
		}
		if blank && p.opt.Whole && !p.whole.off && !stream.IsSpace(c) && i >= p.seed && !p.off {
			_, _, own := p.start(p.buf[i:])
			f := stream.No
			if own == stream.No {
				f = p.wholeStart(p.buf[i:])
			}
			switch f {
			case stream.Wait:
				p.pos = done
				return false
			case stream.Yes:
				p.wholeEnd(p.buf[i:])
				return false
			}
		}
		blank = blank && stream.IsSpace(c)
		if s.first[c] && !p.off {
			kind, n, f := p.start(p.buf[i:])
			if f == stream.Wait {
				p.settle(done, i)
				return false
			}
			if f == stream.Yes {
				p.settle(done, i)
				if !p.inCode(i, n) {
					p.begin(i, n, kind)
					return true
				}
				done = p.pos
			}
		}
		if stream.IsFence(c) {
			n, f := p.foreign(p.buf[i:])
			if f == stream.Wait {
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
	for !p.off && i > done && stream.IsSpace(p.buf[i-1]) && end-i < maxSpace {
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
func (p *Parser) start(text []byte) (startKind, int, stream.Found) {
	for i := range p.spec.starts {
		s := &p.spec.starts[i]
		if n, f := stream.At(text, s.text, p.final); f != stream.No {
			return s.kind, n, f
		}
	}
	return 0, 0, stream.No
}

// inCode reports whether the marker of n bytes at i in buf is quoted code. A control token is not: a text has none.
func (p *Parser) inCode(i, n int) bool {
	marker := p.buf[i : i+n]
	return marker[0] != tags.HiddenFence && !bytes.Contains(marker, codeFences[1]) &&
		p.code.quotes(p.buf[p.pos:i])
}

// foreign returns how many bytes of a fenced marker of another syntax are not text: all of a control token's, the fence
// of any other.
func (p *Parser) foreign(text []byte) (int, stream.Found) {
	if text[0] != tags.HiddenFence {
		return 1, stream.Yes
	}
	for i, c := range text[:min(len(text), maxRecent)] {
		if c == tags.FenceEnd {
			return i + 1, stream.Yes
		}
	}
	if len(text) < maxRecent && !p.final {
		return 0, stream.Wait
	}
	return 1, stream.Yes
}

// begin enters what start found at i.
func (p *Parser) begin(i, n int, kind startKind) {
	p.from, p.pos = p.pos, i+n // white space before a call is not shown, other white space is
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
func (p *Parser) bareStart(text []byte) stream.Found {
	switch f := p.spec.syntax; f.Notation {
	case Envelope, Keyed:
		if text[0] == '{' {
			return stream.Yes
		}
		if text[0] != '[' {
			return stream.No
		}
		for _, c := range text[1:] {
			if !stream.IsSpace(c) {
				if c == '{' {
					return stream.Yes
				}
				return stream.No
			}
		}
	case Keywords:
		if text[0] != '[' {
			return stream.No
		}
		for i, c := range text[1:] {
			if !stream.NameByte(c) {
				if c == '(' && p.tools.find(string(text[1:1+i])) >= 0 {
					return stream.Yes
				}
				return stream.No
			}
			if i > maxName {
				return stream.No
			}
		}
	default:
		return stream.No
	}
	if p.final {
		return stream.No
	}
	return stream.Wait
}
