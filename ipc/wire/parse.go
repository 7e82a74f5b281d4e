package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
)

// Limits of a request's fields; those of its sampling parameters are package sampler's.
const (
	MaxIDBytes       = 128
	MaxStops         = 16
	MaxStopBytes     = 256
	MaxMetadataBytes = 4096
	MaxSaltBytes     = 512 // of cache_salt
	MaxTokensLimit   = 1 << 27
	MaxSLOMs         = 3_600_000
	MaxIndent        = 1 << 16
	MaxPredictMs     = 1 << 31
	MaxPingSeconds   = 1<<31 - 1

	MaxDryBreaks         = 32
	MaxDryBreakBytes     = 40
	MaxBiasTextBytes     = 256
	MaxTemplateArgsBytes = 16 << 10
)

// DefaultRequest returns a request with the defaults of all fields except id and prompt. The sampling defaults are
// llama-server's.
func DefaultRequest() Request {
	return Request{Stream: true, ParallelToolCalls: true, Sampling: sampler.DefaultParams()}
}

// Parser parses the messages of any number of connections, one after the other. It keeps its memory between calls,
// except that of an unusually large message.
type Parser struct {
	// MaxPromptBytes bounds the text of prompt, or of all messages together. 0 = only the frame does.
	MaxPromptBytes int
	// Left, if it is not nil, gets the unknown fields of requests, which are left out instead of refused. Unknown
	// members of most nested objects are left out in any case.
	Left *Strays

	json jsontext.Parser
	d    decoder // of the Parse that runs; between two it keeps memory alone
}

// scannedID returns the id of a message that could not be parsed, if the scanner has found a valid one.
func (p *Parser) scannedID(payload []byte) string {
	b := payload[p.json.Scan.ID.Start:p.json.Scan.ID.End]
	if len(b) >= 2 && b[0] == '"' {
		b = b[1 : len(b)-1]
		if bytes.IndexByte(b, '\\') >= 0 || !validID(b) {
			return ""
		}
		return string(b)
	}
	if !isInteger(b) || !validID(b) {
		return ""
	}
	return string(b)
}

// Parse reads one frame's payload. Fields that the client leaves out of a request are taken from def, whose slices the
// request may share. A RequestError, the only kind of error, says which field is wrong and what it may be.
func Parse(p *Parser, payload []byte, def *Request) (Frame, error) {
	root, defect := p.json.Parse(payload)
	defer p.json.Release()
	if defect != "" {
		return Frame{}, &RequestError{ID: p.scannedID(payload), Code: InvalidJSON, Message: defect}
	}
	if root.Type() != fastjson.TypeObject {
		return Frame{}, &RequestError{Code: BadRequest, Message: "the message is " + jsontext.TypeName(root) +
			"; it must be a JSON object"}
	}
	d := p.decoder(payload)
	defer d.release()
	*d.req = *def
	err := d.fields(root)
	if err == nil {
		err = d.finish()
	}
	if err != nil {
		bad := &RequestError{ID: d.req.ID, Code: BadRequest, Message: err.Error()}
		if bad.ID == "" {
			bad.ID = p.scannedID(payload)
		}
		if d.code != "" {
			bad.Code = d.code
		}
		return Frame{}, bad
	}
	f := Frame{Kind: d.kind, ID: d.req.ID, Why: d.why, KV: d.kv}
	switch d.kind {
	case KindRequest:
		f.Request = d.req
	case KindEmbed:
		e := d.embed
		f.Embed = &e
	}
	return f, nil
}

// decoder is the state of one Parse.
type decoder struct {
	p       *Parser
	payload []byte
	req     *Request
	kind    Kind
	code    Code // of the error, when it is not BadRequest
	given   []given

	prompt, messages       bool
	priority               bool
	tier                   Priority
	logprobs, topLogprobs  int
	logprobsSet, topSet    bool
	logprobsBool, byNumber bool
	opening                bool        // add_generation_prompt is true
	references             []reference // to tools, in the order of the messages
	joints                 []int       // offsets in the newest message's content at which its parts are joined
	stages                 []int       // of samplers; nil: not given

	formatBy string   // the field that has set the format of the answer
	allowed  []string // tools of tool_choice "allowed_tools"; nil: all
	hosted   bool     // a tool that other servers run was left out

	think thinkSpoken
	why   WhyQuestion
	kv    KVQuestion
	embed Embed
	asked []string // fields of a question so far
}

