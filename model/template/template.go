// Package template renders a conversation as the text a model was trained on, with the chat template the model's
// file carries, and says beforehand what that template will do to a cache of past turns.
//
// A template is a Jinja program written by the author of the model file. It runs in package jinja, which bounds
// its time, memory and output; what clients write is only ever a value to it, never code. The variables and
// functions a template sees are those of Hugging Face's apply_chat_template: messages, add_generation_prompt,
// bos_token, eos_token, tools and documents (none unless given), raise_exception, strftime_now, and whatever
// Input.Extra adds (enable_thinking and the like). As with llama.cpp there is date_string too, today as "02 Jan 2006".
//
// Nothing here guesses: a template that cannot run is an error naming its line, not a reason to format the
// conversation some other way.
//
// builtin.go has the built-in templates, switch.go finds a template's switch for thinking, tools.go the syntax of its
// tool calls, holds.go and changes.go which shapes of conversation it cannot render and what is changed for it.
package template

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

var (
	// ErrTemplate: the template is at fault, whatever the conversation. The text names the line and what to do.
	ErrTemplate = errors.New("chat template cannot be run")
	// ErrRefused: the template refused this conversation (roles that must alternate, a system message it has no
	// place for). The text is the template author's.
	ErrRefused = errors.New("the model's chat template refused the conversation")
	// ErrTooLarge: rendering went beyond what a template is allowed, in time, memory or output.
	ErrTooLarge = errors.New("chat template went beyond its limits")
)

const advice = `send "prompt" instead of "messages", or start uma-serve with --chat-template`

// Message is one turn. Empty ReasoningContent is left out; a template can tell.
type Message struct {
	Role             string // "system", "user", "assistant", "tool", or what else the template knows
	Content          string
	ReasoningContent string          // past thinking, where the client kept it apart from the answer
	Calls            []toolcall.Call // of an assistant; the arguments are JSON objects
	CallID           string          // of a tool: the call that this is the result of
	Name             string          // of the speaker, or of the tool
	Extra            map[string]any  // further fields (tool_calls, name), JSON-like values
}

// Input has the variables of one rendering.
type Input struct {
	Messages            []Message
	Tools               []toolcall.Tool // that the model may call
	AddGenerationPrompt bool            // end with the opening of an assistant turn
	BOS, EOS            string          // bos_token, eos_token
	// Extra are further variables. They cannot replace the ones above.
	Extra map[string]any
	// Now is the time of strftime_now and date_string; zero means the time of the call.
	Now time.Time

	native bool // nothing is rendered in another way than asked for
	steps  int  // limit of the interpreter; 0: by the conversation
}

// Template is a compiled chat template. It is immutable; all methods are safe for concurrent use.
type Template struct {
	tmpl   *jinja.Template
	source string
	// noTools is the value of the tools variable of a request without tools: nil, or an empty list where the template
	// loops over it without a test.
	noTools any
	// parts: the template loops over a message's content as a list of typed parts and shows nothing of a plain
	// string, so contents are handed over as [{"type": "text", "text": …}].
	parts bool
	// functions: the template needs the tools as text, in "functions", and "datetime".
	functions bool
	tools     Tools
	thoughts  thoughts
	roles     roles
	rewrites  [kinds]bool // kinds of messages whose texts the template rewrites: holds never finds them
	markers   []string    // of thinking, which the template writes
	alters    bool        // likewise the arguments of calls
	deaf      bool
}

// Deaf reports whether the template leaves out what the user says.
func (t *Template) Deaf() bool { return t.deaf }

// Compile parses a template and tries it on one user message, so that one that cannot work at all is found when
// the model is loaded and not with the first request. The error wraps ErrTemplate.
func Compile(template string) (*Template, error) {
	t, err := CompileChosen(template)
	if err == nil && t.deaf {
		return nil, fmt.Errorf("%w: it leaves out the content of a user message; %s", ErrTemplate, advice)
	}
	return t, err
}

// CompileChosen is Compile for a template that a person has chosen: it may leave out what the user says (Deaf).
func CompileChosen(template string) (*Template, error) {
	tmpl, err := jinja.Compile(template)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; %s", ErrTemplate, err, advice)
	}
	t := &Template{tmpl: tmpl, source: template}
	if f, found := tags.InTemplate(template); found {
		t.markers = slices.Concat(f.Open, f.Close, f.Hidden, f.Wrap[:])
		t.markers = slices.DeleteFunc(t.markers, func(m string) bool { return m == "" })
	}
	const probe = "uma-probe-7d1f"
	in := Input{Messages: []Message{{Role: "user", Content: probe}}, AddGenerationPrompt: true, native: true}
	var plainErr error
	for _, variant := range []Template{{}, {parts: true}, {noTools: []any{}}, {functions: true}} {
		t.parts, t.noTools, t.functions = variant.parts, variant.noTools, variant.functions
		text, err := t.Render(in)
		if strings.Contains(text, probe) {
			t.findTools()
			t.findThoughts()
			t.findRoles()
			t.findRewrites()
			return t, nil
		}
		if errors.Is(err, ErrTooLarge) {
			return nil, err
		}
		if !t.parts && t.noTools == nil && !t.functions {
			plainErr = err
		}
	}
	t.parts, t.noTools, t.functions = false, nil, false
	if t.deaf = plainErr == nil; !t.deaf && !errors.Is(plainErr, ErrRefused) {
		return nil, plainErr
	}
	t.findTools()
	t.findThoughts()
	t.findRoles()
	t.findRewrites()
	return t, nil // refuses a lone user message: some conversation may still suit it
}

