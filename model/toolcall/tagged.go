package toolcall

import "bytes"

// tagged reads a part of the arguments of a Tagged form.
func (p *Parser) tagged() bool {
	switch p.state {
	case inParam:
		return p.param()
	case inParamValue:
		return p.paramValue()
	}
	return p.paramKey()
}

// param reads what stands before a parameter, or ends the call.
func (p *Parser) param() bool {
	if !p.skipSpace() {
		return false
	}
	s, text := p.spec, p.rest()
	m, ends := p.callEnds(text)
	n, f := oneOf(text, s.paramOpen, p.last())
	if f == yes && !(s.form.Params.Nested && ends != no) { // what ends the call begins like a parameter there
		p.pos += n
		p.scan = 0
		p.state = inParamKey
		return true
	}
	switch {
	case ends == yes:
		p.pos += m
		p.args = append(p.args, '}')
		p.end()
	case f == wait || ends == wait:
		return false
	default:
		p.fail(BadArgs)
	}
	return true
}

// callEnds reports whether the call ends at text: with After, or before what ends its section or begins another call.
func (p *Parser) callEnds(text []byte) (n int, f found) {
	s := p.spec
	if n, f = oneOf(text, s.after, p.last()); f == yes {
		return n, yes
	}
	lists := [][][]byte{s.before, nil}
	if p.open {
		lists[1] = s.close
	}
	for _, list := range lists {
		switch _, g := oneOf(text, list, p.last()); g {
		case yes:
			return 0, yes
		case wait:
			f = wait
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
		n, f := 0, no
		if p.state == inParamKey {
			if n, f = oneOf(text[i:], s.attr, p.last()); f == yes {
				p.setKey(text[:i])
				p.pos += i + n
				p.scan = 0
				p.state = inParamAttr
				return true
			}
		}
		if f == no {
			n, f = oneOf(text[i:], s.paramMiddle, p.last())
		}
		switch {
		case f == wait:
			p.scan = i
			return false
		case f == no:
			continue
		case p.state == inParamKey && s.form.Params.Nested && (i == 0 || text[0] == '/'):
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
	key := unfenced(bytes.TrimSpace(bytes.Clone(text)))
	if p.spec.form.Escaped {
		key = unescape(key)
	}
	p.may = p.tools.param(p.tool, key)
	if s := p.spec; s.form.Params.Nested {
		p.shut, p.deep = named(s.paramClose[0], text, s.paramMiddle[0]), 0
		p.again = named(s.paramOpen[0], text, s.paramMiddle[0])
	}
	if len(p.args) > 1 {
		p.args = append(p.args, ',')
	}
	p.args = append(appendQuoted(p.args, key), ':')
}

// paramValue reads a parameter's value. A string is passed on while it is written.
func (p *Parser) paramValue() bool {
	s, text := p.spec, p.rest()
	if p.scan < 0 {
		if len(text) == 0 {
			return false
		}
		if n, f := padded(text, s.pad, p.last()); f == wait {
			return false
		} else if f == yes {
			p.pos += n
			text = text[n:]
		}
		p.scan = 0
	}
	i, n, f := p.scan, 0, no
	for ; i < len(text); i++ {
		if n, f = p.valueEnds(text[i:]); f == yes && p.inRaw(text[:i]) {
			f = no
		}
		if s.form.Params.Nested && p.may.types&(typeObject|typeArray) != 0 {
			f = p.within(text[i:], f)
		}
		if f != no {
			break
		}
	}
	direct := p.may.direct() && len(s.raw[0]) == 0
	if f == yes {
		value := bytes.TrimSuffix(text[:i], s.pad)
		switch {
		case direct:
			p.openString()
			p.args, _ = appendString(p.args, value, true)
			p.args = append(p.args, '"')
		default:
			if !s.form.Params.Nested {
				value = unfenced(bytes.Clone(value))
			}
			if v := bytes.TrimSpace(value); len(s.raw[0]) > 0 && bytes.HasPrefix(v, s.raw[0]) &&
				bytes.HasSuffix(v, s.raw[1]) &&
				len(v) >= len(s.raw[0])+len(s.raw[1]) {
				value = v[len(s.raw[0]) : len(v)-len(s.raw[1])]
			}
			if s.form.Params.Nested {
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
	p.args, m = appendString(p.args, text[:i], false)
	p.pos += m
	p.scan -= m
	p.flow()
	return false
}

// within follows the elements of a parameter's name that its value holds. f says whether the parameter ends at text.
func (p *Parser) within(text []byte, f found) found {
	switch {
	case f == yes && p.deep > 0:
		p.deep--
		return no
	case f == no:
		_, open := at(text, p.again, p.last())
		if open == yes {
			p.deep++
			return no
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
		if n, f := oneOf(text[i:], p.spec.after, true); n > 0 && f == yes {
			return true
		}
	}
	return false
}

// inRaw reports whether value began a section that is taken as it is, which has not ended.
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
func padded(text, pad []byte, final bool) (int, found) {
	switch {
	case len(pad) == 0:
		return 0, no
	case bytes.HasPrefix(text, pad):
		return len(pad), yes
	case !final && bytes.HasPrefix(pad, text):
		return 0, wait
	}
	return 0, no
}

// valueEnds reports whether a value ends at text: with its closing text, after which the call must go on or end,
// because a value may hold the same text.
func (p *Parser) valueEnds(text []byte) (n int, f found) {
	if p.spec.form.Params.Nested {
		n, f = at(text, p.shut, p.last())
	} else {
		n, f = oneOf(text, p.spec.paramClose, p.last())
	}
	if f != yes {
		return n, f
	}
	rest := text[n:]
	for len(rest) > 0 && isSpace(rest[0]) {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		if p.last() {
			return n, yes
		}
		return 0, wait
	}
	_, next := oneOf(rest, p.spec.paramOpen, p.last())
	_, ends := p.callEnds(rest)
	switch {
	case next == yes || ends == yes:
		return n, yes
	case next == wait || ends == wait:
		return 0, wait
	}
	return 0, no
}
