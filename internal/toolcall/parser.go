package toolcall

import (
	"bytes"

	"github.com/uma-serve/uma-serve/internal/thinktags"
)

// Options of a Parser.
type Options struct {
	// Stream gives a call's arguments while they are written. It is for calls that a grammar holds to their notation: what
	// was given cannot be taken back. Without it, a call is given when it is complete, so that a malformed one never begins.
	Stream bool
	// MaxBytes bounds the text of a call, which is kept until it is complete; 0 means DefaultMaxBytes.
	MaxBytes int
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

	state state
	open  bool // in a section that Open began
	list  bool // in a JSON list of calls
	bare  bool // the call has no opening of its own: if it is none, it is text
	seed  int  // bytes at the beginning of buf that are the prompt's

	shown  bool // text of the answer was reported
	calls  int  // complete
	index  int  // of the next call
	inside int  // calls of this section

	// The call being read.
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
	allowed types // of the parameter
	scan    int   // bytes after pos in which the value's end is not
	quoted  bool  // the value's opening quote is written
	json    scanner
	loose   loose

	events []Event
	spans  [][2]int // of out, for events with text
	out    []byte
}

// state is what the parser reads next.
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
	p := &Parser{spec: spec, tools: tools, opt: opt, tool: -1}
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

// InSection reports whether the answer is within a call, or behind one where others may follow.
func (p *Parser) InSection() bool {
	return p.Busy() || p.state == inNext && (p.open && len(p.spec.close) > 0 || p.list)
}

// Opening returns the text of the call that is being read, as far as it was given, Options.Begun included: what a grammar of
// the call must be told when it begins to hold. It is valid until the next Push.
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
		p.events = append(p.events, Event{Kind: Text, Index: -1, Text: text})
		return p.events
	}
	p.buf = append(p.buf, text...)
	p.run()
	return p.take()
}

// Finish reads the end of the answer.
func (p *Parser) Finish() []Event {
	p.events, p.spans, p.out = p.events[:0], p.spans[:0], p.out[:0]
	p.final = true
	p.run()
	return p.take()
}

// plain reports whether text, after no other, is plain text to its end.
func (p *Parser) plain(text []byte) bool {
	if len(text) == 0 || isSpace(text[len(text)-1]) || !p.shown {
		return false
	}
	for _, c := range text {
		if p.spec.first[c] || isFence(c) {
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
	if !p.shown && p.calls > 0 { // nothing stands before the calls
		text = bytes.TrimLeft(text, " \t\r\n")
	}
	if len(text) == 0 {
		return
	}
	p.shown = true
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
			p.fail(Unfinished)
		case p.final && p.state == inNext:
			p.leave()
		default:
			return
		}
	}
}

// limit is where the text ends that may be read: a call has MaxBytes. It does not depend on how much came with one Push.
func (p *Parser) limit() int {
	if !p.Busy() {
		return len(p.buf)
	}
	return min(len(p.buf), p.from+p.opt.MaxBytes)
}

// rest is the text that is not read.
func (p *Parser) rest() []byte { return p.buf[p.pos:p.limit()] }

// last reports whether rest goes to the answer's end.
func (p *Parser) last() bool { return p.final && p.limit() == len(p.buf) }

