package wire

import (
	"fmt"
	"math"
	"strconv"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
)

// field is one known field of a client's message. Null is as good as absent.
type field struct {
	name    string
	aliases []string // what other servers call it
	read    func(d *decoder, name string, v *fastjson.Value) error
}

// fields are all fields a request can have, "event" and "type" aside.
var fields = append([]field{
	{"id", nil, readID},
	{"prompt", nil, readPrompt},
	{"messages", nil, readMessages},
	{"max_tokens", []string{"max_completion_tokens", "n_predict"}, func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, MaxTokensLimit)
		if err == nil && n == 0 {
			return fmt.Errorf("field %q is 0; it must be 1…%d, or -1 for the server's own limit", name, MaxTokensLimit)
		}
		d.req.MaxTokens = int(max(n, 0))
		return err
	}},
	number("temperature", nil, -sampler.MaxTemperature, sampler.MaxTemperature, func(p *sampler.Params) *float32 { return &p.Temperature }),
	number("top_p", nil, 0, 1, func(p *sampler.Params) *float32 { return &p.TopP }),
	{"top_k", nil, func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, math.MaxInt32)
		d.req.Sampling.TopK = int(max(n, 0))
		return err
	}},
	number("min_p", nil, 0, 1, func(p *sampler.Params) *float32 { return &p.MinP }),
	number("repeat_penalty", []string{"repetition_penalty"}, sampler.MinRepeatPenalty, sampler.MaxRepeatPenalty, func(p *sampler.Params) *float32 { return &p.RepeatPenalty }),
	number("frequency_penalty", nil, -sampler.MaxPenalty, sampler.MaxPenalty, func(p *sampler.Params) *float32 { return &p.FrequencyPenalty }),
	number("presence_penalty", nil, -sampler.MaxPenalty, sampler.MaxPenalty, func(p *sampler.Params) *float32 { return &p.PresencePenalty }),
	{"repeat_last_n", nil, func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, -1, sampler.MaxPenaltyLastN)
		d.req.Sampling.PenaltyLastN = int(n)
		return err
	}},
	{"seed", nil, readSeed},
	{"stop", nil, readStop},
	{"stream", nil, func(d *decoder, name string, v *fastjson.Value) error { return d.boolean(name, v, &d.req.Stream) }},
	{"logit_bias", nil, readLogitBias},
	{"logprobs", nil, readLogprobs},
	{"top_logprobs", nil, func(d *decoder, name string, v *fastjson.Value) error {
		n, err := d.integer(name, v, 0, sampler.MaxLogprobs)
		d.topLogprobs, d.topSet = int(n), true
		return err
	}},
	{"ignore_eos", nil, func(d *decoder, name string, v *fastjson.Value) error {
		return d.boolean(name, v, &d.req.Sampling.IgnoreEOS)
	}},
	{"priority", nil, readPriority},
	{"service_tier", nil, readServiceTier},
	{"slo", nil, readSLO},
	{"metadata", nil, readMetadata},
	{"return_progress", nil, func(d *decoder, name string, v *fastjson.Value) error { return d.boolean(name, v, &d.req.Progress) }},

	// An answer that ignores these is not the answer asked for.
	unsupported("tools", emptyArray),
	unsupported("functions", emptyArray),
	unsupported("grammar", emptyString),
	unsupported("json_schema", nil),
	unsupported("response_format", func(v *fastjson.Value) bool { return string(v.GetStringBytes("type")) == "text" }),
	unsupported("n", func(v *fastjson.Value) bool { return isNumber(v, 1) }),
}, thinkFields...)

// fieldIndex finds a field by its name or an alias.
var fieldIndex = func() map[string]int {
	m := make(map[string]int, 2*len(fields))
	for i, f := range fields {
		m[f.name] = i
		for _, a := range f.aliases {
			m[a] = i
		}
	}
	if len(fields) > 64 {
		panic("wire: decoder.seen has 64 bits")
	}
	return m
}()

func number(name string, aliases []string, lo, hi float64, dst func(*sampler.Params) *float32) field {
	return field{name, aliases, func(d *decoder, name string, v *fastjson.Value) error {
		return d.float(name, v, lo, hi, dst(&d.req.Sampling))
	}}
}

// unsupported is a field that changes what a right answer is, in a way this server does not know yet. harmless says
// which values ask for nothing.
func unsupported(name string, harmless func(*fastjson.Value) bool) field {
	return field{name, nil, func(_ *decoder, name string, v *fastjson.Value) error {
		if harmless != nil && harmless(v) {
			return nil
		}
		return fmt.Errorf("field %q is not supported by this server; leave it out", name)
	}}
}

