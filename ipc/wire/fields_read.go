package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched/slo"
)

func emptyArray(v *fastjson.Value) bool {
	a, err := v.Array()
	return err == nil && len(a) == 0
}

// tokens reads an array of token ids, nil when it is empty.
func (d *decoder) tokens(name string, v *fastjson.Value, limit int) (list []int32, err error) {
	must := func() string { return fmt.Sprintf("an array of up to %d token ids", limit) }
	a, aerr := v.Array()
	if aerr != nil {
		return nil, wrongType(name, v, must())
	}
	if len(a) > limit {
		return nil, fmt.Errorf("field %q has %d entries; it must be %s", name, len(a), must())
	}
	for i, e := range a {
		if n, err := e.Int64(); err == nil && n >= 0 && n <= math.MaxInt32 { // all of a prompt: they are many
			list = append(list, int32(n))
			continue
		}
		n, err := d.integer(entry(name, i), e, 0, math.MaxInt32)
		if err != nil {
			return nil, err
		}
		list = append(list, int32(n))
	}
	return list, nil
}

// texts reads an array of texts, or one text alone (single), empty ones left out.
func (d *decoder) texts(name string, v *fastjson.Value, limit, size int, single bool) ([]string, error) {
	must := fmt.Sprintf("an array of up to %d strings, each of 1…%d bytes", limit, size)
	if single {
		must = "a string or " + must
	}
	var list []*fastjson.Value
	switch {
	case single && v.Type() == fastjson.TypeString:
		list = []*fastjson.Value{v}
	case v.Type() == fastjson.TypeArray:
		list, _ = v.Array()
	default:
		return nil, wrongType(name, v, must)
	}
	if len(list) > limit {
		return nil, fmt.Errorf("field %q has %d entries; it must be %s", name, len(list), must)
	}
	texts := []string{}
	for i, e := range list {
		at := name
		if v.Type() == fastjson.TypeArray {
			at = entry(name, i)
		}
		s, err := d.str(at, e)
		if err != nil {
			return nil, err
		}
		if len(s) > size {
			return nil, fmt.Errorf("field %q has %d bytes; it must have 1…%d", at, len(s), size)
		}
		if s != "" {
			texts = append(texts, s)
		}
	}
	return texts, nil
}

func readID(d *decoder, name string, v *fastjson.Value) (err error) {
	d.req.ID, err = d.name(name, v, MaxIDBytes)
	return err
}

// readModel reads which model is asked. What is no string asks for none, as with servers of one model.
func readModel(d *decoder, name string, v *fastjson.Value) (err error) {
	if v.Type() == fastjson.TypeString {
		d.req.Model, err = d.modelName(name, v)
	}
	return err
}

func (d *decoder) modelName(name string, v *fastjson.Value) (string, error) {
	s, err := d.str(name, v)
	if err == nil && len(s) > MaxModelBytes {
		err = fmt.Errorf("field %q has %d bytes; it must have up to %d", name, len(s), MaxModelBytes)
	}
	return s, err
}

func readPrompt(d *decoder, name string, v *fastjson.Value) (err error) {
	d.prompt = true
	if v.Type() == fastjson.TypeArray {
		if d.req.PromptTokens, err = d.tokens(name, v, jsontext.MaxValues); err == nil && d.req.PromptTokens == nil {
			err = fmt.Errorf("field %q is empty", name)
		}
		return err
	}
	d.req.Prompt, err = d.str(name, v)
	if err == nil && d.req.Prompt == "" {
		return fmt.Errorf("field %q is empty", name)
	}
	// In a text that a client has written, a NUL is a mistake. Messages may hold it: they bring back what tools have
	// printed, and a session must not end over that.
	if at := strings.IndexByte(d.req.Prompt, 0); err == nil && at >= 0 {
		return fmt.Errorf("field %q holds a NUL, at byte %d; leave it out, or give the prompt as tokens", name, at)
	}
	return err
}

// readTopK: -1 is "all", as in vLLM, and so is 0.
func readTopK(d *decoder, name string, v *fastjson.Value) error {
	n, err := d.count(name, v, -1, math.MaxInt32)
	d.req.Sampling.TopK = max(n, 0)
	return err
}

// readSeed: -1 is "a new one each time", as in llama-server, where other negative numbers are seeds like any other.
func readSeed(d *decoder, name string, v *fastjson.Value) error {
	const must = "an integer of -9223372036854775808…18446744073709551615; -1 is a random one"
	if v.Type() != fastjson.TypeNumber {
		return wrongType(name, v, must)
	}
	p := &d.req.Sampling
	s := d.p.json.Number(v)
	if s == "-1" {
		p.Seed, p.SeedSet = 0, false
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		small, ierr := d.integer(name, v, math.MinInt64, math.MaxInt64)
		if ierr != nil {
			return outOfRange(name, d.p.json.Number(v), must)
		}
		if n = uint64(small); small == -1 {
			p.Seed, p.SeedSet = 0, false
			return nil
		}
	}
	p.Seed, p.SeedSet = n, true
	return nil
}

func readStop(d *decoder, name string, v *fastjson.Value) (err error) {
	d.req.Stop, err = d.texts(name, v, MaxStops, MaxStopBytes, true)
	if len(d.req.Stop) == 0 {
		d.req.Stop = nil
	}
	return err
}

