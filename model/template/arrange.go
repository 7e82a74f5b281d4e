package template

import (
	"slices"
	"strings"
)

// between separates the texts of two messages that are merged into one.
const between = "\n\n"

// noResult is the result of a call that has none, where the template must have one.
const noResult = "No result."

// arranger puts messages into an order that a template takes. Each message depends on the ones before it and on what
// kind the next one is, so that a conversation that grows keeps its beginning, which the cache holds.
type arranger struct {
	roles   *roles
	results bool // the template renders results
	beside  bool // it renders text beside calls
	out     []Message
	last    kind   // of the last message in out that is no system message; start: there is none
	pending string // a system text that belongs to the next user's message
	head    bool   // no turn has begun
	textual bool   // the last message is a result as text
	changes *changeCount

	text, thought, waiting grower // of the last message in out, and pending
}

// grower appends to a text again and again: a client may send thousands of neighbours, and each would copy all before.
type grower struct {
	b  strings.Builder
	on bool // b holds the text
}

// add returns to and more with between between them.
func (g *grower) add(to, between, more string) string {
	if to == "" || more == "" {
		g.on = false
		return to + more
	}
	if !g.on {
		g.b.Reset()
		g.b.WriteString(to)
		g.on = true
	}
	g.b.WriteString(between)
	g.b.WriteString(more)
	return g.b.String()
}

// arrange returns msgs in an order that how allows. Texts keep their order; none is left out. opening: an answer is
// opened behind them. beside: the template renders text beside calls.
func arrange(msgs []Message, opening bool, how *manner, beside bool, c *changeCount) []Message {
	r := how.roles
	a := &arranger{roles: r, results: how.results, beside: beside, head: true, changes: c,
		out: make([]Message, 0, len(msgs)+2)}
	next := make([]kind, len(msgs)) // the kind of the next message that is no system message; start: there is none
	for i := len(msgs) - 2; i >= 0; i-- {
		if next[i] = next[i+1]; !isSystem(&msgs[i+1]) {
			next[i] = kindOfMessage(&msgs[i+1])
		}
	}
	for i := range msgs {
		m := msgs[i]
		switch {
		case isSystem(&m) && a.head:
			a.first(m)
		case isSystem(&m):
			a.system(m, next[i])
		default:
			a.turn(m, i == len(msgs)-1)
		}
	}
	if a.pending != "" { // no user's message has followed
		a.turn(Message{Role: "user"}, true)
	}
	a.needUser()
	if n := len(a.out); opening && n > 0 && len(a.out[n-1].Calls) > 0 && !r.openCall {
		a.answerCalls()
	}
	return a.out
}

func isSystem(m *Message) bool { return m.Role == "system" || m.Role == "developer" }

// first adds a system or developer message that is before the first turn.
func (a *arranger) first(m Message) {
	r, n := a.roles, len(a.out)
	if m.Role == "developer" && (!r.developer || n > 0 && !r.beside) {
		m.Role = "system"
		a.changes.add(developerAsSystem)
	}
	if n == 0 && r.developer && !r.after[start][system] {
		m.Role = "developer" // the only role that it has for such a text
	}
	switch {
	case n > 0 && a.out[n-1].Role == "developer" && m.Role == "system" && !r.behind:
		a.join(&m)
		a.changes.add(systemsJoined)
	case n > 0 && (m.Role == "developer" || r.after[system][system]):
		a.put(m)
	case n > 0:
		a.join(&m)
		a.changes.add(systemsJoined)
	case m.Role == "developer" || r.after[start][system]:
		a.put(m)
	default:
		a.wait(m.Content)
		a.changes.add(systemInUser)
	}
}

// wait keeps a system text for the next user's message.
func (a *arranger) wait(text string) { a.pending = a.waiting.add(a.pending, between, text) }

// system adds a system message that is behind the first turn. next is the kind of the turn behind it.
func (a *arranger) system(m Message, next kind) {
	if m.Role == "developer" {
		m.Role = "system"
	}
	prev := a.prev()
	switch {
	case a.pending == "" && prev != start && prev != call && a.roles.later[prev]:
		a.put(m)
		return
	case prev == user && a.pending == "":
		a.join(&m)
	default:
		a.wait(m.Content)
		if next != user {
			a.turn(Message{Role: "user"}, false)
		}
	}
	a.changes.add(laterSystem)
}