// skipSpace reads white space, and reports whether text follows.
func (p *Parser) skipSpace() bool {
	end := p.limit()
	for p.pos < end && isSpace(p.buf[p.pos]) {
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

// plainText reads text up to what begins a call.
func (p *Parser) plainText() bool {
	s := p.spec
	done := p.pos     // text before it is decided
	blank := !p.shown // only white space so far
	for i := p.pos; i < len(p.buf); {
		c := p.buf[i]
		if blank && s.form.Bare && !isSpace(c) && i >= p.seed {
			if f := p.bareStart(p.buf[i:]); f == wait {
				p.pos = done
				return false
			} else if f == yes {
				p.bare, p.from, p.pos = true, done, i
				p.state, p.inside, p.tool = inSection, 0, -1
				return true
			}
		}
		blank = blank && isSpace(c)
		if s.first[c] {
			kind, n, f := p.start(p.buf[i:])
			if f == wait {
				p.settle(done, i)
				return false
			}
			if f == yes {
				p.settle(done, i)
				p.begin(i, n, kind)
				return true
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
	for i > done && isSpace(p.buf[i-1]) && end-i < maxSpace {
		i--
	}
	if !p.shown && i == done && end-i < maxSpace {
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

// foreign returns how many bytes of a fenced marker of another form are not text: all of a control token's, the fence of
// any other.
func (p *Parser) foreign(text []byte) (int, found) {
	if text[0] != thinktags.HiddenFence {
		return 1, yes
	}
	for i, c := range text[:min(len(text), maxRecent)] {
		if c == thinktags.FenceEnd {
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

// between reads what stands before a call of a section, between two, and at the section's end.
func (p *Parser) between() bool {
	s, f := p.spec, p.spec.form
	at := p.pos
	for {
		if !p.skipSpace() {
			p.pos = at
			return false
		}
		if p.state == inSection {
			break
		}
		if c := p.buf[p.pos]; c == ',' || c == ';' {
			p.pos++
			continue
		}
		n, found := oneOf(p.rest(), s.after, p.last())
		if found == wait {
			p.pos = at
			return false
		}
		if found == no {
			break
		}
		p.pos += n
		at = p.pos
	}
	rest := p.rest()
	if n, found := oneOf(rest, s.close, p.last()); found == wait && (p.open || p.inside > 0) {
		p.pos = at
		return false
	} else if found == yes && (p.open || p.inside > 0) {
		if p.inside == 0 {
			p.pos += n
			p.fail(NoCall)
			return true
		}
		p.pos += n
		p.leave()
		return true
	}
	c := rest[0]
	inList := f.Notation == Envelope || f.Notation == Keyed || f.Notation == Keywords
	switch {
	case inList && c == '[' && !p.list && p.inside == 0:
		p.pos++
		p.list = true
		return true
	case c == ']' && p.list && p.inside > 0:
		p.pos++
		p.list = false
		if !p.open || len(s.close) == 0 {
			p.leave()
		}
		return true
	}
	if len(s.before) > 0 {
		n, found := oneOf(rest, s.before, p.last())
		if found == wait {
			p.pos = at
			return false
		}
		if found == yes {
			p.mark(at)
			p.pos += n
			p.call(inName)
			return true
		}
	} else {
		again := p.inside == 0 || p.list || p.bare || p.open && len(s.close) > 0 || len(s.close) == 0 && c == '{'
		switch {
		case !again:
		case inList && c == '{':
			p.mark(at)
			p.pos++
			p.call(inKey)
			p.depth, p.keyed = 0, f.Notation == Keyed
			return true
		case (f.Notation == Keywords || f.Notation == Envelope && p.open && len(s.middle) > 0) && nameByte(c) && (p.list || p.inside == 0):
			p.mark(at)
			p.call(inName)
			return true
		case f.Notation == Tagged || f.Notation == Object || f.Notation == Braces:
			if p.inside == 0 && (nameByte(c) || isFence(c)) {
				p.mark(at)
				p.call(inName)
				return true
			}
		}
	}
	if p.inside > 0 {
		p.pos = at
		p.leave()
		return true
	}
	p.pos = at
	p.fail(NoCall)
	return true
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

// call begins a call.
func (p *Parser) call(next state) {
	p.state = next
	p.begun, p.tool, p.id, p.name, p.key = false, -1, p.id[:0], p.name[:0], p.key[:0]
	p.args, p.sent, p.scan, p.hasArgs, p.quoted = p.args[:0], 0, 0, false, false
}

// fail gives the text since from back to the answer.
func (p *Parser) fail(why Reason) {
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
	p.out = p.out[:from+len(unfenced(p.out[from:]))]
	p.event(Event{Kind: Malformed, Index: index, Reason: why}, from)
	p.begun = false
}

// named looks the call's tool up. It returns false after a failure.
func (p *Parser) named() bool {
	f := p.spec.form
	name := bytes.TrimSpace(unfenced(p.name))
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
	p.begun = false
	p.state = inNext
}

// nameByte reports whether c may be part of a name that has no end marker.
func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c == ':' ||
		c == '/' || c >= 0x80 && !isFence(c)
}

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
