package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// manner is a way in which a conversation is prepared for the template.
type manner struct {
	roles          *roles
	calls, results bool // are handed over as what they are; otherwise as text
	lead           bool // the first user's message begins with a filler: the template takes its text for a result
}

// strict are turns that every template takes: a system text in the first user's message, user and assistant in turn,
// calls with their results.
func (t *Template) strict() *roles {
	r := &roles{filler: t.roles.filler}
	r.after[start][user] = true
	r.after[user][answer], r.after[user][call] = true, true
	r.after[answer][user] = true
	r.after[call][result] = true
	r.after[result][answer], r.after[result][result], r.after[result][call] = true, true, true
	return r
}

// prepared returns the conversation as the template takes it in this manner.
func (t *Template) prepared(in *Input, how *manner, c *changeCount) []Message {
	msgs := in.Messages
	if len(in.Tools) > 0 && !t.tools.Offered {
		msgs = t.instructed(nil, in)
	}
	if slices.ContainsFunc(msgs, func(m Message) bool { return len(m.Calls) > 0 || m.Role == "tool" }) {
		msgs = t.callsPrepared(t.matched(msgs, c), how, c)
	}
	msgs = arrange(msgs, in.AddGenerationPrompt, how, t.tools.Beside, c)
	if how.lead {
		for i := range msgs {
			if m := &msgs[i]; m.Role == "user" {
				m.Content = joined(fillers[len(fillers)-1], m.Content)
				c.add(userAdded)
				break
			}
		}
	}
	return msgs
}

// matched gives each result the name and, where the template needs one, the id of its call, and puts results into the
// order of their calls where the template shows no ids. A result without an id belongs to the first call without a
// result, of its tool if it names one.
func (t *Template) matched(msgs []Message, c *changeCount) []Message {
	msgs = slices.Clone(msgs)
	made := 0
	for i := range msgs {
		if len(msgs[i].Calls) == 0 {
			continue
		}
		calls := slices.Clone(msgs[i].Calls)
		msgs[i].Calls = calls
		for j := range calls {
			if made++; calls[j].ID == "" && t.tools.needIDs {
				calls[j].ID = fmt.Sprintf("call%05d", made)
			}
		}
		end := i + 1
		for end < len(msgs) && msgs[end].Role == "tool" {
			end++
		}
		results := msgs[i+1 : end]
		at := callOfEach(results, calls)
		for j := range results {
			if at[j] == len(calls) {
				continue
			}
			if m := &results[j]; m.Name == "" {
				m.Name = calls[at[j]].Name
			}
			results[j].CallID = calls[at[j]].ID
		}
		if !t.tools.showIDs && !slices.IsSorted(at) {
			order := make([]int, len(at))
			for j := range order {
				order[j] = j
			}
			slices.SortStableFunc(order, func(a, b int) int { return at[a] - at[b] })
			sorted := make([]Message, len(at))
			for j, k := range order {
				sorted[j] = results[k]
			}
			copy(results, sorted)
			c.add(resultsSorted)
		}
	}
	return msgs
}

// callOfEach returns the index of each result's call; len(calls) for a result of none.
func callOfEach(results []Message, calls []toolcall.Call) []int {
	at := make([]int, len(results))
	answered := make([]bool, len(calls))
	byID, byName, rest := map[string][]int{}, map[string][]int{}, make([]int, len(calls))
	for k := range calls {
		byID[calls[k].ID] = append(byID[calls[k].ID], k)
		byName[calls[k].Name] = append(byName[calls[k].Name], k)
		rest[k] = k
	}
	// take is the first call of list that has no result; the calls before it are removed from the list.
	take := func(list []int) (left []int, k int) {
		for len(list) > 0 && answered[list[0]] {
			list = list[1:]
		}
		if len(list) == 0 {
			return nil, len(calls)
		}
		answered[list[0]] = true
		return list[1:], list[0]
	}
	for j := range results {
		if at[j] = len(calls); results[j].CallID != "" {
			byID[results[j].CallID], at[j] = take(byID[results[j].CallID])
		}
	}
	for j := range results {
		if results[j].CallID != "" {
			continue
		}
		if name := results[j].Name; name != "" {
			byName[name], at[j] = take(byName[name])
		}
		if at[j] == len(calls) {
			rest, at[j] = take(rest)
		}
	}
	return at
}

