package daemon

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/internal/chattmpl"
	"github.com/uma-serve/uma-serve/internal/toolcall"
	"github.com/uma-serve/uma-serve/internal/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// model is what intake needs of the loaded model: pure, shared, immutable.
type model struct {
	info         runtime.ModelInfo
	caps         runtime.Capabilities
	vocab        runtime.Vocab
	tags         *meridian.Tags // nil: the model does not mark its thinking
	facts        sampler.VocabFacts
	template     *chattmpl.Template // nil: it cannot be run
	source       string             // where template comes from, as people are told
	templateText string
	thinking     *chattmpl.Switch // of template; not nil with it
	calls        *toolcall.Spec   // how the model writes calls of tools; not nil with template
	think        *meridian.Config
	noChat       error // why template is nil
	developer    bool  // template knows the role "developer"
	markers      *markers
	tokens       *tokenCache
	infillers    []runtime.Token         // before prefix, suffix and middle; nil: it cannot fill in
	breaks       func() sampler.Breakers // DRY's usual ones, made when first asked for
}

func newModel(cfg *Config, eng runtime.Engine) (*model, error) {
	v := eng.Vocab()
	m := &model{info: eng.Model(), caps: eng.Capabilities(), vocab: v, think: &cfg.Meridian}
	// llama.cpp names the sizes of models that it knows: "llama ?B Q8_0" is one that it does not.
	m.info.Description = strings.Replace(m.info.Description, "?B", strings.ReplaceAll(ui.Large(m.info.Parameters), " ", ""), 1)
	m.facts = sampler.VocabFacts{Size: v.Size()}
	for t := range runtime.Token(v.Size()) {
		if v.IsEOG(t) {
			m.facts.EOG = append(m.facts.EOG, t)
		}
	}
	m.tokens, m.infillers = newTokenCache(v), infillMarks(v)
	m.breaks = sync.OnceValue(func() sampler.Breakers { return m.breakers(wire.DefaultDryBreaks) })
	text, source, err := chatTemplate(cfg, v)
	if err != nil {
		return nil, err
	}
	m.source, m.templateText = source, text
	m.developer = strings.Contains(text, "developer")
	if m.template, m.noChat = chattmpl.Compile(text); m.noChat != nil {
		m.noChat = fmt.Errorf(`this model's chat template cannot be run (%w)`, m.noChat)
	} else {
		bos, eos := m.specials()
		m.thinking = m.template.Switch(bos, eos)
		text = m.template.Texts(bos, eos)
	}
	if m.tags, err = meridian.Detect(v, cfg.Meridian.Markers, text); err != nil {
		if len(cfg.Meridian.Markers.Open) > 0 {
			return nil, fmt.Errorf("meridian.markers: %w", err)
		}
		m.tags = nil // known markers that this vocabulary cannot write: the model thinks in plain sight
	} else if m.tags == nil {
		m.tags, _ = meridian.Assume(v) // nil where the vocabulary cannot write them
	}
	m.calls = resolveCalls(m.template, v)
	m.markers = newMarkers(v, m.tags.Texts())
	return m, nil
}

// chatTemplate is the template that conversations are rendered with, and where it comes from: --chat-template, the model's
// file, or a built-in one that fits the vocabulary.
func chatTemplate(cfg *Config, v runtime.Vocab) (text, source string, err error) {
	if name := cfg.ChatTemplate; name != "" {
		text, isBuiltin, err := loadTemplate(name)
		if err != nil {
			return "", "", fmt.Errorf("--chat-template is %q; %w", name, err)
		}
		if isBuiltin {
			return text, "built-in " + name + " (--chat-template)", nil
		}
		return text, name + " (--chat-template)", nil
	}
	if text := v.ChatTemplate(); text != "" {
		return text, "the model's own", nil
	}
	name := chattmpl.ForVocab(func(s string) bool { return v.Find(s) != runtime.NoToken })
	text, _ = chattmpl.Builtin(name)
	return text, "built-in " + name + " (the model has none)", nil
}

// specials are the texts of the tokens that begin and end a sequence, "" for one that the vocabulary lacks.
func (m *model) specials() (bos, eos string) {
	if t := m.vocab.BOS(); t != runtime.NoToken {
		bos = m.vocab.Text(t)
	}
	if t := m.vocab.EOS(); t != runtime.NoToken {
		eos = m.vocab.Text(t)
	}
	return bos, eos
}

