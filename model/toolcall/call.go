package toolcall

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// readName reads a call's name and id.
func (p *Parser) readName() bool {
	s, text := p.spec, p.rest()
	i, n, hasID := p.scan, 0, false
search:
	for ; ; i++ {
		switch {
		case i > maxName:
			p.pos += i
			p.fail(NoName)
			return true
		case i == len(text) && p.last() && len(s.middle) == 0:
			break search
		case i == len(text):
			p.scan = i
			return false
		case len(s.middle) == 0:
			if !stream.NameByte(text[i]) {
				break search
			}
			continue
		}
		if text[i] == '{' && s.syntax.Notation == Object { // the model, or its tokenizer, leaves Middle out
			break search
		}
		if p.state == inName {
			m, f := stream.OneOf(text[i:], s.id, p.last())
			if f == stream.Wait {
				p.scan = i
				return false
			}
			if f == stream.Yes {
				n, hasID = m, true
				break search
			}
		}
		m, f := stream.OneOf(text[i:], s.middle, p.last())
		if f == stream.Wait {
			p.scan = i
			return false
		}
		if f == stream.Yes {
			n = m
			break search
		}
	}
	word := &p.name
	if p.state == inID {
		word = &p.id
	}
	*word = append((*word)[:0], bytes.TrimSpace(text[:i])...)
	p.pos += i + n
	p.scan = 0
	if hasID {
		p.state = inID
		return true
	}
	p.id = stream.Unfenced(p.id)
	if !p.named() {
		return true
	}
	switch s.syntax.Notation {
	case Tagged:
		p.state = inParam
		p.args = append(p.args, '{')
	case Braces:
		p.state = inLoose
		p.args = append(p.args, '{')
		p.loose.Braces(s.quote)
	case Keywords, Envelope:
		p.state = inLoose
		p.args = append(p.args, '{')
		p.loose.Keywords()
	default:
		p.state = inObject
	}
	p.flow()
	return true
}

// codeFences are around arguments in some syntaxes, and around JSON where models add them.
var codeFences = [][]byte{[]byte("```json"), []byte("```")}

// object reads the text before the arguments of an Object.
func (p *Parser) object() bool {
	if !p.skipSpace() {
		return false
	}
	text := p.rest()
	if n, f := stream.OneOf(text, p.spec.after, p.last()); f == stream.Wait {
		return false
	} else if f == stream.Yes {
		p.pos += n
		p.end()
		return true
	}
	if n, f := stream.OneOf(text, codeFences, p.last()); f == stream.Wait {
		return false
	} else if f == stream.Yes {
		p.pos += n
		return true
	}
	return p.value()
}

// value begins the arguments' JSON.
func (p *Parser) value() bool {
	p.json.Reset()
	switch p.rest()[0] {
	case '{':
		p.args = p.args[:0]
		p.state = inJSON
	case '"':
		p.nested = p.nested[:0]
		p.state = inNested
	default:
		p.fail(BadArgs)
	}
	return true
}

// argumentText reads the arguments' JSON.
func (p *Parser) argumentText() bool {
	out := &p.args
	if p.state == inNested {
		out = &p.nested
	}
	var n int
	var v stream.Verdict
	*out, n, v = p.json.CopyValue(*out, p.rest(), p.last())
	p.pos += n
	switch v {
	case stream.More:
		p.flowJSON()
		return false
	case stream.Done:
		if p.state == inNested && !p.unwrap() {
			p.fail(BadArgs)
			return true
		}
		p.hasArgs = true
		if p.spec.syntax.Notation == Object {
			p.end()
			return true
		}
		p.state = inComma
		p.flow()
	default:
		p.fail(BadArgs)
	}
	return true
}

func (p *Parser) flowJSON() {
	if p.state == inJSON {
		p.flow()
	}
}

// unwrap takes the arguments out of the JSON string that holds them.
func (p *Parser) unwrap() bool {
	var text string
	if json.Unmarshal(p.nested, &text) != nil {
		return false
	}
	inner := bytes.TrimSpace([]byte(text))
	if len(inner) == 0 {
		p.args = append(p.args[:0], "{}"...)
		return true
	}
	if stream.ValidJSON(inner) != '{' {
		return false
	}
	var j stream.JSON // its strings may have control characters as well
	p.args, _, _ = j.CopyValue(p.args[:0], inner, true)
	return true
}

