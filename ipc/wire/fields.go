package wire

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
)

// field is one known field of a client's message. Null is as good as absent. A field is read, or refused but for values
// that ask for nothing (but, with why), or ignored because it cannot change an answer (nothing set).
//
// docs/protocol.md has these three kinds in three tables, which a test holds against this one.
type field struct {
	name    string
	aliases []string // names in other servers' APIs
	read    func(d *decoder, name string, v *fastjson.Value) error

	refused bool
	but     []string // JSON of the values that are as good as absent
	why     string
}

// fields are all fields a request can have, "event" and "type" aside.
var fields = slices.Concat(requestFields, parameterFields(), samplingFields, toolFields, formatFields, thinkFields,
	refusedFields, ignoredFields)

// verbosities are the values of "verbosity".
var verbosities = []string{"low", "medium", "high"}

var requestFields = []field{
	{name: "id", read: readID},
	{name: "model", read: readModel},
	{name: "prompt", read: readPrompt},
	flag("parse_special", func(r *Request) *bool { return &r.ParseSpecial }),
	{name: "messages", read: readMessages},
	{name: "suffix", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.Suffix, err = d.str(name, v)
		return err
	}},
	{name: "max_tokens", aliases: []string{"max_completion_tokens", "n_predict"},
		read: func(d *decoder, name string, v *fastjson.Value) error {
			n, err := d.integer(name, v, -1, MaxTokensLimit)
			d.req.MaxTokens, d.req.FillOnly = int(max(n, 0)), n == 0
			return err
		}},
	{name: "n_indent", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.Indent, err = d.count(name, v, 0, MaxIndent)
		return err
	}},
	{name: "t_max_predict_ms", read: func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, MaxPredictMs)
		d.req.MaxTime = time.Duration(max(n, 0)) * time.Millisecond
		return err
	}},
	{name: "stop", read: readStop},
	flag("stream", func(r *Request) *bool { return &r.Stream }),
	{name: "continue_final_message", read: readContinue},
	{name: "add_generation_prompt", read: func(d *decoder, name string, v *fastjson.Value) error {
		opening := false
		err := d.boolean(name, v, &opening)
		d.req.NoOpening, d.opening = !opening, opening
		return err
	}},
	{name: "chat_template_kwargs", read: readTemplateArgs},
	{name: "verbosity", read: func(d *decoder, name string, v *fastjson.Value) error {
		i, err := d.word(name, v, verbosities)
		if err == nil {
			d.req.Verbosity = verbosities[i]
		}
		return err
	}},
	{name: "speculate", aliases: []string{"speculative.n_max"},
		read: func(d *decoder, name string, v *fastjson.Value) error {
			n, err := d.integer(name, v, 0, math.MaxInt32)
			d.req.Speculate, d.req.SpeculateSet = int(n), err == nil
			return err
		}},
	{name: "cache_salt", read: readCacheSalt},
	{name: "truncate_prompt_tokens", read: func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, math.MaxInt32)
		if err == nil && n == 0 {
			return fmt.Errorf("field %q is 0: a prompt has a token at least; send the number to keep, or -1 for as "+
				"many as fit", name)
		}
		d.req.TruncatePrompt = int(n)
		return err
	}},
	flag("return_token_ids", func(r *Request) *bool { return &r.EveryToken }),
	{name: "lora", read: readLoRA},
	{name: "lora_path", read: readLoRAPath},
	{name: "priority", read: readPriority},
	{name: "service_tier", read: readServiceTier},
	{name: "slo", read: readSLO},
	{name: "metadata", read: readMetadata},
	{name: "traceparent", read: readTraceparent},
	{name: "sse_ping_interval", read: func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, MaxPingSeconds)
		if d.req.Ping = int(n); err == nil && n == 0 {
			d.req.Ping = -1
		}
		return err
	}},
	flag("verbose", func(r *Request) *bool { return &r.Verbose }),
	{name: "return_progress", read: func(d *decoder, name string, v *fastjson.Value) error {
		err := d.boolean(name, v, &d.req.Progress)
		d.req.NoProgress = !d.req.Progress
		return err
	}},
}

