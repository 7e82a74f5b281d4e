package chattmpl

import (
	"slices"
	"strings"
)

// between is what stands between the texts of two messages that become one.
const between = "\n\n"

// noResult is the result of a call that has none, where the template must have one.
const noResult = "No result."

// arranger puts messages into an order that a template takes. Each message depends on the ones before it and on what
// kind the next one is, so that a conversation that grows keeps its beginning, which the cache holds.
type arranger struct {
	roles   *roles
	results bool // the template renders results
	out     []Message
	pending string // a system text that belongs to the next user's message
	head    bool   // no turn has begun
	textual bool   // the last message is a result as text
	changes *changeCount
}

// arrange returns msgs in an order that r allows. Texts keep their order; none is left out.
func arrange(msgs []Message, r *roles, results bool, c *changeCount) []Message {
	a := &arranger{roles: r, results: results, out: make([]Message, 0, len(msgs)+2), head: true, changes: c}
	for i := range msgs {
		m := msgs[i]
		switch {
		case isSystem(&m) && a.head:
			a.first(m)
		case isSystem(&m):
			a.system(m, msgs[i+1:])
		default:
			a.turn(m, i == len(msgs)-1)
		}
	}
	if a.pending != "" { // no user's message has followed
		a.turn(Message{Role: "user"}, true)
	}
	a.needUser()
	return a.out
}

func isSystem(m *Message) bool { return m.Role == "system" || m.Role == "developer" }

// first adds a system or developer message that stands before the first turn.
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
	case n > 0 && (m.Role == "developer" || r.after[system][system]):
		a.out = append(a.out, m)
	case n > 0:
		join(&a.out[n-1], &m)
		a.changes.add(systemsJoined)
	case m.Role == "developer" || r.after[start][system]:
		a.out = append(a.out, m)
	default:
		a.wait(m.Content)
		a.changes.add(systemInUser)
	}
}

// wait keeps a system text for the next user's message.
func (a *arranger) wait(text string) { a.pending = joined(a.pending, text) }

// system adds a system message that stands behind the first turn. rest are the messages behind it.
func (a *arranger) system(m Message, rest []Message) {
	if m.Role == "developer" {
		m.Role = "system"
	}
	prev := a.prev()
	switch {
	case a.pending == "" && prev != start && prev != call && a.roles.later[prev]:
		a.out = append(a.out, m)
		return
	case prev == user && a.pending == "":
		join(&a.out[len(a.out)-1], &m)
	default:
		a.wait(m.Content)
		if next := slices.IndexFunc(rest, func(m Message) bool { return !isSystem(&m) }); next < 0 ||
			kindOfMessage(&rest[next], false) != user {
			a.turn(Message{Role: "user"}, false)
		}
	}
	a.changes.add(laterSystem)
}

// prev is the kind of the last message that is no system message.
func (a *arranger) prev() kind {
	for i := len(a.out) - 1; i >= 0; i-- {
		if !isSystem(&a.out[i]) {
			return kindOfMessage(&a.out[i], false)
		}
	}
	if len(a.out) > 0 {
		return system
	}
	return start
}

// turn adds a message of a user, an assistant or a tool. last: no message follows it.
func (a *arranger) turn(m Message, last bool) {
	k, r := kindOfMessage(&m, false), a.roles
	asText := false
	if prev := a.prev(); k == result && !r.after[prev][result] && (!a.results || prev != call && prev != result) {
		m, k, asText = Message{Role: "user", Content: resultText(m.Content)}, user, true
		a.changes.add(resultAsText)
		if n := len(a.out); a.textual && a.pending == "" { // results of one message of the assistant
			a.out[n-1].Content += "\n" + m.Content
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
	if k == answer && !last && strings.TrimSpace(m.Content) == "" && !r.empty {
		a.changes.add(emptyLeftOut)
		return
	}
	if prev := a.prev(); prev == call && k != result && !r.after[call][k] {
		a.answerCalls()
	}
	prev := a.prev()
	if r.after[prev][k] {
		a.out = append(a.out, m)
		return
	}
	before := &Message{}
	if n := len(a.out); n > 0 {
		before = &a.out[n-1]
	}
	switch {
	case isSystem(before) && prev != system: // a later system message, which the template takes
		a.out = append(a.out, m)
	case prev == start || prev == system:
		a.out = append(a.out, Message{Role: "user", Content: r.filler}, m)
		a.changes.add(userAdded)
	case prev == user && k == user, prev == answer && k == answer:
		join(before, &m)
		a.changes.add(neighboursJoined)
	case prev == answer && k == call:
		m.Content = joined(before.Content, m.Content)
		m.ReasoningContent = joined(before.ReasoningContent, m.ReasoningContent)
		*before = m
		a.changes.add(neighboursJoined)
	case prev == result && k == user && r.bridge:
		a.out = append(a.out, Message{Role: "assistant"}, m)
		a.changes.add(answerAdded)
	case prev == result && k == user:
		join(before, &m)
		a.changes.add(userInResult)
	default:
		a.out = append(a.out, m)
	}
}

// answerCalls adds results to the calls at the end that have none.
func (a *arranger) answerCalls() {
	if !a.results {
		return
	}
	for _, c := range a.out[len(a.out)-1].Calls {
		a.out = append(a.out, Message{Role: "tool", CallID: c.ID, Name: c.Name, Content: noResult})
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

// join appends m's texts to those of before.
func join(before, m *Message) {
	before.Content = joined(before.Content, m.Content)
	before.ReasoningContent = joined(before.ReasoningContent, m.ReasoningContent)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + between + b
}

// resultText is a tool's result as text of a user's message.
func resultText(content string) string { return "<tool_response>\n" + content + "\n</tool_response>" }