// readLogitBias takes OpenAI's object {"token id": bias} and llama-server's list [[token id, bias], …], in both of
// which a text may stand for its tokens.
func readLogitBias(d *decoder, name string, v *fastjson.Value) error {
	must := fmt.Sprintf("an object {\"token id or text\": bias} or an array of [token id or text, bias] with up to "+
		"%d entries", sampler.MaxLogitBias)
	var list []sampler.Bias
	d.req.TextBias = nil
	read := func(whose string, bias *fastjson.Value) (float32, error) {
		b := float32(math.Inf(-1))
		if bias.Type() == fastjson.TypeFalse {
			return b, nil
		}
		if bias.Type() != fastjson.TypeNumber {
			return b, wrongType(whose, bias, fmt.Sprintf("a number of %d…%d, or false to forbid the token",
				-sampler.MaxBias, sampler.MaxBias))
		}
		err := d.float(whose, bias, -sampler.MaxBias, sampler.MaxBias, &b)
		return b, err
	}
	add := func(id int64, bias *fastjson.Value) error {
		b, err := read(fmt.Sprintf("%s of token %d", name, id), bias)
		list = append(list, sampler.Bias{Token: int32(id), Bias: b})
		return err
	}
	addText := func(entry string, text []byte, bias *fastjson.Value) error {
		if len(text) == 0 || len(text) > MaxBiasTextBytes {
			return fmt.Errorf("field %q has a text of %d bytes; it must have 1…%d", entry, len(text), MaxBiasTextBytes)
		}
		b, err := read(fmt.Sprintf("%s of %s", name, quoted(text)), bias)
		d.req.TextBias = append(d.req.TextBias, TextBias{string(text), b})
		return err
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
			if !isInteger(key) { // "+1" is a text: ParseInt would take it for a number
				err = addText(name, key, bias)
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
			at := entry(name, i)
			two, aerr := pair.Array()
			if aerr != nil {
				return wrongType(at, pair, "a pair [token id, bias]")
			}
			if len(two) != 2 {
				return fmt.Errorf("field %q has %d entries; it must be a pair [token id, bias]", at, len(two))
			}
			if two[0].Type() == fastjson.TypeString { // also of digits
				text, _ := two[0].StringBytes()
				if err := addText(at+"[0]", text, two[1]); err != nil {
					return err
				}
				continue
			}
			if two[0].Type() != fastjson.TypeNumber {
				return wrongType(at+"[0]", two[0], idMust+", or a text")
			}
			id, ierr := d.integer(at+"[0]", two[0], 0, math.MaxInt32)
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
func readCacheSalt(d *decoder, name string, v *fastjson.Value) error {
	salts, err := d.texts(name, v, 1, MaxSaltBytes, true) // SGLang's is an array for several prompts
	if err == nil && len(salts) > 0 {
		d.req.CacheSalt = salts[0]
	}
	return err
}

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
		return wrongType(name, v, "an object with "+targetNames(", ")+" and strict")
	}
	var seen [len(slo.Times) + 1]bool
	obj.Visit(func(key []byte, v *fastjson.Value) {
		field := name + "." + string(key)
		at := slices.IndexFunc(slo.Times[:], func(t slo.Time) bool { return t.Name == string(key) })
		switch {
		case at < 0 && string(key) == "strict":
			at = len(slo.Times)
		case at < 0:
			return
		}
		switch {
		case err != nil || v.Type() == fastjson.TypeNull:
			return
		case seen[at]:
			err = fmt.Errorf("field %q is given twice", field)
		case at < len(slo.Times):
			*slo.Times[at].Of(&d.req.Targets), err = d.milliseconds(field, v)
		default:
			err = d.boolean(field, v, &d.req.Strict)
		}
		seen[at] = true
	})
	switch r := d.req; {
	case err != nil:
		return err
	case r.Strict && !r.Targets.Any():
		return fmt.Errorf("field %q has strict and no target; give %s", name, targetNames(" or "))
	}
	return nil
}

// targetNames lists the targets with a word before the last.
func targetNames(last string) (text string) {
	for i, t := range slo.Times {
		switch {
		case i == 0:
		case i == len(slo.Times)-1:
			text += last
		default:
			text += ", "
		}
		text += t.Name
	}
	return text
}

func readTraceparent(d *decoder, name string, v *fastjson.Value) error {
	s, err := v.StringBytes()
	if err != nil || !ValidTraceparent(string(s)) {
		return wrongType(name, v, `a traceparent of W3C Trace Context, such as `+
			`"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`)
	}
	d.req.Traceparent = string(s)
	return nil
}

// ValidTraceparent reports whether s is a traceparent of W3C Trace Context, version 00: 32, 16 and 2 hexadecimal digits
// in lower case, with neither id zero.
func ValidTraceparent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for _, part := range []string{s[3:35], s[36:52], s[53:]} {
		if strings.Trim(part, "0123456789abcdef") != "" || len(part) > 2 && strings.Trim(part, "0") == "" {
			return false
		}
	}
	return true
}

// readMetadata keeps the client's own bytes.
func readMetadata(d *decoder, name string, _ *fastjson.Value) error {
	raw := d.payload[d.p.json.Scan.Metadata.Start:d.p.json.Scan.Metadata.End]
	if len(raw) == 0 { // the scanner compares keys as they are written
		return fmt.Errorf("field %q must have its name written without escapes", name)
	}
	if len(raw) > MaxMetadataBytes {
		return fmt.Errorf("field %q has %d bytes of JSON; it must be at most %d", name, len(raw), MaxMetadataBytes)
	}
	d.req.Metadata = append([]byte(nil), raw...)
	return nil
}