// Render renders a conversation. Errors wrap ErrTemplate, ErrRefused or ErrTooLarge.
func (t *Template) Render(in Input) (string, error) {
	out, _, err := t.RenderChanged(in)
	return out, err
}

// RenderChanged is Render, with what was changed in the conversation so that the template renders all of it. How a
// template takes a message was found when it was compiled; where it still refuses the conversation or leaves out a
// text, the conversation is rendered in strict turns, and at last with calls and results as text.
func (t *Template) RenderChanged(in Input) (string, []Change, error) {
	if in.native {
		out, err := t.render(&in, in.Messages)
		return out, nil, err
	}
	strict := t.strict()
	var first, complete rendering
	for i, how := range []manner{
		{&t.roles, t.tools.Calls, t.tools.Results, false}, {strict, t.tools.Calls, t.tools.Results, false},
		{strict, false, false, false}, {strict, false, false, true},
	} {
		if how.lead && complete.changes != nil {
			break
		}
		var c changeCount
		msgs := t.prepared(&in, &how, &c)
		shown := in
		if !t.tools.Offered { // the messages name the tools; some templates fail with tools that they do not show
			shown.Tools = nil
		}
		if i > 0 {
			c.add(rearranged)
		}
		got := rendering{changes: &c}
		got.out, got.err = t.render(&shown, msgs)
		if i == 0 {
			first = got
		}
		if errors.Is(got.err, ErrTooLarge) {
			break
		}
		if got.err == nil && complete.changes == nil {
			complete = got
		}
		if got.err == nil && t.holds(got.out, msgs, &in) {
			return got.out, c.list(), nil
		}
	}
	if complete.changes != nil { // a text that the template alters is not found in any of them
		return complete.out, complete.changes.list(), nil
	}
	if len(in.Tools) > 0 && t.tools.Offered { // it may fail with these tools
		plain := *t
		plain.tools.Offered = false
		if out, changes, err := plain.RenderChanged(in); err == nil {
			var c changeCount
			c.add(toolsAsText)
			return out, append(c.list(), changes...), nil
		}
	}
	return "", nil, first.err
}

// rendering is a conversation rendered in one manner.
type rendering struct {
	out     string
	changes *changeCount
	err     error
}

// render renders msgs as they are.
func (t *Template) render(in *Input, msgs []Message) (string, error) {
	vars, err := t.toolVars(in.Tools)
	if err != nil {
		return "", err
	}
	now := in.Now
	if now.IsZero() {
		now = time.Now()
	}
	vars["date_string"] = now.Format("02 Jan 2006") // Llama 3.1 says a day of 2024 without it
	if t.functions {
		vars["datetime"] = now.UTC().Format("Jan 02 2006 15:04:05 GMT")
	}
	vars["documents"] = nil
	size := jinja.Size(vars) + jinja.Size(in.Extra)
	maps.Copy(vars, in.Extra)
	if vars["tools"] == nil {
		vars["tools"] = t.noTools
	}
	messages := make([]any, len(msgs))
	for i := range msgs {
		messages[i] = t.message(&msgs[i])
		size += jinja.Size(messages[i])
	}
	vars["messages"] = messages
	vars["add_generation_prompt"] = in.AddGenerationPrompt
	vars["bos_token"], vars["eos_token"] = in.BOS, in.EOS
	// A conversation of any size gets through: a template may copy each byte two dozen times and look at each message
	// hundreds of times. Some look at all messages from each (DeepSeek V3.2, gpt-oss, Command R7B, where there are
	// tool calls); they may, up to ten thousand.
	n := len(msgs)
	limits := jinja.DefaultLimits
	limits.Bytes += 24*size + 4096*n
	limits.Output += 4*size + 1024*n
	limits.Steps += 2*size + 1000*n + 8*min(n, 10_000)*min(n, 10_000)
	if in.steps > 0 {
		limits.Steps = in.steps
	}
	out, err := t.tmpl.Render(vars, limits, now)
	var raised *jinja.Raised
	switch {
	case err == nil:
		return out, nil
	case errors.As(err, &raised):
		return "", fmt.Errorf("%w: %s", ErrRefused, raised.Message)
	case errors.Is(err, jinja.ErrLimit):
		return "", fmt.Errorf("%w: %w; %s", ErrTooLarge, err, advice)
	}
	return "", fmt.Errorf("%w: %w; %s", ErrTemplate, err, advice)
}

func (t *Template) message(m *Message) *jinja.Dict {
	var content any = m.Content
	if t.parts {
		content = []any{jinja.NewDict("type", "text", "text", m.Content)}
	}
	if t.thoughts.parts && m.ReasoningContent != "" {
		content = withThought(m)
	}
	pairs := []any{"role", m.Role}
	calls := t.calls(m.Calls)
	switch bare := len(calls) > 0 && m.Content == "" && (m.ReasoningContent == "" || !t.thoughts.parts); {
	case bare && t.tools.content == contentAbsent:
	case bare && t.tools.content == contentNull:
		pairs = append(pairs, "content", nil)
	default:
		pairs = append(pairs, "content", content)
	}
	if m.ReasoningContent != "" && !t.thoughts.parts {
		pairs = append(pairs, cmp.Or(t.thoughts.name, thoughtNames[0]), m.ReasoningContent)
	}
	if len(calls) > 0 {
		pairs = append(pairs, "tool_calls", calls)
	}
	if m.CallID != "" {
		pairs = append(pairs, "tool_call_id", t.callID(m.CallID))
	}
	if m.Name != "" {
		pairs = append(pairs, "name", m.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Extra)) {
		switch k {
		case "role", "content", "reasoning_content":
		default:
			pairs = append(pairs, k, m.Extra[k])
		}
	}
	return jinja.NewDict(pairs...)
}