func emptyArray(v *fastjson.Value) bool {
	a, err := v.Array()
	return err == nil && len(a) == 0
}

func isNumber(v *fastjson.Value, n int64) bool {
	got, err := v.Int64()
	return err == nil && got == n
}

func emptyString(v *fastjson.Value) bool {
	s, err := v.StringBytes()
	return err == nil && len(s) == 0
}

func readID(d *decoder, name string, v *fastjson.Value) (err error) {
	d.req.ID, err = d.name(name, v, MaxIDBytes)
	return err
}

func readPrompt(d *decoder, name string, v *fastjson.Value) (err error) {
	d.prompt = true
	d.req.Prompt, err = d.str(name, v)
	d.text += len(d.req.Prompt)
	if err == nil && d.req.Prompt == "" {
		return fmt.Errorf("field %q is empty", name)
	}
	return err
}

// readSeed: -1 is "a new one each time", as in llama-server.
func readSeed(d *decoder, name string, v *fastjson.Value) error {
	const must = "an integer of 0…18446744073709551615, or -1 for a random one"
	if v.Type() != fastjson.TypeNumber {
		return wrongType(name, v, must)
	}
	p := &d.req.Sampling
	s := d.number(v)
	if s == "-1" {
		p.Seed, p.SeedSet = 0, false
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		small, ierr := d.integer(name, v, 0, 1<<53)
		if ierr != nil {
			return outOfRange(name, d.number(v), must)
		}
		n = uint64(small)
	}
	p.Seed, p.SeedSet = n, true
	return nil
}

func readStop(d *decoder, name string, v *fastjson.Value) error {
	must := fmt.Sprintf("a string or an array of up to %d strings, each of 1…%d bytes", MaxStops, MaxStopBytes)
	var list []*fastjson.Value
	switch v.Type() {
	case fastjson.TypeString:
		list = []*fastjson.Value{v}
	case fastjson.TypeArray:
		list, _ = v.Array()
	default:
		return wrongType(name, v, must)
	}
	if len(list) > MaxStops {
		return fmt.Errorf("field %q has %d entries; it must be %s", name, len(list), must)
	}
	d.req.Stop = nil
	for i, e := range list {
		if v.Type() == fastjson.TypeArray {
			name = fmt.Sprintf("stop[%d]", i)
		}
		s, err := d.str(name, e)
		if err != nil {
			return err
		}
		if len(s) == 0 || len(s) > MaxStopBytes {
			return fmt.Errorf("field %q has %d bytes; it must have 1…%d", name, len(s), MaxStopBytes)
		}
		d.req.Stop = append(d.req.Stop, s)
	}
	return nil
}

// readLogitBias takes OpenAI's object {"token id": bias} and llama-server's list [[token id, bias], …].
func readLogitBias(d *decoder, name string, v *fastjson.Value) error {
	must := fmt.Sprintf("an object {\"token id\": bias} or an array of [token id, bias] with up to %d entries", sampler.MaxLogitBias)
	var list []sampler.Bias
	add := func(id int64, bias *fastjson.Value) error {
		b := sampler.Bias{Token: int32(id), Bias: float32(math.Inf(-1))}
		if bias.Type() != fastjson.TypeFalse {
			if bias.Type() != fastjson.TypeNumber {
				return wrongType(fmt.Sprintf("%s of token %d", name, id), bias, fmt.Sprintf("a number of %d…%d, or false to forbid the token", -sampler.MaxBias, sampler.MaxBias))
			}
			if err := d.float(fmt.Sprintf("%s of token %d", name, id), bias, -sampler.MaxBias, sampler.MaxBias, &b.Bias); err != nil {
				return err
			}
		}
		list = append(list, b)
		return nil
	}
	const idMust = "a token id of 0…2147483647"
	n := 0
	var err error
	switch v.Type() {
	case fastjson.TypeObject:
		obj, _ := v.Object()
		n = obj.Len()
		if n > sampler.MaxLogitBias {
			break
		}
		obj.Visit(func(key []byte, bias *fastjson.Value) {
			if err != nil {
				return
			}
			id, perr := strconv.ParseInt(string(key), 10, 32)
			if perr != nil || id < 0 {
				err = fmt.Errorf("field %q has the key %s; it must be %s", name, quoted(key), idMust)
				return
			}
			err = add(id, bias)
		})
	case fastjson.TypeArray:
		a, _ := v.Array()
		n = len(a)
		if n > sampler.MaxLogitBias {
			break
		}
		for i, pair := range a {
			entry := fmt.Sprintf("%s[%d]", name, i)
			two, aerr := pair.Array()
			if aerr != nil {
				return wrongType(entry, pair, "a pair [token id, bias]")
			}
			if len(two) != 2 {
				return fmt.Errorf("field %q has %d entries; it must be a pair [token id, bias]", entry, len(two))
			}
			if two[0].Type() != fastjson.TypeNumber {
				return wrongType(entry+"[0]", two[0], idMust)
			}
			id, ierr := d.integer(entry+"[0]", two[0], 0, math.MaxInt32)
			if ierr != nil {
				return ierr
			}
			if err := add(id, two[1]); err != nil {
				return err
			}
		}
	default:
		return wrongType(name, v, must)
	}
	if n > sampler.MaxLogitBias {
		return fmt.Errorf("field %q has %d entries; it must be %s", name, n, must)
	}
	d.req.Sampling.LogitBias = list
	return err
}