// envelope reads a part of an Envelope or a Keyed object, after its brace.
func (p *Parser) envelope() bool {
	if p.state == inSkip {
		return p.skip()
	}
	if !p.skipSpace() {
		return false
	}
	c := p.buf[p.pos]
	switch p.state {
	case inKey:
		if c == '}' && len(p.key) == 0 {
			p.pos++
			return p.closed()
		}
		key, f := p.stringValue()
		if f != stream.Yes {
			return p.broken(f)
		}
		p.key = append(p.key[:0], key...)
		p.state = inColon
	case inColon:
		if c != ':' {
			return p.broken(stream.No)
		}
		p.pos++
		return p.member()
	case inMember:
		if c == 'n' { // null
			p.json.Reset()
			p.state = inSkip
			return true
		}
		return p.value()
	case inNameValue:
		if c == '{' { // the call's own object
			p.pos++
			p.depth++
			p.key = p.key[:0]
			p.state = inKey
			return true
		}
		name, f := p.stringValue()
		if f != stream.Yes {
			return p.broken(f)
		}
		p.name = append(p.name[:0], name...)
		p.state = inComma
		if p.named() {
			p.flow()
		}
	case inIDValue:
		if c != '"' {
			p.json.Reset()
			p.state = inSkip
			return true
		}
		id, f := p.stringValue()
		if f != stream.Yes {
			return p.broken(f)
		}
		p.id = append(p.id[:0], id...)
		p.state = inComma
	case inComma:
		p.pos++
		switch c {
		case ',':
			p.state = inKey
		case '}':
			return p.closed()
		default:
			p.pos--
			return p.broken(stream.No)
		}
	}
	return true
}

// member decides what the value of key is.
func (p *Parser) member() bool {
	k, key := &p.spec.keys, string(p.key)
	switch {
	case p.keyed && p.depth == 0:
		if p.tool >= 0 {
			return p.broken(stream.No)
		}
		p.name = append(p.name[:0], key...)
		p.state = inMember
		if p.named() {
			p.flow()
		}
	case p.tool < 0 && (slices.Contains(k.Name, key) || slices.Contains(wrappers, key)):
		p.state = inNameValue
	case slices.Contains(k.Arguments, key) && !p.hasArgs:
		p.state = inMember
	case slices.Contains(k.ID, key) && !p.hasArgs: // a later one would come after the call has begun
		p.state = inIDValue
	case p.bare && p.tool < 0 && key != "type":
		return p.broken(stream.No) // other JSON
	default:
		p.json.Reset()
		p.state = inSkip
	}
	return true
}

// closed reads a closing brace.
func (p *Parser) closed() bool {
	switch {
	case p.depth > 0:
		p.depth--
		p.state = inComma
	case p.tool < 0:
		p.fail(NoName)
	default:
		p.end()
	}
	return true
}

// broken ends a step that did not find what it looked for.
func (p *Parser) broken(f stream.Found) bool {
	if f == stream.Wait {
		return false
	}
	if p.tool < 0 {
		p.fail(NoName)
	} else {
		p.fail(BadArgs)
	}
	return true
}

// skip reads a value of which nothing is wanted.
func (p *Parser) skip() bool {
	for _, c := range p.rest() {
		if stream.IsFence(c) {
			p.pos++
			continue
		}
		v := p.json.Step(c)
		if v == stream.Bad {
			return p.broken(stream.No)
		}
		if v != stream.Before {
			p.pos++
		}
		if v != stream.More {
			p.state = inComma
			return true
		}
	}
	return false
}

// stringValue reads a short JSON string: a name, a key, an id.
func (p *Parser) stringValue() (value []byte, f stream.Found) {
	text := p.rest()
	if text[0] != '"' {
		return nil, stream.No
	}
	for i := 1; i < len(text) && i < maxName; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			raw := stream.Unfenced(bytes.Clone(text[:i+1]))
			var s string
			if json.Unmarshal(raw, &s) != nil {
				return nil, stream.No
			}
			p.pos += i + 1
			return []byte(s), stream.Yes
		}
	}
	if len(text) >= maxName {
		return nil, stream.No
	}
	return nil, stream.Wait
}

// looseArguments reads the arguments of Braces and Keywords.
func (p *Parser) looseArguments() bool {
	n, v := p.loose.Read(&p.args, p.rest(), p.last())
	p.pos += n
	switch v {
	case stream.Done:
		p.end()
		return true
	case stream.More:
		p.flow()
		return false
	}
	p.fail(BadArgs)
	return true
}
