package toolcall

import (
	"bytes"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// tagged reads a part of the arguments of a Tagged syntax.
func (p *Parser) tagged() bool {
	switch p.state {
	case inParam:
		return p.param()
	case inParamValue:
		return p.paramValue()
	}
	return p.paramKey()
}

// param reads the text before a parameter, or ends the call.
func (p *Parser) param() bool {
	if !p.skipSpace() {
		return false
	}
	s, text := p.spec, p.rest()
	m, ends := p.callEnds(text)
	n, f := stream.OneOf(text, s.paramOpen, p.last())
	// In a nested syntax the end of the call begins like a parameter.
	if f == stream.Yes && !(s.syntax.Params.Nested && ends != stream.No) {
		p.pos += n
		p.scan = 0
		p.state = inParamKey
		return true
	}
	switch {
	case ends == stream.Yes:
		p.pos += m
		p.args = append(p.args, '}')
		p.end()
	case f == stream.Wait || ends == stream.Wait:
		return false
	default:
		p.fail(BadArgs)
	}
	return true
}

// callEnds reports whether the call ends at text: with After, or before what ends its section or begins another call.
func (p *Parser) callEnds(text []byte) (n int, f stream.Found) {
	s := p.spec
	if n, f = stream.OneOf(text, s.after, p.last()); f == stream.Yes {
		return n, stream.Yes
	}
	lists := [][][]byte{s.before, nil}
	if p.open {
		lists[1] = s.close
	}
	for _, list := range lists {
		switch _, g := stream.OneOf(text, list, p.last()); g {
		case stream.Yes:
			return 0, stream.Yes
		case stream.Wait:
			f = stream.Wait
		}
	}
	return 0, f
}

// paramKey reads a parameter's name, and the attribute that tells its type.
func (p *Parser) paramKey() bool {
	s, text := p.spec, p.rest()
	limit := maxName
	if p.state == inParamAttr {
		limit = maxAttr
	}
	for i := p.scan; ; i++ {
		switch {
		case i > limit:
			p.fail(BadArgs)
			return true
		case i == len(text):
			p.scan = i
			return false
		}
		n, f := 0, stream.No
		if p.state == inParamKey {
			if n, f = stream.OneOf(text[i:], s.attr, p.last()); f == stream.Yes {
				p.setKey(text[:i])
				p.pos += i + n
				p.scan = 0
				p.state = inParamAttr
				return true
			}
		}
		if f == stream.No {
			n, f = stream.OneOf(text[i:], s.paramMiddle, p.last())
		}
		switch {
		case f == stream.Wait:
			p.scan = i
			return false
		case f == stream.No:
			continue
		case p.state == inParamKey && s.syntax.Params.Nested && (i == 0 || text[0] == '/'):
			p.fail(BadArgs) // the end of another element
			return true
		case p.state == inParamKey:
			p.setKey(text[:i])
		default:
			switch string(bytes.TrimSpace(text[:i])) {
			case "true", "string":
				p.may.types = typeString
			default:
				p.may = param{types: anyType}
			}
		}
		p.pos += i + n
		p.scan, p.quoted = -1, false
		p.state = inParamValue
		return true
	}
}

// setKey writes a parameter's name.
func (p *Parser) setKey(text []byte) {
	key := stream.Unfenced(bytes.TrimSpace(bytes.Clone(text)))
	if p.spec.syntax.Escaped {
		key = unescape(key)
	}
	p.may = p.tools.param(p.tool, key)
	if s := p.spec; s.syntax.Params.Nested {
		p.shut, p.deep = named(s.paramClose[0], text, s.paramMiddle[0]), 0
		p.again = named(s.paramOpen[0], text, s.paramMiddle[0])
	}
	if len(p.args) > 1 {
		p.args = append(p.args, ',')
	}
	p.args = append(stream.AppendQuoted(p.args, key), ':')
}

// paramValue reads a parameter's value. A string is passed on while it is written.
func (p *Parser) paramValue() bool {
	s, text := p.spec, p.rest()
	if p.scan < 0 {
		if len(text) == 0 {
			return false
		}
		if n, f := padded(text, s.pad, p.last()); f == stream.Wait {
			return false
		} else if f == stream.Yes {
			p.pos += n
			text = text[n:]
		}
		p.scan = 0
	}
	i, n, f := p.scan, 0, stream.No
	for ; i < len(text); i++ {
		if n, f = p.valueEnds(text[i:]); f == stream.Yes && p.inRaw(text[:i]) {
			f = stream.No
		}
		if s.syntax.Params.Nested && p.may.types&(typeObject|typeArray) != 0 {
			f = p.within(text[i:], f)
		}
		if f != stream.No {
			break
		}
	}
	direct := p.may.direct() && len(s.raw[0]) == 0
	if f == stream.Yes {
		value := bytes.TrimSuffix(text[:i], s.pad)
		switch {
		case direct:
			p.openString()
			p.args, _ = stream.AppendString(p.args, value, true)
			p.args = append(p.args, '"')
		default:
			if !s.syntax.Params.Nested {
				value = stream.Unfenced(bytes.Clone(value))
			}
			if v := bytes.TrimSpace(value); len(s.raw[0]) > 0 && bytes.HasPrefix(v, s.raw[0]) &&
				bytes.HasSuffix(v, s.raw[1]) &&
				len(v) >= len(s.raw[0])+len(s.raw[1]) {
				value = v[len(s.raw[0]) : len(v)-len(s.raw[1])]
			}
			if s.syntax.Params.Nested {
				p.args = p.nestedValue(p.args, value, p.may, 0)
			} else {
				p.args = p.may.append(p.args, value)
			}
		}
		p.pos += i + n
		p.state = inParam
		p.flow()
		return true
	}
	if p.scan = i; !direct {
		return false
	}
	p.openString()
	var m int
	for end := s.pad; len(end) > 0; end = end[:len(end)-1] { // what may be the pad waits
		if bytes.HasSuffix(text[:i], end) {
			i -= len(end)
			break
		}
	}
	p.args, m = stream.AppendString(p.args, text[:i], false)
	p.pos += m
	p.scan -= m
	p.flow()
	return false
}

// within follows the elements of a parameter's name that its value holds. f says whether the parameter ends at text.
func (p *Parser) within(text []byte, f stream.Found) stream.Found {
	switch {
	case f == stream.Yes && p.deep > 0:
		p.deep--
		return stream.No
	case f == stream.No:
		_, open := stream.At(text, p.again, p.last())
		if open == stream.Yes {
			p.deep++
			return stream.No
		}
		return open
	}
	return f
}

// endless reports whether the call that is being read has its end within a value, whose own end the model left out.
func (p *Parser) endless() bool {
	if p.state != inParamValue {
		return false
	}
	text := p.buf[p.from:] // a string that is passed on is behind pos
	for i := range text {
		if n, f := stream.OneOf(text[i:], p.spec.after, true); n > 0 && f == stream.Yes {
			return true
		}
	}
	return false
}

// inRaw reports whether value began a raw section that has not ended.
func (p *Parser) inRaw(value []byte) bool {
	raw := p.spec.raw
	if len(raw[0]) == 0 {
		return false
	}
	value = bytes.TrimSpace(value)
	return bytes.HasPrefix(value, raw[0]) &&
		(!bytes.HasSuffix(value, raw[1]) || len(value) < len(raw[0])+len(raw[1]))
}

func (p *Parser) openString() {
	if !p.quoted {
		p.args = append(p.args, '"')
		p.quoted = true
	}
}

// padded is at for a text that is white space.
func padded(text, pad []byte, final bool) (int, stream.Found) {
	switch {
	case len(pad) == 0:
		return 0, stream.No
	case bytes.HasPrefix(text, pad):
		return len(pad), stream.Yes
	case !final && bytes.HasPrefix(pad, text):
		return 0, stream.Wait
	}
	return 0, stream.No
}

// valueEnds reports whether a value ends at text: with its closing text, after which the call must continue or end,
// because a value may hold the same text.
func (p *Parser) valueEnds(text []byte) (n int, f stream.Found) {
	if p.spec.syntax.Params.Nested {
		n, f = stream.At(text, p.shut, p.last())
	} else {
		n, f = stream.OneOf(text, p.spec.paramClose, p.last())
	}
	if f != stream.Yes {
		return n, f
	}
	rest := text[n:]
	for len(rest) > 0 && stream.IsSpace(rest[0]) {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		if p.last() {
			return n, stream.Yes
		}
		return 0, stream.Wait
	}
	_, next := stream.OneOf(rest, p.spec.paramOpen, p.last())
	_, ends := p.callEnds(rest)
	switch {
	case next == stream.Yes || ends == stream.Yes:
		return n, stream.Yes
	case next == stream.Wait || ends == stream.Wait:
		return 0, stream.Wait
	}
	return 0, stream.No
}