// render is the text of a conversation as the model was trained on it, ending where its answer begins.
func (m *model) render(msgs []wire.Message, with rendering) (string, error) {
	return m.renderTurn(msgs, with, true)
}

// renderTurn leaves the opening of an answer out when answer is false: a conversation as its next turn begins.
func (m *model) renderTurn(msgs []wire.Message, with rendering, answer bool) (string, error) {
	if m.template == nil {
		return "", m.noChat
	}
	in := chattmpl.Input{Tools: with.tools, AddGenerationPrompt: answer, Extra: with.vars}
	in.BOS, in.EOS = m.specials()
	for _, msg := range msgs {
		role := msg.Role
		if role == "developer" && !m.developer { // OpenAI's name for instructions; a template that does not know it would leave them out
			role = "system"
		}
		content := msg.Content
		switch msg.Role {
		case "user", "tool":
			content = m.markers.hide(content)
		case "assistant":
		default:
			content = m.markers.hideThoughts(content)
		}
		in.Messages = append(in.Messages, chattmpl.Message{
			Role: role, Content: content, ReasoningContent: msg.ReasoningContent,
			Calls: earlier(msg.ToolCalls), CallID: msg.ToolCallID, Name: msg.Name,
		})
	}
	return m.template.Render(in)
}

// tokenize reads owner's raw prompt (chat false), in which markers are text like any other, or a rendered conversation.
func (m *model) tokenize(owner uint32, text string, chat bool) (tokens []runtime.Token, err error) {
	if !chat {
		return m.tokens.tokenize(nil, owner, text, true, false)
	}
	// A template that writes the BOS itself must not get a second one.
	addSpecial := true
	if t := m.vocab.BOS(); t != runtime.NoToken && strings.HasPrefix(text, m.vocab.Text(t)) {
		addSpecial = false
	}
	for part, marker := range m.markers.split(m.markers.restore(text)) {
		if tokens, err = m.tokens.tokenize(tokens, owner, part, addSpecial && !marker, !marker); err != nil {
			return nil, err
		}
		addSpecial = false
	}
	return tokens, nil
}

// reading is a request's prompt as the model reads it.
type reading struct {
	text      string // rendered; "" where the request has token ids
	tokens    []runtime.Token
	chat      bool // text was rendered from messages
	continued bool // and ends within the last of them
	with      rendering
	begin     meridian.Begin // a raw prompt opens nothing: all of it is its user's
}