// readLogprobs takes a number, or OpenAI's boolean beside top_logprobs; finish joins the two.
func readLogprobs(d *decoder, name string, v *fastjson.Value) error {
	d.logprobsSet = true
	switch v.Type() {
	case fastjson.TypeTrue, fastjson.TypeFalse:
		d.logprobsBool = v.Type() == fastjson.TypeTrue
		return nil
	case fastjson.TypeNumber:
		n, err := d.integer(name, v, 0, sampler.MaxLogprobs)
		d.logprobs, d.byNumber = int(n), true
		return err
	}
	return wrongType(name, v, fmt.Sprintf("an integer of 0…%d or a boolean", sampler.MaxLogprobs))
}

// readPriority takes a class by name, or vLLM's integer, where a lower number goes first and 0 is the default.
func readPriority(d *decoder, name string, v *fastjson.Value) error {
	const must = `"interactive", "background", or an integer (up to 0: interactive, above: background)`
	d.priority = true
	switch v.Type() {
	case fastjson.TypeNumber:
		n, err := d.integer(name, v, math.MinInt32, math.MaxInt32)
		d.req.Priority = PriorityInteractive
		if n > 0 {
			d.req.Priority = PriorityBackground
		}
		return err
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		switch string(s) {
		case "interactive":
			d.req.Priority = PriorityInteractive
		case "background":
			d.req.Priority = PriorityBackground
		default:
			return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must)
		}
		return nil
	}
	return wrongType(name, v, must)
}

// readServiceTier takes OpenAI's word for it; "priority" goes over it when both are given.
func readServiceTier(d *decoder, name string, v *fastjson.Value) error {
	const must = `"auto", "default", "priority" (interactive) or "flex" (background)`
	s, err := v.StringBytes()
	if err != nil {
		return wrongType(name, v, must)
	}
	switch string(s) {
	case "auto", "default": // nothing is asked for
	case "priority":
		d.tier = PriorityInteractive + 1
	case "flex":
		d.tier = PriorityBackground + 1
	default:
		return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must)
	}
	return nil
}

func readSLO(d *decoder, name string, v *fastjson.Value) (err error) {
	obj, oerr := v.Object()
	if oerr != nil {
		return wrongType(name, v, "an object with target_ttft_ms and target_tbt_ms")
	}
	var ttft, tbt *fastjson.Value
	obj.Visit(func(key []byte, v *fastjson.Value) {
		field, seen, dst := name+"."+string(key), &ttft, &d.req.TargetTTFT
		switch string(key) {
		case "target_ttft_ms":
		case "target_tbt_ms":
			seen, dst = &tbt, &d.req.TargetTBT
		default:
			return
		}
		switch {
		case err != nil || v.Type() == fastjson.TypeNull:
		case *seen != nil:
			err = fmt.Errorf("field %q is given twice", field)
		default:
			*seen = v
			*dst, err = d.milliseconds(field, v)
		}
	})
	return err
}

// readMetadata keeps the client's own bytes.
func readMetadata(d *decoder, name string, _ *fastjson.Value) error {
	raw := d.payload[d.p.scan.metadata.start:d.p.scan.metadata.end]
	if len(raw) == 0 { // the scanner compares keys as they are written
		return fmt.Errorf("field %q must have its name written without escapes", name)
	}
	if len(raw) > MaxMetadataBytes {
		return fmt.Errorf("field %q has %d bytes of JSON; it must be at most %d", name, len(raw), MaxMetadataBytes)
	}
	d.req.Metadata = append([]byte(nil), raw...)
	return nil
}
