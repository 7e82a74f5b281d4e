package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime"
)

// The prompt of a request: its messages are rendered with the model's chat template and tokenized.

// prompt is a request's prompt, rendered and tokenized.
type prompt struct {
	text      string // rendered; "" if the request has token ids
	tokens    []runtime.Token
	segments  []runtime.ViewSegment // of the images, at their places in tokens
	chat      bool                  // text was rendered from messages
	continued bool                  // text ends within the last message
	render    renderInput
	changes   []template.Change // of the conversation
	cut       bool              // tokens are the end of the prompt (truncate_prompt_tokens)
	begin     meridian.Begin    // state at the end of text: in a thought, in a header; zero for a raw prompt
}

// readPrompt renders and tokenizes owner's request, whose images have these views.
func (m *Model) readPrompt(owner uint32, w *wire.Request, views []*runtime.View) (p prompt, bad *wire.Error) {
	var err error
	switch {
	case len(w.Messages) > 0:
		if bad := m.renderChat(&p, w); bad != nil {
			return p, bad
		}
		p.tokens, p.segments, err = m.tokenizeViews(owner, m.markers.restore(p.text), views)
	case w.PromptTokens != nil:
		p.tokens = w.PromptTokens
		err = m.known(p.tokens)
	case w.Suffix != "":
		p.tokens, err = m.infill(owner, w.Prompt, w.Suffix)
	case w.ParseSpecial:
		p.text = w.Prompt
		p.tokens, err = m.tokens.tokenize(nil, owner, p.text, !m.hasBOS(p.text), true)
	default:
		p.text = w.Prompt
		p.tokens, err = m.tokenize(owner, p.text, false)
	}
	switch {
	case err != nil:
		return p, &wire.Error{Code: wire.BadRequest, Message: "prompt: " + err.Error()}
	case len(p.tokens) == 0:
		return p, &wire.Error{Code: wire.BadRequest, Message: "prompt: it has no tokens"}
	}
	return p, m.truncate(&p, w)
}

// truncate cuts the beginning of a prompt as truncate_prompt_tokens asks. The answer to a prompt that was cut does not
// go on as a conversation: its next turn has another prefix.
func (m *Model) truncate(p *prompt, w *wire.Request) *wire.Error {
	keep := w.TruncatePrompt
	if keep < 0 {
		keep = max(m.Longest()-max(w.MaxTokens, 1), 1)
		if w.FillOnly {
			keep = m.Longest()
		}
	}
	cut := len(p.tokens) - keep
	switch {
	case keep == 0 || cut <= 0:
		return nil
	case len(p.segments) > 0: // the cut could lie within one
		return wire.Errorf(wire.BadRequest, "truncate_prompt_tokens: the prompt has %d tokens with images or sounds, "+
			"and such prompts are not cut: leave out the field, or older messages", len(p.tokens))
	}
	p.tokens, p.cut = p.tokens[cut:], true
	p.changes = append(p.changes, template.Change{Reason: "prompt_cut", Times: 1,
		Text: fmt.Sprintf("the first %d tokens of the prompt were left out (truncate_prompt_tokens)", cut)})
	return nil
}

// renderChat renders w's messages into p.
func (m *Model) renderChat(p *prompt, w *wire.Request) *wire.Error {
	limit := m.Longest()
	if w.MaxTokens > 0 {
		limit = min(limit, w.MaxTokens)
	}
	msgs := w.Messages
	if m.template != nil {
		thinking := m.templateThinking(w, limit)
		p.render = renderInput{vars: templateArgs(w.TemplateArgs), tools: headTools(w)}
		if _, said := p.render.vars["verbosity"]; w.Verbosity != "" && !said {
			p.render.vars["verbosity"] = w.Verbosity
		}
		maps.Copy(p.render.vars, m.thinking.Vars(thinking))
		p.render.dropPast = thinking.Past == template.PastDropped && !m.thinking.DropsPast()
		msgs = withSuffix(msgs, m.thinking.Suffix(thinking))
	}
	var err error
	if p.text, p.continued, p.changes, err = m.renderRequest(w, msgs, p.render); err != nil {
		code := wire.InternalFailure // the template's fault
		if m.template == nil || errors.Is(err, template.ErrRefused) {
			code = wire.BadRequest
		}
		return &wire.Error{Code: code, Message: "messages: " + err.Error()}
	}
	if w.Think.Preserve == wire.PreserveOn && thoughtsDropped(p.text, msgs) {
		p.changes = append(p.changes, template.Change{Reason: "thoughts_dropped", Times: 1, Text: "The chat template " +
			"leaves out thoughts of earlier turns, which think.preserve asks to keep."})
	}
	p.chat = true
	p.begin = m.Tags.Begin(p.text, p.continued)
	return nil
}