// prev returns the kind of the last message that is no system message; system: there are only these.
func (a *arranger) prev() kind {
	if a.last == start && len(a.out) > 0 {
		return system
	}
	return a.last
}

// put appends messages.
func (a *arranger) put(list ...Message) {
	for i := range list {
		if !isSystem(&list[i]) {
			a.last = kindOfMessage(&list[i])
		}
	}
	a.out = append(a.out, list...)
	a.text.on, a.thought.on = false, false
}

// join appends m's texts to those of the last message.
func (a *arranger) join(m *Message) {
	before := &a.out[len(a.out)-1]
	before.Content = a.text.add(before.Content, between, m.Content)
	before.ReasoningContent = a.thought.add(before.ReasoningContent, between, m.ReasoningContent)
}

// turn adds a message of a user, an assistant or a tool. last: no message follows it.
func (a *arranger) turn(m Message, last bool) {
	k, r := kindOfMessage(&m), a.roles
	asText := false
	if prev := a.prev(); k == result && !r.after[prev][result] && (!a.results || prev != call && prev != result) {
		m, k, asText = Message{Role: "user", Content: resultText(m.Content)}, user, true
		a.changes.add(resultAsText)
		if a.textual && a.pending == "" { // results of one message of the assistant
			before := &a.out[len(a.out)-1]
			before.Content = a.text.add(before.Content, "\n", m.Content)
			return
		}
	}
	defer func() { a.textual = asText }()
	if k == user && a.pending != "" {
		m.Content, a.pending = joined(a.pending, m.Content), ""
	} else if a.pending != "" { // an assistant speaks first
		a.turn(Message{Role: "user"}, false)
	}
	a.head = false
	if k == answer && strings.TrimSpace(m.Content) == "" && !r.empty && (!last || m.ReasoningContent == "") {
		a.changes.add(emptyLeftOut)
		return
	}
	if prev := a.prev(); prev == call && k != result && !r.after[call][k] {
		a.answerCalls()
	}
	prev := a.prev()
	if r.after[prev][k] {
		a.put(m)
		return
	}
	before := &Message{}
	if n := len(a.out); n > 0 {
		before = &a.out[n-1]
	}
	switch {
	case isSystem(before) && prev != system: // a later system message, which the template takes
		a.put(m)
	case prev == start || prev == system:
		a.put(Message{Role: "user", Content: r.filler}, m)
		a.changes.add(userAdded)
	case prev == user && k == user, prev == answer && k == answer:
		a.join(&m)
		a.changes.add(neighboursJoined)
	case prev == answer && k == call && !a.beside && joined(before.Content, m.Content) != "":
		a.put(Message{Role: "user", Content: r.filler}, m)
		a.changes.add(userAdded)
	case prev == answer && k == call:
		m.Content = joined(before.Content, m.Content)
		m.ReasoningContent = joined(before.ReasoningContent, m.ReasoningContent)
		a.out = a.out[:len(a.out)-1]
		a.put(m)
		a.changes.add(neighboursJoined)
	case prev == result && k == user && r.bridge:
		a.put(Message{Role: "assistant"}, m)
		a.changes.add(answerAdded)
	case prev == result && k == user:
		a.join(&m)
		a.changes.add(userInResult)
	default:
		a.put(m)
	}
}

// answerCalls adds results to the calls at the end that have none.
func (a *arranger) answerCalls() {
	if !a.results {
		return
	}
	for _, c := range a.out[len(a.out)-1].Calls {
		a.put(Message{Role: "tool", CallID: c.ID, Name: c.Name, Content: noResult})
	}
	a.changes.add(resultAdded)
}

// needUser adds a user's message to a conversation that has none, where the template must have one.
func (a *arranger) needUser() {
	takes, calls := a.roles.alone, false
	for i := range a.out {
		switch m := &a.out[i]; {
		case m.Role == "user":
			return
		case len(m.Calls) > 0 || m.Role == "tool":
			takes, calls = a.roles.loneCall, true
		case m.Role == "assistant" && !calls:
			takes = a.roles.loneAnswer
		}
	}
	if takes {
		return
	}
	i := 0
	for i < len(a.out) && isSystem(&a.out[i]) {
		i++
	}
	a.out = slices.Insert(a.out, i, Message{Role: "user", Content: a.roles.filler})
	a.changes.add(userAdded)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// resultText returns a tool's result as text of a user's message.
func resultText(content string) string { return "<tool_response>\n" + content + "\n</tool_response>" }