// decoder returns the decoder of one Parse.
func (p *Parser) decoder(payload []byte) *decoder {
	d := &p.d
	d.p, d.payload, d.req, d.embed = p, payload, new(Request), DefaultEmbed()
	return d
}

// release drops everything but the memory for given.
func (d *decoder) release() {
	clear(d.given)
	*d = decoder{given: d.given[:0]}
}

// given is a field that was read, with the name that the client used.
type given struct {
	field int
	key   string // one of the field's names
	value *fastjson.Value
}

// again records that field i was read under key, and compares it with an earlier occurrence under one of its names: the
// same name twice or a different value is an error, the same value under another name is skipped. Ignored fields are
// skipped too.
func (d *decoder) again(i int, key string, v *fastjson.Value) (skip bool, err error) {
	f := &fields[i]
	for _, g := range d.given {
		if g.field != i {
			continue
		}
		a, b := string(g.value.MarshalTo(nil)), string(v.MarshalTo(nil))
		switch {
		case g.key == key:
			return false, fmt.Errorf("field %q is given twice", key)
		case a == b || v.Type() == fastjson.TypeNumber && sameNumber(a, b):
			return true, nil
		}
		return false, fmt.Errorf("fields %q and %q are the same field and hold different values; send one of them",
			g.key, key)
	}
	d.given = append(d.given, given{i, key, v})
	return f.read == nil && !f.refused, nil
}

// fields reads all known fields. "event" and "type" come first: they decide what the others mean.
func (d *decoder) fields(root *fastjson.Value) error {
	obj, _ := root.Object()
	d.kind = KindRequest
	var err error
	obj.Visit(func(key []byte, v *fastjson.Value) {
		if err == nil && (string(key) == "event" || string(key) == "type") {
			err = d.discriminator(string(key), v)
		}
	})
	if err != nil {
		return err
	}
	obj.Visit(func(key []byte, v *fastjson.Value) {
		if err != nil {
			return
		}
		if v.Type() == fastjson.TypeNull {
			return
		}
		known, ok := fieldIndex[string(key)]
		switch {
		case d.kind != KindRequest && string(key) != "id":
			switch d.kind {
			case KindWhy, KindKV:
				err = d.question(string(key), v)
			case KindEmbed:
				if string(key) != "event" {
					err = d.embedField(string(key), v)
				}
			}
			return
		case string(key) == "event" || string(key) == "type":
			return
		case !ok && d.p.Left != nil:
			d.p.Left.AddField("", string(key))
			return
		case !ok:
			err = unknown(key)
			return
		}
		if d.p.Left != nil && requestShape.Inner[known.name] != nil {
			requestShape.Inner[known.name].strays(v, known.name, d.p.Left)
		}
		var skip bool
		f := &fields[known.at]
		switch skip, err = d.again(known.at, known.name, v); {
		case err != nil || skip:
		case f.refused:
			err = f.refusal(known.name, v)
		default:
			err = f.read(d, known.name, v)
		}
	})
	return err
}

func (d *decoder) discriminator(name string, v *fastjson.Value) error {
	if v.Type() == fastjson.TypeNull {
		return nil
	}
	if d.kind != KindRequest {
		return fmt.Errorf("a message has one %q or one %q, not two", "event", "type")
	}
	s, err := v.StringBytes()
	if err != nil {
		return wrongType(name, v, allowedKinds(name))
	}
	for k := KindCancel; k <= KindEmbed; k++ {
		isType := k >= KindMetrics && k <= KindInfo
		if string(s) == k.String() && isType == (name == "type") {
			d.kind = k
			return nil
		}
	}
	return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), allowedKinds(name))
}

func allowedKinds(name string) string {
	if name == "event" {
		return `"embed", "cancel", "end_think", "why" or "kv", or absent in a request`
	}
	return `"metrics", "health" or "info", or absent in a request`
}

