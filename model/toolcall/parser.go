package toolcall

import (
	"bytes"
	"slices"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Options of a Parser.
type Options struct {
	// Stream gives a call's arguments while they are written. It is for calls that a grammar holds to their notation:
	// what was given cannot be taken back. Without it, a call is given when it is complete, so that a malformed one
	// never begins.
	Stream bool
	// MaxBytes bounds the text of a call, which is kept until it is complete; 0 means DefaultMaxBytes.
	MaxBytes int
	// Whole: an answer that is a call as a whole in another syntax than the model's is a call (whole.go).
	Whole bool
	// Begun is the end of the prompt, where that is the beginning of a call (Spec.Begun).
	Begun string
}

// DefaultMaxBytes is the longest text of a call.
const DefaultMaxBytes = 1 << 20

const (
	maxSpace   = 256 // longest white space that is held back, because a call may follow
	maxName    = 256 // longest name, key or id
	maxAttr    = 64  // longest attribute
	maxRecent  = 64  // longest marker of a vocabulary
	keepBuffer = 1 << 16
)

// Parser reads one answer. Text between calls passes through it without a copy.
//
// Invariant: what it reports depends on the bytes that it was given, not on how Push divided them.
type Parser struct {
	spec  *Spec
	tools *Tools
	opt   Options

	// Text that is not decided yet. Invariant: nothing before pos is needed but for the text of a malformed call, which
	// begins at from, and len(buf) ≤ max + the last piece.
	buf   []byte
	pos   int
	from  int
	final bool
	// ending: the answer's end is read, and it is within a call.
	ending bool

	state state
	off   bool // the rest of the answer is text: see Plain
	open  bool // in a section that Open began
	list  bool // in a JSON list of calls
	bare  bool // the call has no opening marker: if it turns out to be none, it is text
	seed  int  // bytes at the beginning of buf that are the prompt's

	whole  whole
	shown  bool // text of the answer was reported
	code   codeBlock
	calls  int // complete
	index  int // of the next call
	inside int // calls of this section

	reading

	events []Event
	spans  [][2]int // of out, for events with text
	out    []byte
}

// reading is the state of the call that is being read.
type reading struct {
	begun   bool // its Start was reported
	id      []byte
	name    []byte
	tool    int // index; -1: not known yet
	args    []byte
	sent    int // bytes of args reported
	depth   int // wrappers around an Envelope
	keyed   bool
	nested  []byte // the JSON string that holds the arguments
	hasArgs bool
	key     []byte
	may     param  // what the parameter may be
	scan    int    // bytes after pos in which the value's end is not
	shut    []byte // of a Nested syntax: the tags of the parameter
	again   []byte //
	deep    int    // elements of its name that are open in its value
	quoted  bool   // the value's opening quote is written
	json    stream.JSON
	loose   stream.Loose
}

// state names the part of a text that the parser reads next.
type state uint8

const (
	inText       state = iota
	inSection          // before the first call of a section
	inNext             // after a call
	inName             // a name, up to Middle
	inID               // an id, up to Middle
	inObject           // arguments of Object
	inJSON             // their text
	inNested           // their text, in a JSON string
	inKey              // a member of an Envelope
	inColon            //
	inMember           // its value
	inNameValue        // of which the name is read
	inIDValue          //
	inSkip             // of which nothing is wanted
	inComma            // after a member
	inParam            // before a parameter, or After
	inParamKey         //
	inParamAttr        //
	inParamValue       //
	inLoose            // arguments of Braces or Keywords
)

// NewParser starts an answer.
func NewParser(spec *Spec, tools *Tools, opt Options) *Parser {
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	p := &Parser{spec: spec, tools: tools, opt: opt, reading: reading{tool: -1}}
	p.buf = append(p.buf, opt.Begun...)
	p.seed = len(p.buf)
	return p
}

// Calls returns the number of complete calls.
func (p *Parser) Calls() int { return p.calls }

// Busy reports whether the answer is within a call, where its text is not the answer's.
func (p *Parser) Busy() bool { return p.state != inText && p.state != inNext }

// Stream sets Options.Stream from the call on that is being read.
func (p *Parser) Stream(on bool) { p.opt.Stream = on }

// Plain makes the undecided text, and all text that follows, text of the answer.
func (p *Parser) Plain() {
	if p.off = true; p.Busy() {
		p.pos = p.from
	}
	p.leave()
}

// InSection reports whether the answer is within a call, or behind one where others may follow.
func (p *Parser) InSection() bool {
	return p.Busy() || p.state == inNext && (p.open && len(p.spec.close) > 0 || p.list)
}

// Opening returns the text of the call that is being read, as far as it was given, Options.Begun included: what a
// grammar of the call must be told when it begins to hold. It is valid until the next Push.
func (p *Parser) Opening() []byte {
	if !p.Busy() || p.bare && p.tool < 0 { // what begins like a call may be other JSON
		return nil
	}
	return bytes.TrimLeft(p.buf[p.from:], " \t\r\n")
}

// Push reads more of the answer. The events are valid until the next call.
func (p *Parser) Push(text []byte) []Event {
	p.events, p.spans, p.out = p.events[:0], p.spans[:0], p.out[:0]
	if p.state == inText && len(p.buf) == 0 && p.plain(text) {
		p.shown = true
		p.code.add(text)
		p.events = append(p.events, Event{Kind: Text, Index: -1, Text: text})
		return p.events
	}
	p.buf = append(p.buf, text...)
	p.run()
	return p.take()
}

// Quote is Push for text of a message that cannot hold calls.
func (p *Parser) Quote(text []byte) []Event {
	if p.Busy() || p.off {
		return p.Push(text)
	}
	p.leave()
	p.off = true
	events := p.Push(text)
	p.off = false
	return events
}

// Finish reads the end of the answer.
func (p *Parser) Finish() []Event {
	p.events, p.spans, p.out = p.events[:0], p.spans[:0], p.out[:0]
	switch {
	case p.state == inNext, p.Busy() && p.spec.syntax.Notation == Tagged && !p.endless():
		p.cutOff() // a marker of which the rest is missing would be read as a value
		return p.take()
	case p.Busy() && p.spec.syntax.Notation == Tagged:
		p.pos = len(p.buf)
		p.fail(BadArgs)
	}
	p.final, p.ending = true, p.Busy()
	p.run()
	return p.take()
}

// Cut reads the end of an answer that its limit of tokens has cut off: a marker that had begun is no text.
func (p *Parser) Cut() []Event {
	p.events, p.spans, p.out = p.events[:0], p.spans[:0], p.out[:0]
	p.cutOff()
	return p.take()
}

// cutOff ends the answer where it is. What is not decided is part of a call, except in a text that can be none.
func (p *Parser) cutOff() {
	rest := p.buf[p.pos:]
	switch {
	case p.off, p.state == inText && !p.mayBegin(rest):
		p.final = true
		p.run()
	case p.Busy():
		p.unfinished()
	default:
		p.pos = len(p.buf)
		p.leave()
	}
}

// mayBegin reports whether text, which follows the decided part, may be the beginning of a call's marker.
func (p *Parser) mayBegin(text []byte) bool {
	text = text[min(len(text), max(0, p.seed-p.pos)):]
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	if len(trimmed) == 0 || isLetter(trimmed[0]) && p.shown {
		return false
	}
	_, _, f := p.start(trimmed)
	return f == stream.Wait || !p.shown && p.spec.syntax.Bare && p.bareStart(trimmed) == stream.Wait
}

// unfinished ends a call that the answer's end cuts off. Nothing of it is text, unless it is JSON that is no call.
func (p *Parser) unfinished() {
	raw := p.buf[max(p.from, p.seed):]
	index := -1
	if p.begun {
		index = p.index
		p.index++
	}
	tentative := p.bare && p.tool < 0 && !p.mayBeCall(raw)
	p.pos = len(p.buf)
	p.leave()
	p.begun, p.ending = false, false
	if tentative {
		p.text(raw)
		return
	}
	p.event(Event{Kind: Malformed, Index: index, Reason: Unfinished}, len(p.out))
}

// mayBeCall reports whether raw, the beginning of an object, may become one with the members of a call.
func (p *Parser) mayBeCall(raw []byte) bool {
	if p.spec.syntax.Notation == Keywords {
		return true
	}
	if i := bytes.IndexByte(raw, '{'); i >= 0 {
		raw = raw[i+1:]
	} else {
		return true
	}
	raw = bytes.TrimLeft(raw, " \t\r\n")
	for _, key := range slices.Concat(p.spec.keys.Name, p.spec.keys.ID, wrappers, []string{"type"}) {
		member := []byte(`"` + key + `"`)
		n := min(len(raw), len(member))
		if !bytes.Equal(raw[:n], member[:n]) {
			continue
		}
		if n < len(member) || key != p.spec.keys.Name[0] {
			return true
		}
		value := bytes.TrimLeft(raw[n:], ": \t\r\n")
		return len(value) < 2 || value[0] == '"' && p.tools.begins(string(value[1:]))
	}
	return false
}

// plain reports whether text, after no other, is plain text to its end.
func (p *Parser) plain(text []byte) bool {
	if len(text) == 0 || !p.off && stream.IsSpace(text[len(text)-1]) || !p.shown {
		return false
	}
	for _, c := range text {
		if !p.off && p.spec.first[c] || stream.IsFence(c) {
			return false
		}
	}
	return true
}

// take returns the events, and forgets what of buf is not needed.
func (p *Parser) take() []Event {
	for i := range p.events {
		if s := p.spans[i]; s[1] > s[0] {
			p.events[i].Text = p.out[s[0]:s[1]]
		}
	}
	keep := p.pos
	if p.Busy() {
		keep = p.from
	}
	if keep > 0 {
		p.buf = p.buf[:copy(p.buf, p.buf[keep:])]
		p.pos, p.from = p.pos-keep, max(0, p.from-keep)
		p.seed = max(0, p.seed-keep)
	}
	if len(p.buf) == 0 && cap(p.buf) > keepBuffer {
		p.buf = nil
	}
	return p.events
}

// event reports an event whose text begins at from in out.
func (p *Parser) event(e Event, from int) {
	p.events = append(p.events, e)
	p.spans = append(p.spans, [2]int{from, len(p.out)})
}

// text reports text of the answer.
func (p *Parser) text(text []byte) {
	if !p.shown && p.calls > 0 { // nothing is before the calls
		text = bytes.TrimLeft(text, " \t\r\n")
	}
	if len(text) == 0 {
		return
	}
	p.shown = true
	p.code.add(text)
	if n := len(p.events); n > 0 && p.events[n-1].Kind == Text {
		p.out = append(p.out, text...)
		p.spans[n-1][1] = len(p.out)
		return
	}
	from := len(p.out)
	p.out = append(p.out, text...)
	p.event(Event{Kind: Text, Index: -1}, from)
}

// run reads as far as can be told.
func (p *Parser) run() {
	for {
		for p.step() {
		}
		switch {
		case p.Busy() && p.limit() < len(p.buf):
			p.fail(TooLong)
		case p.final && p.Busy():
			if p.state == inName && p.spec.syntax.Notation == Envelope { // code, of which the model wrote no call
				p.ending = false
				p.fail(Unfinished)
			} else {
				p.unfinished()
			}
		case p.final && p.state == inNext:
			p.leave()
		default:
			return
		}
	}
}

// limit returns the end of the text that may be read: a call has at most MaxBytes. It does not depend on the amount of
// text that came with one Push.
func (p *Parser) limit() int {
	if !p.Busy() {
		return len(p.buf)
	}
	return min(len(p.buf), p.from+p.opt.MaxBytes)
}

// rest returns the text that is not read.
func (p *Parser) rest() []byte { return p.buf[p.pos:p.limit()] }

// last reports whether rest goes to the answer's end.
func (p *Parser) last() bool { return p.final && p.limit() == len(p.buf) }

// skipSpace reads white space, and reports whether text follows.
func (p *Parser) skipSpace() bool {
	end := p.limit()
	for p.pos < end && stream.IsSpace(p.buf[p.pos]) {
		p.pos++
	}
	return p.pos < end
}

// step reads one part, and returns false where it must wait for more.
func (p *Parser) step() bool {
	switch p.state {
	case inText:
		return p.plainText()
	case inSection, inNext:
		return p.between()
	case inName, inID:
		return p.readName()
	case inObject:
		return p.object()
	case inJSON, inNested:
		return p.argumentText()
	case inKey, inColon, inMember, inNameValue, inIDValue, inSkip, inComma:
		return p.envelope()
	case inParam, inParamKey, inParamAttr, inParamValue:
		return p.tagged()
	}
	return p.looseArguments()
}
