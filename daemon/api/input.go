package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Input is one of a body's prompts: a text, or a list of texts and token ids.
type Input struct {
	Text  string
	parts []promptPart // nil: Text
}

type promptPart struct {
	text  string
	token int32
	isID  bool
}

const promptMust = "a string, an array of token ids, or an array of these"

// ReadPrompts parses "prompt": a string, token ids, an array of strings, or an array of arrays of token ids. Like
// llama-server it accepts strings among token ids, and {"prompt_string":…} or {"content":[{"type":"text","text":…}]}
// for a string. No text may be empty.
func ReadPrompts(raw json.RawMessage) ([]Input, error) {
	prompts, err := ReadInputs("prompt", raw)
	if err != nil {
		return nil, err
	}
	for i := range prompts {
		if p := &prompts[i]; p.IsText() && p.Text == "" {
			name := "prompt"
			if raw[0] == '[' {
				name = fmt.Sprintf("prompt[%d]", i)
			}
			return nil, Refusef("field %q is empty", name)
		}
	}
	return prompts, nil
}

// ReadInputs parses the same forms of a field of this name, whose texts may be empty.
func ReadInputs(name string, raw json.RawMessage) ([]Input, error) {
	if raw == nil {
		return nil, Refusef("field %q is missing; it must be %s", name, promptMust)
	}
	if raw[0] == '"' || raw[0] == '{' {
		p, err := oneInput(name, raw)
		return []Input{p}, err
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, Refusef("field %q must be %s", name, promptMust)
	}
	if len(list) == 0 {
		return nil, Refusef("field %q is empty", name)
	}
	if slices.ContainsFunc(list, isNumber) {
		p, err := ReadMixed(name, list)
		return []Input{p}, err
	}
	inputs := make([]Input, len(list))
	for i, r := range list {
		var err error
		if inputs[i], err = oneInput(fmt.Sprintf("%s[%d]", name, i), r); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// oneInput parses a string, an object with a text, or an array of token ids.
func oneInput(name string, raw json.RawMessage) (p Input, err error) {
	var list []json.RawMessage
	switch {
	case raw[0] == '"' && json.Unmarshal(raw, &p.Text) == nil:
	case raw[0] == '{':
		return objectInput(name, raw)
	case json.Unmarshal(raw, &list) == nil && len(list) > 0:
		return ReadMixed(name, list)
	default:
		return p, Refusef("field %q must be a string or an array of token ids", name)
	}
	return p, nil
}

// objectInput reads an object with a text.
func objectInput(name string, raw json.RawMessage) (p Input, err error) {
	var in struct {
		Text    *string           `json:"prompt_string"`
		Media   []json.RawMessage `json:"multimodal_data"`
		Content []struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(raw, &in) != nil || in.Text == nil && in.Content == nil {
		return p, Refusef(`field %q must be an object {"prompt_string":…} or {"content":[{"type":"text","text":…}]}`,
			name)
	}
	if len(in.Media) > 0 {
		return p, Refusef(`field %q is not supported: this server reads text`, name+".multimodal_data")
	}
	if in.Text != nil {
		p.Text = *in.Text
	}
	for i := range in.Content {
		c := &in.Content[i]
		if c.Type != "text" || c.Text == nil {
			return p, Refusef(`field "%s.content[%d]" must be {"type":"text","text":…}: this server reads text`, name,
				i)
		}
		p.Text += *c.Text
	}
	return p, nil
}

func isNumber(r json.RawMessage) bool { return r[0] == '-' || r[0] >= '0' && r[0] <= '9' }

// ReadMixed parses a prompt of token ids and strings. name is the field's name, for errors.
func ReadMixed(name string, list []json.RawMessage) (p Input, err error) {
	p.parts = make([]promptPart, 0, len(list))
	for i, r := range list {
		part := promptPart{isID: isNumber(r)}
		if part.isID {
			err = json.Unmarshal(r, &part.token)
		} else {
			err = json.Unmarshal(r, &part.text)
		}
		if err != nil || part.token < 0 || string(r) == "null" {
			return p, Refusef("field %q has the entry %.40q at %d; it must be a token id of 0…2147483647 or a string",
				name, r, i)
		}
		p.parts = append(p.parts, part)
	}
	return p, nil
}

// IsText reports whether p is a single text without token ids.
func (p *Input) IsText() bool { return p.parts == nil }

// Bytes returns the length of p's texts.
func (p *Input) Bytes() int {
	n := len(p.Text)
	for i := range p.parts {
		n += len(p.parts[i].text)
	}
	return n
}

// Tokens tokenizes p. special adds the special tokens at the start of a sequence if p begins with a text; markers
// parses control tokens in texts.
func (p *Input) Tokens(ctx context.Context, b Backend, special, markers bool) (tokens []int32, err error) {
	if p.parts == nil {
		return b.Tokenize(ctx, p.Text, special, markers)
	}
	for i := range p.parts {
		part := &p.parts[i]
		if part.isID {
			tokens = append(tokens, part.token)
			continue
		}
		more, err := b.Tokenize(ctx, part.text, special && i == 0, markers)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, more...)
	}
	return tokens, nil
}