// finish checks the constraints between fields.
func (d *decoder) finish() error {
	r := d.req
	switch {
	case r.ID == "" && (d.kind <= KindEndThink || d.kind == KindEmbed):
		return fmt.Errorf("field %q is missing; it must be a string of 1…%d bytes or an integer", "id", MaxIDBytes)
	case d.kind == KindEmbed:
		return d.finishEmbed()
	case d.kind != KindRequest:
		return d.finishQuestion()
	case !d.prompt && !d.messages:
		return fmt.Errorf("fields %q and %q are missing; a request has one of them", "prompt", "messages")
	case d.prompt && d.messages:
		return fmt.Errorf("fields %q and %q are both given; a request has one of them", "prompt", "messages")
	case r.Suffix != "" && (d.messages || r.PromptTokens != nil):
		return fmt.Errorf("field %q belongs to a %q that is text", "suffix", "prompt")
	case r.ParseSpecial && (d.messages || r.PromptTokens != nil || r.Suffix != ""):
		return fmt.Errorf("field %q belongs to a %q that is text, without %q", "parse_special", "prompt", "suffix")
	}
	if long := r.tooLong(d.p.MaxPromptBytes); long != "" {
		d.code = PromptTooLarge
		return errors.New(long)
	}
	if !d.priority && d.tier != 0 {
		r.Priority = d.tier - 1
	}
	switch {
	case d.logprobsSet && d.byNumber:
		r.Sampling.Logprobs = d.logprobs
	case d.logprobsSet && !d.logprobsBool:
		r.Sampling.Logprobs = 0
	case d.topSet && (d.logprobsSet || d.topLogprobs > 0):
		r.Sampling.Logprobs = max(d.topLogprobs, 1)
	case d.logprobsSet:
		r.Sampling.Logprobs = 1
	}
	if d.stages != nil && r.Sampling.Mirostat == 0 { // Mirostat has its own
		d.order(&r.Sampling)
	}
	if err := d.finishTools(); err != nil {
		return err
	}
	if err := d.finishTurn(); err != nil {
		return err
	}
	return d.finishThink()
}

// finishTurn checks the end of the conversation: its last message, and whether the answer continues it. The parts of an
// assistant's message that the answer continues are joined by empty lines, as llama-server does.
func (d *decoder) finishTurn() error {
	r := d.req
	if d.messages && r.Continue != ContinueOff {
		if last := &r.Messages[len(r.Messages)-1]; last.Role == "assistant" && len(d.joints) > 0 {
			var text strings.Builder
			from := 0
			for _, at := range d.joints {
				text.WriteString(last.Content[from:at])
				text.WriteByte('\n')
				from = at
			}
			text.WriteString(last.Content[from:])
			last.Content = text.String()
		}
	}
	const field = "continue_final_message"
	if r.Continue == ContinueLast || r.Continue == ContinueOff {
		return nil
	}
	if !d.messages {
		return fmt.Errorf("field %q is %s without messages; a prompt is always continued", field,
			r.Continue)
	}
	switch last := &r.Messages[len(r.Messages)-1]; {
	case d.opening:
		return fmt.Errorf("fields %q and %q are both set: an answer continues the last message or opens a new one",
			field, "add_generation_prompt")
	case last.Role != "assistant":
		return fmt.Errorf("field %q is %s, but the last message is not an assistant's", field,
			r.Continue)
	case r.Continue == ContinueThought && (last.ReasoningContent == "" || last.Content != ""):
		return fmt.Errorf("field %q is %s, but the last message has no thought or has content behind it", field,
			r.Continue)
	}
	return nil
}

// readContinue reads continue_final_message: as in vLLM, and with the names that llama-server takes besides.
func readContinue(d *decoder, name string, v *fastjson.Value) error {
	if v.Type() == fastjson.TypeString {
		switch string(v.GetStringBytes()) {
		case "reasoning_content":
			d.req.Continue = ContinueThought
		case "content":
			d.req.Continue = ContinueContent
		default:
			return fmt.Errorf("field %q must be true, false, \"content\" or \"reasoning_content\"", name)
		}
		return nil
	}
	on := false
	err := d.boolean(name, v, &on)
	if d.req.Continue = ContinueOff; on {
		d.req.Continue = ContinueOn
	}
	return err
}

// validID reports whether b can be an id. Ids are shown in logs and terminals, so control characters are invalid.
func validID(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == 0x7f {
			return false
		}
	}
	return len(b) >= 1 && len(b) <= MaxIDBytes && jsontext.InvalidUTF8(b) == len(b)
}