// read renders and tokenizes owner's request.
func (m *model) read(owner uint32, w *wire.Request) (p reading, bad *wire.Error) {
	var err error
	switch {
	case len(w.Messages) > 0:
		limit := m.caps.ContextTokens
		if w.MaxTokens > 0 {
			limit = min(limit, w.MaxTokens)
		}
		wish := m.wish(w, limit)
		msgs := w.Messages
		if m.template != nil {
			p.with = rendering{vars: templateArgs(w.TemplateArgs), tools: offered(w)}
			maps.Copy(p.with.vars, m.thinking.Vars(wish)) // in the template's own words
			msgs = withSuffix(msgs, m.thinking.Suffix(wish))
		}
		if p.text, p.continued, err = m.renderRequest(w, msgs, p.with); err != nil {
			code := wire.InternalFailure // the template's fault
			if m.template == nil || errors.Is(err, chattmpl.ErrRefused) {
				code = wire.BadRequest
			}
			return p, &wire.Error{Code: code, Message: "messages: " + err.Error()}
		}
		p.chat = true
		p.begin = m.tags.Begin(p.text, p.continued)
		p.tokens, err = m.tokenize(owner, p.text, true)
	case w.PromptTokens != nil:
		p.tokens = w.PromptTokens
		err = m.known(p.tokens)
	case w.Suffix != "":
		p.tokens, err = m.infill(owner, w.Prompt, w.Suffix)
	case w.ParseSpecial:
		p.text = w.Prompt
		// A rendered template may begin with the BOS, which must not be there twice.
		begun := m.vocab.BOS() != runtime.NoToken && strings.HasPrefix(p.text, m.vocab.Text(m.vocab.BOS()))
		p.tokens, err = m.tokens.tokenize(nil, owner, p.text, !begun, true)
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
	return p, nil
}

// prepare turns a parsed request into one the decode loop can run. It is the slow part of intake (rendering,
// tokenizing) and runs on the intake goroutine, never on the poller's or the decode loop's.
func (s *Server) prepare(r *request, w *wire.Request) *wire.Error {
	m := s.model.Load()
	p, bad := m.read(r.Owner, w)
	if bad != nil {
		return bad
	}
	r.continued = p.continued
	tokens := p.tokens
	n, nCtx := len(tokens), m.caps.ContextTokens
	if n >= nCtx {
		return &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: nCtx, Message: fmt.Sprintf(
			"context_length_exceeded: the prompt has %d tokens (n_prompt), the context holds %d (n_ctx) and the answer needs at least one; shorten the prompt or start uma-serve with a larger --ctx-size", n, nCtx)}
	}
	maxTokens := nCtx - n
	if s.cfg.ContextShift && m.caps.CanShift {
		maxTokens = maxShifted
	}
	for _, limit := range []int{w.MaxTokens, s.cfg.MaxTokens} {
		if limit > 0 {
			maxTokens = min(maxTokens, limit)
		}
	}
	if w.FillOnly {
		maxTokens = 1 // for the scheduler: the last row of the prompt is computed, and not sampled
	}
	params := w.Sampling
	if !params.SeedSet {
		params.SeedSet = true
		if params.Seed = rand.Uint64(); s.cfg.Seed >= 0 {
			params.Seed = uint64(s.cfg.Seed)
		}
	}
	if bad := s.hold(r, w); bad != nil {
		return bad
	}
	if err := m.constrain(r.Owner, &params, w); err != nil {
		return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	r.stream, r.logprobs = w.Stream, params.Logprobs > 0
	r.progress, r.noisy = !r.lines && (w.Progress || w.Stream && !w.NoProgress), w.Progress
	r.TargetTTFT, r.TargetITL, r.metadata = w.TargetTTFT, w.TargetTBT, w.Metadata
	if w.Priority == wire.PriorityBackground {
		r.Class = sched.Background
	}
	r.Tokens = append(make([]runtime.Token, 0, min(n+maxTokens, nCtx)), tokens...)
	r.Prompt, r.MaxTokens, r.fillOnly, r.stopTokens = n, maxTokens, w.FillOnly, params.StopTokens
	var err error
	m.readCalls(r, w, p.with.tools, p.text)
	if bad := s.holdCalls(r, w, p.with.tools, p.text); bad != nil {
		return bad
	}
	opt := m.thinkOptions(w, maxTokens, r.continued)
	opt.Calls, opt.Bound = r.Calls != nil, r.form != nil
	if r.ctl, err = meridian.NewControl(m.think, m.tags, opt, p.begin); err != nil {
		return &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	r.Control = r.ctl
	if m.tags.Known() && m.tags.Fallback() {
		s.metrics.VocabFallbacks.Inc()
	}
	if r.chat = p.chat && !s.cfg.NoPrefixCache && !w.FillOnly; r.chat {
		r.Chat = true
		r.messages, r.with = w.Messages, p.with
		if s.cfg.SharePrefixes == "system" || s.cfg.ContextShift {
			r.Keep = m.systemTokens(r, tokens)
		}
		if s.cfg.SharePrefixes == "system" {
			r.Shareable = r.Keep
		}
	}
	r.Text.Init(w.Stop)
	r.chain = sampler.New(params, m.facts, &s.loop.Load().scratch)
	for _, t := range tokens {
		r.chain.Accept(t)
	}
	r.chain.Begin()
	return nil
}

// maxShifted bounds an answer whose context shifts: nothing else would end a model that repeats itself.
const maxShifted = 1 << 20

// systemTokens is how many leading tokens of r's rendered conversation are its system prompt.
func (m *model) systemTokens(r *request, tokens []runtime.Token) int {
	if len(r.messages) == 0 || r.messages[0].Role != "system" {
		return 0
	}
	text, err := m.renderTurn(r.messages[:1], r.with, false)
	if err != nil {
		return 0 // a template that wants a user's message first
	}
	system, err := m.tokenize(r.Owner, text, true)
	if err != nil {
		return 0
	}
	return kvsnap.CommonPrefix(system, tokens)
}

// history is what the next turn of an ended chat begins with, as far as the chat template decides it; nil when it cannot
// be told.
func (m *model) history(r *request) []runtime.Token {
	said, before := wire.Message{Role: "assistant", Content: string(r.answer), ReasoningContent: string(r.thinking), ToolCalls: r.calls}, r.messages
	if r.continued {
		last := before[len(before)-1]
		before = before[:len(before)-1]
		said.Content, said.ReasoningContent = last.Content+said.Content, last.ReasoningContent+said.ReasoningContent
	}
	msgs := append(before[:len(before):len(before)], said)
	text, err := m.renderTurn(msgs, r.with, false)
	if err != nil {
		return nil
	}
	tokens, err := m.tokenize(r.Owner, text, true)
	if err != nil {
		return nil
	}
	return tokens
}

// intake prepares requests, one after the other, until the room is closed, and renders the histories of ended chats.
func (s *Server) intake(l *loop) {
	history := func(r *request) {
		l.mail.put(command{kind: cmdHistory, req: r, tokens: s.model.Load().history(r)})
	}
	for {
		j, ok, closed := s.room.next()
		switch {
		case ok:
			s.takeIn(l, j)
			select {
			case r := <-l.histories:
				history(r)
			default:
			}
		case closed:
			return
		default:
			select {
			case <-s.room.wake:
			case r := <-l.histories:
				history(r)
			}
		}
	}
}

func (s *Server) takeIn(l *loop, j job) {
	if m := s.model.Load(); j.r.lines && m.template != nil {
		j.w.Messages, j.w.Prompt = []wire.Message{{Role: "user", Content: j.w.Prompt}}, ""
	}
	if j.r.cancelled.Load() {
		s.room.leave(j.r.Owner)
		s.endUnstarted(j)
	} else if e := s.prepare(j.r, j.w); e != nil {
		s.room.leave(j.r.Owner)
		s.refuse(j.r, e)
	} else if !l.mail.put(command{kind: cmdArrive, req: j.r}) {
		s.room.leave(j.r.Owner)
		s.refuse(j.r, shuttingDown())
	}
}

// endUnstarted answers a request that was cancelled before it was even tokenized.
func (s *Server) endUnstarted(j job) {
	s.metrics.Finished(string(wire.Cancelled))
	if j.r.lines {
		j.r.conn.Reply([]byte{'\n'})
	} else {
		j.r.conn.Reply(wire.AppendEOS(nil, &wire.EOS{ID: j.r.wireID, Reason: wire.Cancelled, Streamed: j.w.Stream, Metadata: j.w.Metadata}))
	}
	s.sessions.remove(j.r)
}

// wish is what a request, or else the server's configuration, wishes of the template's thinking. limit is how many tokens
// the answer may have at most: efforts are shares of it.
func (m *model) wish(w *wire.Request, limit int) chattmpl.Thinking {
	t := chattmpl.Thinking{Effort: w.Think.Effort.String()}
	switch w.Think.Mode {
	case wire.ThinkAuto:
		t.Mode = chattmpl.ModeAuto
	case wire.ThinkOff:
		t.Mode = chattmpl.ModeOff
	case wire.ThinkOn:
		t.Mode = chattmpl.ModeOn
	case wire.ThinkDefault:
		switch m.think.ThinkMode {
		case meridian.ModeOff:
			t.Mode = chattmpl.ModeOff
		case meridian.ModeOn:
			t.Mode = chattmpl.ModeOn
		}
	}
	if b := w.Think.Budget(limit); b != wire.NoBudget {
		t.Budget = b
	}
	return t
}

// withSuffix adds text to the last user's message.
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

// thinkOptions are a request's wishes about its thinking, over the server's defaults.
func (m *model) thinkOptions(w *wire.Request, maxTokens int, continued bool) meridian.Options {
	o := m.think.Options()
	switch w.Think.Mode {
	case wire.ThinkAuto:
		o.Mode = meridian.ModeAuto
	case wire.ThinkOff:
		o.Mode = meridian.ModeOff
	case wire.ThinkOn:
		o.Mode = meridian.ModeOn
	}
	switch w.Think.EarlyExit {
	case wire.ExitOff:
		o.EarlyExit = meridian.ExitOff
	case wire.ExitEAT:
		o.EarlyExit = meridian.ExitEAT
	case wire.ExitRPDI:
		o.EarlyExit = meridian.ExitRPDI
	case wire.ExitBoth:
		o.EarlyExit = meridian.ExitBoth
	}
	if b := w.Think.Budget(maxTokens); b != wire.NoBudget {
		o.BudgetTokens = b
	}
	if b := w.Think.SoftBudget(); b != wire.NoBudget {
		o.SoftBudgetTokens = b
		if o.BudgetTokens >= 0 {
			o.SoftBudgetTokens = min(b, o.BudgetTokens)
		}
	}
	o.AnswerCue = w.Think.AnswerCue
	if continued && o.Mode == meridian.ModeOn {
		o.Mode = meridian.ModeAuto // what is continued has begun
	}
	return o
}