// samplingFields are the fields of sampling that are not one value.
var samplingFields = []field{
	{name: "dry_sequence_breakers", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.DryBreaks, err = d.texts(name, v, MaxDryBreaks, MaxDryBreakBytes, false)
		return err
	}},
	{name: "samplers", read: readSamplers},
	{name: "logit_bias", read: readLogitBias},
	{name: "allowed_token_ids", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.Sampling.AllowedTokens, err = d.tokens(name, v, sampler.MaxAllowedTokens)
		if err == nil && len(d.req.Sampling.AllowedTokens) == 0 {
			return fmt.Errorf("field %q is empty: that forbids every token; leave it out to allow all", name)
		}
		return err
	}},
	{name: "bad_words", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.BadWords, err = d.texts(name, v, sampler.MaxBadWords, sampler.MaxBadWordTokens, false)
		if len(d.req.BadWords) == 0 {
			d.req.BadWords = nil
		}
		return err
	}},
	{name: "stop_token_ids", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.Sampling.StopTokens, err = d.tokens(name, v, sampler.MaxStopTokens)
		return err
	}},
	{name: "prompt_logprobs", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.req.PromptLogprobs, err = d.count(name, v, 0, sampler.MaxLogprobs)
		return err
	}},
	{name: "top_logprobs", read: func(d *decoder, name string, v *fastjson.Value) (err error) {
		d.topLogprobs, err = d.count(name, v, 0, sampler.MaxLogprobs)
		d.topSet = true
		return err
	}}}

// known is one of a field's names.
type known struct {
	at   int // of the field, in fields
	name string
}

// fieldIndex finds a field by its name or an alias.
var fieldIndex = func() map[string]known {
	m := make(map[string]known, 2*len(fields))
	for i, f := range fields {
		for _, name := range append([]string{f.name}, f.aliases...) {
			if _, twice := m[name]; twice {
				panic("wire: two fields are called " + name)
			}
			m[name] = known{i, name}
		}
	}
	return m
}()

// flag returns a field that is true or false.
func flag(name string, of func(r *Request) *bool) field {
	return field{name: name, read: func(d *decoder, name string, v *fastjson.Value) error {
		return d.boolean(name, v, of(d.req))
	}}
}

// refused returns a field that changes what a right answer is, in a way this server does not serve.
func refused(name, why string, but ...string) field {
	return field{name: name, refused: true, but: but, why: why}
}

func ignored(names ...string) (list []field) {
	for _, n := range names {
		list = append(list, field{name: n})
	}
	return list
}

// refusal is nil when the value asks for nothing.
func (f *field) refusal(name string, v *fastjson.Value) error {
	text := string(v.MarshalTo(nil))
	for _, but := range f.but {
		if text == but || v.Type() == fastjson.TypeNumber && sameNumber(text, but) {
			return nil
		}
	}
	if f.why == "" {
		return fmt.Errorf("field %q is not supported by this server; leave it out", name)
	}
	return fmt.Errorf("field %q is not supported by this server (%s); leave it out", name, f.why)
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// unknown refuses a field that is in no table. It may be misspelt, or ask for something that the server does not do.
func unknown(key []byte) error {
	if err := strayThink(key); err != nil {
		return err
	}
	nearest := nearestField(string(key))
	if nearest != "" {
		return fmt.Errorf("field %s is not known; did you mean %q?", quoted(key), nearest)
	}
	return fmt.Errorf("field %s is not known; docs/protocol.md lists those that are, and those that are ignored",
		quoted(key))
}

// nearestField returns the request's field for which name may be a slip; "" = none.
func nearestField(name string) string { return Nearest(name, maps.Keys(fieldIndex)) }