// renderRequest renders msgs, w's conversation, as the text that the model continues. continued: the text ends within
// the last message.
func (m *Model) renderRequest(
	w *wire.Request, msgs []wire.Message, in renderInput,
) (text string, continued bool, changes []template.Change, err error) {
	last := len(msgs) - 1
	// A message with calls has ended: text behind them would not be part of it.
	if msgs[last].Role != "assistant" || w.Continue == wire.ContinueOff || len(msgs[last].ToolCalls) > 0 {
		text, changes, err = m.renderTurn(msgs, in, !w.NoOpening)
		return text, false, changes, err
	}
	// The template writes text before and after an answer, and may rewrite its thoughts. A mark at the end of the
	// message shows where the message ends in the rendering.
	answer := meridian.Started{Thought: msgs[last].ReasoningContent, Content: msgs[last].Content}
	answer.Open = answer.Content == "" && answer.Thought != "" && w.Continue != wire.ContinueContent
	marked := slices.Clone(msgs)
	end := &marked[last].Content
	if answer.Open {
		end = &marked[last].ReasoningContent
	}
	*end += m.markers.end
	if text, changes, err = m.renderTurn(marked, in, false); err != nil {
		return "", true, nil, err
	}
	// A thought behind another answer: a template that joins the two has the answer behind the thought.
	behind := answer.Open && last > 0 && msgs[last-1].Role == "assistant"
	if i := strings.LastIndex(text, m.markers.end); i >= 0 && !behind && m.Tags.Continues(text[:i], answer) {
		return text[:i], true, changes, nil
	}
	// The template omits the message, or puts an answer into a thought or a thought into the answer: its texts are
	// appended to the opening of an answer.
	if answer.Open {
		in.vars = maps.Clone(in.vars)
		maps.Copy(in.vars, m.thinking.Vars(template.Thinking{Mode: template.ModeOn}))
	}
	text, changes, err = m.renderTurn(msgs[:last], in, true)
	return m.Tags.Continue(text, answer), true, changes, err
}

// renderTurn renders a conversation; opening adds the opening of the next answer (add_generation_prompt).
func (m *Model) renderTurn(
	msgs []wire.Message, extra renderInput, opening bool,
) (string, []template.Change, error) {
	if m.template == nil {
		return "", nil, m.noChat
	}
	in := template.Input{Tools: extra.tools, AddGenerationPrompt: opening, Extra: extra.vars}
	in.BOS, in.EOS = m.Specials()
	images := 0
	for _, msg := range msgs {
		content := m.markers.placeImages(msg.Content, images, len(msg.Images))
		images += len(msg.Images)
		switch msg.Role {
		case "user", "tool":
			content = m.markers.hide(content)
		case "assistant":
			content = m.markers.hideQuoted(content)
		default:
			content = m.markers.hideThoughts(constantHeader(content))
		}
		in.Messages = append(in.Messages, template.Message{
			Role: msg.Role, Content: content, ReasoningContent: msg.ReasoningContent,
			Calls: earlierCalls(msg.ToolCalls), CallID: msg.ToolCallID, Name: msg.Name,
		})
	}
	if extra.dropPast {
		template.LeaveOutPast(in.Messages)
	}
	text, changes, err := m.template.RenderChanged(in)
	if errors.Is(err, template.ErrRefused) && m.markers.hideAnswers(in.Messages) { // gpt-oss refuses markers in answers
		text, changes, err = m.template.RenderChanged(in)
	}
	return text, changes, err
}

