package template

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// kind classifies a message for the order in which a template takes messages.
type kind uint8

const (
	start  kind = iota // before the first message
	system             // a system message before the first turn
	user
	answer // of the assistant, without calls
	call   // of the assistant, with calls
	result // of a tool
	kinds
)

// roles are the orders of roles that a template accepts, found by rendering small conversations: an accepted one has
// each text rendered, in its place. The zero value is a template that takes only a system message in the first user's
// message, then user and assistant in turn, and calls with their results.
type roles struct {
	after     [kinds][kinds]bool // after[a][b]: it takes b directly behind a
	later     [kinds]bool        // later[a]: it takes a system message behind a, whatever follows
	developer bool               // it knows the role developer for the first message
	beside    bool               // also behind a system message
	behind    bool               // it takes a system message behind a developer message
	empty     bool               // it takes an assistant's empty message
	bridge    bool               // it takes a user behind a tool's result and an assistant's empty message
	openCall  bool               // it renders a call before the opening of the next answer
	// It takes a conversation without a user's message: a system message alone, with an answer, with a call.
	alone, loneAnswer, loneCall bool
	filler                      string // of a user's message that is put where the template must have one
}

// fillers are the texts of a user's message that no user has sent, the best first.
var fillers = []string{"", "Continue."}

// rolesSteps bounds one rendering of these probes. A published template needs a few thousand steps.
const rolesSteps = 200_000

// prober renders the conversations of findRoles.
type prober struct {
	t     *Template
	offer []toolcall.Tool
	slow  bool // a rendering went beyond the limit: the template is made to take time
	moved bool // the template puts the first system message into a later turn
}

// takes reports whether the template renders the messages of turns with each text in its place. The letters: s system,
// d developer, u user, a assistant, c call, r result, e an assistant's empty message, f a user's message with the
// filler. A point at the end stands for the opening of an answer, which otherwise follows all but an assistant.
func (p *prober) takes(turns, filler string) bool {
	if p.slow {
		return false
	}
	var msgs []Message
	var words []string
	calls := 0
	turns, opening := strings.CutSuffix(turns, ".")
	for i := range len(turns) {
		word := fmt.Sprintf("umaword%02d", i)
		m := Message{Role: "assistant", Content: word}
		switch turns[i] {
		case 's':
			m.Role = "system"
		case 'd':
			m.Role = "developer"
		case 'u':
			m.Role = "user"
		case 'c':
			calls++
			m = Message{Role: "assistant", Calls: []toolcall.Call{{ID: fmt.Sprintf("umacall%02d", calls),
				Name: probeTool.Name, Arguments: fmt.Sprintf(`{"uma_word": "%s"}`, word)}}}
		case 'r':
			m = Message{Role: "tool", Content: word, CallID: fmt.Sprintf("umacall%02d", calls), Name: probeTool.Name}
		case 'e':
			m.Content = ""
		case 'f':
			m.Role, m.Content = "user", filler
		}
		msgs = append(msgs, m)
		if turns[i] != 'e' && turns[i] != 'f' && !(p.moved && turns[i] == 's' && i == 0) {
			words = append(words, word)
		}
	}
	var offer []toolcall.Tool
	if strings.ContainsAny(turns, "cr") {
		offer = p.offer
	}
	out, err := p.t.Render(Input{Messages: msgs, Tools: offer, Now: time.Unix(0, 0), native: true, steps: rolesSteps,
		AddGenerationPrompt: opening || msgs[len(msgs)-1].Role != "assistant"})
	p.slow = p.slow || errors.Is(err, jinja.ErrLimit)
	if err != nil {
		return false
	}
	if p.moved && turns[0] == 's' && !strings.Contains(out, "umaword00") {
		return false
	}
	return inOrder(out, words)
}

// inOrder reports whether text holds the words, one behind the other, and no word before its place.
func inOrder(text string, words []string) bool {
	at := 0
	for _, w := range words {
		i := strings.Index(text, w)
		if i < at {
			return false
		}
		at = i + len(w)
	}
	return true
}

