package real

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON schema that an answer must have the form of.
type Schema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// Tool is a function that a model is told of, in OpenAI's form.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Task is a question that one of the tools answers.
type Task struct {
	Question string `json:"question"`
	Tool     string `json:"tool"` // the right one
}

// choice is the part of a chat's answer that is checked.
type choice struct {
	Reason  string `json:"finish_reason"`
	Message struct {
		Content string `json:"content"`
		Calls   []struct {
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
}

// chat asks one question with further fields.
func (s *Server) chat(ctx context.Context, question string, maxTokens int, more map[string]any) (*choice, error) {
	body := map[string]any{"messages": []map[string]string{{"role": "user", "content": question}},
		"max_tokens": maxTokens, "temperature": 0}
	for k, v := range more {
		body[k] = v
	}
	var answer struct {
		Choices []choice `json:"choices"`
	}
	if err := s.post(ctx, "/v1/chat/completions", body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Choices) != 1 {
		return nil, fmt.Errorf("%s: an answer has %d choices", s.Name, len(answer.Choices))
	}
	return &answer.Choices[0], nil
}

// validator compiles a schema with a library that shares no code with the grammars that constrain answers.
func validator(name string, schema []byte) (*jsonschema.Schema, error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.DefaultDraft(jsonschema.Draft7)
	if err := c.AddResource("mem://schema.json", v); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := c.Compile("mem://schema.json")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// valid reports why text is no JSON of that schema.
func valid(s *jsonschema.Schema, text string) error {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// answerTokens bounds an answer with a form. A small model may fill a list without bounds for ever.
const answerTokens = 512

// CheckSchemas asks for an answer of each schema. One that reaches its limit is no whole answer: it is counted, and the
// check fails if more than a tenth do.
func CheckSchemas(ctx context.Context, s *Server, schemas []Schema, concurrency int) Check {
	check, start := Check{Name: "schemas", OK: true}, time.Now()
	type result struct {
		err error
		cut bool
	}
	results := make([]result, len(schemas))
	err := each(ctx, len(schemas), concurrency, func(ctx context.Context, i int) error {
		v, err := validator(schemas[i].Name, schemas[i].Schema)
		if err != nil {
			return err
		}
		r := &results[i]
		a, err := s.chat(ctx, "Make up a realistic example of this JSON schema, short: "+string(schemas[i].Schema),
			answerTokens, map[string]any{"response_format": map[string]any{"type": "json_schema",
				"json_schema": map[string]any{"name": "example", "schema": schemas[i].Schema}}})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.err = err
		case a.Reason == "length":
			r.cut = true
		case a.Reason != "stop":
			r.err = fmt.Errorf("it ended with %q", a.Reason)
		default:
			if err := valid(v, a.Message.Content); err != nil {
				r.err = fmt.Errorf("%w\n%s", err, a.Message.Content)
			}
		}
		return nil
	})
	check.Seconds = time.Since(start).Seconds()
	if err != nil {
		check.Fail("%v", err)
		return check
	}
	good, cut := 0, 0
	for i, r := range results {
		switch {
		case r.err != nil:
			check.Fail("%s: %v", schemas[i].Name, r.err)
		case r.cut:
			cut++
		default:
			good++
		}
	}
	check.Summary = fmt.Sprintf("%d of %d answers valid, %d cut at %d tokens", good, len(schemas), cut, answerTokens)
	if cut > len(schemas)/10 {
		check.Fail("%d of %d answers did not end within %d tokens", cut, len(schemas), answerTokens)
	}
	check.Details = map[string]int{"schemas": len(schemas), "valid": good, "cut": cut}
	return check
}

// CheckTools asks each question with all tools and a call required. Every call must name a tool and have arguments of
// its schema; how often it is the right tool is the model's, and only counted.
func CheckTools(ctx context.Context, s *Server, tools []Tool, tasks []Task, concurrency int) Check {
	check, start := Check{Name: "tools", OK: true}, time.Now()
	schemas := map[string]*jsonschema.Schema{}
	var offered []map[string]any
	var err error
	for _, t := range tools {
		var v *jsonschema.Schema
		if v, err = validator(t.Name, t.Parameters); err != nil {
			check.Fail("%v", err)
			return check
		}
		schemas[t.Name] = v
		offered = append(offered, map[string]any{"type": "function", "function": t})
	}
	errs := make([]error, len(tasks))
	right := make([]bool, len(tasks))
	err = each(ctx, len(tasks), concurrency, func(ctx context.Context, i int) error {
		a, err := s.chat(ctx, tasks[i].Question, answerTokens, map[string]any{"tools": offered,
			"tool_choice": "required", "parallel_tool_calls": false})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			errs[i] = err
		case a.Reason != "tool_calls" || len(a.Message.Calls) != 1:
			errs[i] = fmt.Errorf("it ended with %q and %d calls", a.Reason, len(a.Message.Calls))
		default:
			f := a.Message.Calls[0].Function
			right[i] = f.Name == tasks[i].Tool
			if v := schemas[f.Name]; v == nil {
				errs[i] = fmt.Errorf("it calls %q", f.Name)
			} else if err := valid(v, f.Arguments); err != nil {
				errs[i] = fmt.Errorf("%s%s: %w", f.Name, f.Arguments, err)
			}
		}
		return nil
	})
	check.Seconds = time.Since(start).Seconds()
	if err != nil {
		check.Fail("%v", err)
		return check
	}
	good, hits := 0, 0
	for i, err := range errs {
		if err != nil {
			check.Fail("%q: %v", tasks[i].Question, err)
			continue
		}
		good++
		if right[i] {
			hits++
		}
	}
	check.Summary = fmt.Sprintf("%d of %d calls valid, %d of the tool that fits", good, len(tasks), hits)
	check.Details = map[string]int{"calls": len(tasks), "valid": good, "right_tool": hits}
	return check
}

// CheckPrefix asks a prompt, continues it, leaves it for another that begins alike, and returns to it. What was
// computed must be used again, and answers must be llama-server's (see Compare).
func (c *Compare) CheckPrefix(ctx context.Context, text string, forks bool) Check {
	check, start := Check{Name: "prefix reuse", OK: true}, time.Now()
	err := c.prefix(ctx, &check, text, forks)
	if err != nil {
		check.Fail("%v", err)
	}
	check.Seconds = time.Since(start).Seconds()
	return check
}

// prefixStep is a prompt of CheckPrefix: of its tokens, shared have been computed before.
type prefixStep struct {
	Name   string `json:"name"`
	Prompt int    `json:"prompt_tokens"`
	Shared int    `json:"shared_tokens"`
	Cached int    `json:"cached_tokens"`
}

func (c *Compare) prefix(ctx context.Context, check *Check, text string, forks bool) error {
	const prompt, answer = 700, 24
	tokens, err := c.Theirs.Tokenize(ctx, text, true)
	if err != nil {
		return err
	}
	if len(tokens) < 2*prompt {
		return errors.New("the text is too short")
	}
	first, next, other := tokens[:prompt], tokens[prompt:prompt+40], tokens[prompt+40:prompt+80]
	a, err := c.Ours.Complete(ctx, first, answer)
	if err != nil {
		return err
	}
	said := ids(a.Probs)
	join := func(parts ...[]int32) (out []int32) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	// The last token of an answer has not been computed.
	computed := prompt + len(said) - 1
	steps := []struct {
		name   string
		prompt []int32
		shared int
		needs  bool // the memory must allow it
	}{
		{"continued", join(first, said, next), computed, true},
		{"the same again", join(first, said, next), computed + 40, true},
		{"forked in the middle", join(first[:prompt/2], other), prompt / 2, forks},
		{"returned to", join(first, said, next, other), computed + 40, true},
	}
	var seen []prefixStep
	var prompts [][]int32
	var said2 []string
	for _, st := range steps {
		a, err := c.Ours.Complete(ctx, st.prompt, answer)
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		seen = append(seen, prefixStep{st.name, len(st.prompt), st.shared, a.Timings.Cached})
		said2 = append(said2, fmt.Sprintf("%s %d of %d", st.name, a.Timings.Cached, st.shared))
		prompts = append(prompts, st.prompt)
		// At least the last token is computed for its logits, and blocks of cells may be rounded down.
		if st.needs && a.Timings.Cached < st.shared-64 {
			check.Fail("%s: %d of %d tokens that were computed before are used again", st.name, a.Timings.Cached,
				st.shared)
		}
		if total := a.Timings.Cached + a.Timings.Computed; total != len(st.prompt) {
			check.Fail("%s: %d cached and %d computed tokens of a prompt of %d", st.name, a.Timings.Cached,
				a.Timings.Computed, len(st.prompt))
		}
	}
	with := *c
	with.Tokens = answer
	g, err := with.Run(ctx, prompts)
	if err != nil {
		return err
	}
	for _, p := range g.Partings {
		if !p.Near {
			check.Fail("%s: token %d is %q, llama-server's %q, a gap of %.3f nats", steps[p.Prompt].name, p.At, p.Ours,
				p.Theirs, p.Gap)
		}
	}
	check.Details = map[string]any{"steps": seen, "answers": g}
	check.Summary = "cached tokens: " + strings.Join(said2, ", ")
	return nil
}