// hasBOS reports whether a text begins with the BOS token's text. Such a text must not get a second BOS.
func (m *Model) hasBOS(text string) bool {
	t := m.Vocab.BOS()
	return t != runtime.NoToken && strings.HasPrefix(text, m.Vocab.Text(t))
}

// tokenize tokenizes owner's rendered conversation, or with chat false a raw prompt, in which control tokens are plain
// text.
func (m *Model) tokenize(owner uint32, text string, chat bool) (tokens []runtime.Token, err error) {
	if !chat {
		return m.tokens.tokenize(nil, owner, text, true, false)
	}
	return m.tokenizeMore(nil, owner, m.markers.restore(text), !m.hasBOS(text))
}

// tokenizeMore appends the tokens of a part of a rendered conversation; addSpecial: it is the first one.
func (m *Model) tokenizeMore(dst []runtime.Token, owner uint32, text string, addSpecial bool) (
	tokens []runtime.Token, err error) {
	tokens = dst
	for part, marker := range m.markers.split(text) {
		if tokens, err = m.tokens.tokenize(tokens, owner, part, addSpecial && !marker, !marker); err != nil {
			return nil, err
		}
		addSpecial = false
	}
	return tokens, nil
}

// withSuffix appends text to the last message of role "user".
func withSuffix(msgs []wire.Message, text string) []wire.Message {
	if text == "" {
		return msgs
	}
	msgs = slices.Clone(msgs)
	for i := len(msgs) - 1; i >= 0; i-- {
		if msgs[i].Role == "user" {
			msgs[i].Content += text
			break
		}
	}
	return msgs
}

// templateArgs decodes chat_template_kwargs. A number without fraction and exponent becomes an integer.
func templateArgs(raw []byte) map[string]any {
	vars := map[string]any{}
	if len(raw) == 0 {
		return vars
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if err := in.Decode(&vars); err != nil {
		panic("prepare: chat_template_kwargs: " + err.Error()) // package wire checked it
	}
	for k, v := range vars {
		vars[k] = plainNumbers(v)
	}
	return vars
}

// plainNumbers replaces each json.Number in v by an int64 or a float64.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

// systemTokens returns how many of s's leading tokens are its system prompt.
func (m *Model) systemTokens(s *Prepared, tokens []runtime.Token) int {
	if len(s.messages) == 0 || s.messages[0].Role != "system" {
		return 0
	}
	text, _, err := m.renderTurn(s.messages[:1], s.render, false)
	if err != nil {
		return 0 // the template refuses a conversation without a user's message
	}
	system, _, err := m.tokenizeViews(s.Owner, m.markers.restore(text), s.Views)
	if err != nil {
		return 0
	}
	return kvsnap.CommonPrefix(system, tokens)
}

// History returns the tokens with which the next turn of an ended chat will begin: its messages and its answer,
// rendered by the chat template. It returns nil if the template refuses them.
func (m *Model) History(s *Prepared, answer wire.Message) []runtime.Token {
	before := s.messages
	answer.Role = "assistant"
	if s.Continued {
		last := before[len(before)-1]
		before = before[:len(before)-1]
		answer.Content = last.Content + answer.Content
		answer.ReasoningContent = last.ReasoningContent + answer.ReasoningContent
	}
	msgs := append(before[:len(before):len(before)], answer)
	text, _, err := m.renderTurn(msgs, s.render, false)
	if err != nil {
		return nil
	}
	tokens, _, err := m.tokenizeViews(s.Owner, m.markers.restore(text), s.Views)
	if err != nil {
		return nil
	}
	return tokens
}

// Render returns the prompt of owner's request as text, with the placeholders of markers restored, and as tokens.
// views are its images' views.
func (m *Model) Render(owner uint32, w *wire.Request, views []*runtime.View) (text string, tokens []runtime.Token,
	bad *wire.Error) {
	p, bad := m.readPrompt(owner, w, views)
	if bad != nil {
		return "", nil, bad
	}
	var b strings.Builder
	for part := range m.markers.split(m.markers.showImages(m.markers.restore(p.text))) {
		b.WriteString(part)
	}
	return b.String(), p.tokens, nil
}