// findRoles fills t.roles. It needs t.tools.
func (t *Template) findRoles() {
	t.roles = roles{}
	p := &prober{t: t}
	if t.tools.Offered {
		p.offer = []toolcall.Tool{probeTool}
	}
	var r roles
	all := func(turns ...string) bool {
		for _, s := range turns {
			if !p.takes(s, "") {
				return false
			}
		}
		return true
	}
	p.moved = all("su") && !all("suau")
	r.after[start][user] = true
	turns := all("uau") // it shows answers; a template that only completes a question does not
	r.after[start][system] = all("su") && (!turns || all("suau"))
	head := ""
	if r.after[start][system] {
		head = "s"
	}
	r.after[system][user] = true
	r.after[system][system] = head != "" && all("ssu") && (!turns || all("ssuau"))
	r.after[start][answer] = all("au", "auau")
	r.after[system][answer] = head != "" && all("sau", "sauau")
	r.after[user][user] = all("uu", "uuau", head+"uauu", head+"uauuau")
	r.after[user][answer] = true
	r.after[answer][user] = true
	r.after[answer][answer] = all("uaau", head+"uauaau")
	r.empty = all("ueu", head+"uaueu", head+"ueuau")
	if t.tools.Calls {
		r.after[start][call] = all("cr", "crau")
		r.after[system][call] = head != "" && all("scr", "scrau")
		r.after[user][call] = true
		r.after[answer][call] = all("uacr", head+"uauacrau")
		r.after[call][result] = true
		r.after[call][user] = all("ucu", head+"uaucuau")
		r.after[call][answer] = all("ucau", head+"uaucau")
		r.after[call][call] = all("uccr", head+"uauccrau")
		r.openCall = all("uc.", head+"uauc.")
	}
	if t.tools.Results {
		r.after[start][result] = all("ru", "rau")
		r.after[system][result] = head != "" && all("sru", "srau")
		r.after[user][result] = all("ur", head+"uaurau")
		r.after[answer][result] = all("uar", head+"uauarau")
		r.after[result][answer] = true
		r.after[result][result] = true
		one := "ucr"
		if !t.tools.Calls {
			one = "uar"
		}
		r.after[result][user] = all(one+"u", one+"uau", head+"ua"+one+"u", head+"ua"+one+"uau", one+"au"+one+"u")
		r.bridge = all(one+"eu", one+"euau", head+"ua"+one+"eu", one+"au"+one+"eu")
		r.after[result][call] = t.tools.Calls && all(one+"cr", head+"ua"+one+"crau")
		r.later[result] = all(one+"s", one+"su", one+"sa", head+one+"sau")
		if t.tools.Calls {
			r.later[result] = r.later[result] && all(one+"scr")
		}
	}
	r.later[user] = all("us", "usu", "usau", head+"uausa")
	r.later[answer] = all("uas", "uasu", head+"uasau", head+"uasu", head+"uasuau")
	r.developer = strings.Contains(t.source, "developer") && all("du") && (!turns || all("duau"))
	r.beside = r.developer && head != "" && all("sdu", "sduau")
	r.behind = r.developer && head != "" && all("dsu", "dsuau")
	r.alone, r.loneAnswer = head != "" && all("s"), all(head+"a")
	if r.loneCall = r.loneAnswer; t.tools.Calls {
		r.loneCall = all(head + "cr")
	}
	for _, filler := range fillers {
		if r.filler = filler; p.takes(head+"fau", filler) && p.takes(head+"f", filler) {
			break
		}
	}
	if !p.slow {
		t.roles = r
	}
}

// kindOfMessage returns the kind of a message that is no system message.
func kindOfMessage(m *Message) kind {
	switch {
	case len(m.Calls) > 0:
		return call
	case m.Role == "tool":
		return result
	case m.Role == "assistant":
		return answer
	}
	return user
}