// callsPrepared has calls as text where the template does not render them, and messages whose calls it renders one by
// one as several.
func (t *Template) callsPrepared(msgs []Message, how *manner, c *changeCount) []Message {
	r := &t.tools
	out := make([]Message, 0, len(msgs)+1)
	asText := func(m *Message) bool {
		return len(m.Calls) > 0 && (!how.calls || !t.readable(m.Calls) || !r.Beside && m.Content != "")
	}
	answered := len(msgs) - 1 // the last message that is rendered as an answer
	for ; answered >= 0; answered-- {
		if m := &msgs[answered]; m.Role == "assistant" && (len(m.Calls) == 0 || asText(m)) {
			break
		}
	}
	for i := 0; i < len(msgs); i++ {
		m := msgs[i]
		written := asText(&m)
		if len(m.Calls) > 0 && !written && m.Content != "" {
			switch {
			case r.besideDropped && i < answered:
				out = append(out, Message{Role: "assistant", Content: m.Content})
				m.Content = ""
				c.add(textBeforeCalls)
			case t.thoughts.alone && m.ReasoningContent != "":
				m.ReasoningContent, m.Content = joined(m.ReasoningContent, m.Content), ""
				c.add(textInThought)
			}
		}
		switch {
		case written:
			m.Content, m.Calls = t.written(m), nil
			c.add(callsAsText)
			out = append(out, m)
		case len(m.Calls) > 1 && r.Single:
			results := i + 1
			for results < len(msgs) && msgs[results].Role == "tool" {
				results++
			}
			out = append(out, apart(m, msgs[i+1:results])...)
			i = results - 1
		default:
			out = append(out, m)
		}
	}
	return out
}

// written returns the text of a message with its calls.
func (t *Template) written(m Message) string {
	calls := slices.Clone(m.Calls)
	for i := range calls {
		if id := &calls[i].ID; t.tools.shortIDs {
			*id = t.callID(*id)
		} else if !t.tools.Syntax.Suffixed {
			*id = "" // the template shows none
		}
	}
	text := t.tools.Syntax.Write(calls)
	if m.Content != "" && strings.HasPrefix(text, "<tool_call>") {
		return m.Content + "\n" + text
	}
	return m.Content + text
}

// apart divides a message with several calls into one for each, followed by its result.
func apart(m Message, results []Message) (out []Message) {
	used := make([]bool, len(results))
	byID := map[string][]int{} // the results of each id
	for j := range results {
		byID[results[j].CallID] = append(byID[results[j].CallID], j)
	}
	for i, c := range m.Calls {
		one := m
		one.Calls = []toolcall.Call{c}
		if i > 0 {
			one.Content, one.ReasoningContent = "", ""
		}
		out = append(out, one)
		j := len(results)
		if list := byID[c.ID]; c.ID != "" && len(list) > 0 {
			j, byID[c.ID] = list[0], list[1:]
		} else if i < len(results) && results[i].CallID == "" {
			j = i
		}
		if j < len(results) {
			used[j] = true
			if results[j].Name == "" {
				results[j].Name = c.Name
			}
			out = append(out, results[j])
		}
	}
	for j := range results {
		if !used[j] {
			out = append(out, results[j])
		}
	}
	return out
}

// instructed adds the tools to the system prompt of a template that does not show them.
func (t *Template) instructed(out []Message, in *Input) []Message {
	text := t.tools.Syntax.Instructions(in.Tools)
	rest := in.Messages
	if len(rest) > 0 && rest[0].Role == "system" {
		first := rest[0]
		first.Content = strings.TrimSpace(first.Content + "\n\n" + text)
		return append(append(out, first), rest[1:]...)
	}
	return append(append(out, Message{Role: "system", Content: text}), rest...)
}

// readable reports whether the template renders the arguments of calls as they were written. They may be cut, or
// something else than an object: what a model once wrote comes back with every request.
func (t *Template) readable(calls []toolcall.Call) bool {
	return t.tools.raw || !slices.ContainsFunc(calls, func(c toolcall.Call) bool {
		v, err := jinja.ParseJSON([]byte(c.Arguments))
		_, isObject := v.(*jinja.Dict)
		return strings.TrimSpace(c.Arguments) != "" && !isObject && (err != nil || !t.tools.values)
	})
}

// calls returns an assistant's calls as the template takes them.
func (t *Template) calls(list []toolcall.Call) []any {
	out := make([]any, len(list))
	for i, c := range list {
		var arguments any = c.Arguments
		if strings.TrimSpace(c.Arguments) == "" {
			arguments = "{}"
		}
		if !t.tools.Text {
			v, err := jinja.ParseJSON([]byte(arguments.(string)))
			if _, isObject := v.(*jinja.Dict); isObject || err == nil && t.tools.values {
				arguments = v
			}
		}
		pairs := []any{"type", "function", "function", jinja.NewDict("name", c.Name, "arguments", arguments)}
		if c.ID != "" {
			pairs = append([]any{"id", t.callID(c.ID)}, pairs...)
		}
		out[i] = jinja.NewDict(pairs...)
	}
	return out
}
