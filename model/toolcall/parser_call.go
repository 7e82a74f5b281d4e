package toolcall

import (
	"bytes"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// The call that the parser reads: its name, and the events that report it.

// call begins a call.
func (p *Parser) call(next state) {
	p.state = next
	p.begun, p.tool, p.id, p.name, p.key = false, -1, p.id[:0], p.name[:0], p.key[:0]
	p.args, p.sent, p.scan, p.hasArgs, p.quoted = p.args[:0], 0, 0, false, false
}

// fail gives the text since from back to the answer.
func (p *Parser) fail(why Reason) {
	if p.ending && why != TooLong { // what had not failed yet lacks its end
		p.unfinished()
		return
	}
	raw := p.buf[max(p.from, p.seed):max(p.pos, p.seed)]
	index := -1
	if p.begun {
		index = p.index
		p.index++
	}
	tentative := p.bare && p.tool < 0
	p.leave()
	if tentative {
		p.text(raw) // JSON, as the user may have asked for
		return
	}
	p.shown = true
	from := len(p.out)
	p.out = append(p.out, raw...)
	p.out = p.out[:from+len(stream.Unfenced(p.out[from:]))]
	p.code.add(p.out[from:])
	p.event(Event{Kind: Malformed, Index: index, Reason: why}, from)
	p.begun = false
}

// named looks the call's tool up. It returns false after a failure.
func (p *Parser) named() bool {
	f := p.spec.syntax
	name := bytes.TrimSpace(stream.Unfenced(p.name))
	if f.NameTag != "" {
		i := bytes.Index(name, []byte(f.NameTag))
		if i < 0 {
			p.fail(NoName)
			return false
		}
		name = name[i+len(f.NameTag):]
		if i := bytes.IndexAny(name, " \t\r\n<"); i >= 0 {
			name = name[:i]
		}
	}
	if f.Escaped {
		name = unescape(name)
	}
	id := name
	find := func(n []byte) bool {
		p.tool = p.tools.find(string(n))
		return p.tool >= 0
	}
	bare := func(n []byte) bool {
		cut, ok := bytes.CutPrefix(n, []byte(f.Prefix))
		return find(n) || ok && find(cut)
	}
	switch {
	case len(name) == 0:
		p.fail(NoName)
		return false
	case bare(name):
	case f.Suffixed && bytes.LastIndexByte(name, ':') > 0 && bare(name[:bytes.LastIndexByte(name, ':')]):
		p.id = append(p.id[:0], id...)
	default:
		p.fail(UnknownTool)
		return false
	}
	return true
}

// start reports the call's beginning, once.
func (p *Parser) startCall() {
	if p.begun {
		return
	}
	p.begun = true
	e := Event{Kind: Start, Index: p.index, Name: p.tools.list[p.tool].Name}
	if len(p.id) > 2 { // a shorter one numbers the calls of a turn
		e.ID = string(p.id)
	}
	p.event(e, len(p.out))
}

// flow reports arguments that are ready, when streaming.
func (p *Parser) flow() {
	if p.opt.Stream && p.tool >= 0 && len(p.args) > 0 {
		p.send()
	}
}

func (p *Parser) send() {
	p.startCall()
	if p.sent == len(p.args) {
		return
	}
	from := len(p.out)
	p.out = append(p.out, p.args[p.sent:]...)
	p.sent = len(p.args)
	p.event(Event{Kind: Arguments, Index: p.index}, from)
}

// end reports the complete call.
func (p *Parser) end() {
	if len(p.args) == 0 {
		p.args = append(p.args, "{}"...)
	}
	p.send()
	p.event(Event{Kind: End, Index: p.index}, len(p.out))
	p.calls++
	p.index++
	p.inside++
	p.begun, p.ending = false, false
	p.state = inNext
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func onlySpace(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

var entities = [][2]string{{"&quot;", `"`}, {"&lt;", "<"}, {"&gt;", ">"}, {"&apos;", "'"}, {"&amp;", "&"}}

// unescape replaces the five entities of XML.
func unescape(text []byte) []byte {
	if !bytes.ContainsRune(text, '&') {
		return text
	}
	for _, e := range entities {
		text = bytes.ReplaceAll(text, []byte(e[0]), []byte(e[1]))
	}
	return text
}
