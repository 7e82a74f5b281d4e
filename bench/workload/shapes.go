package workload

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// text is prose-like text of about so many tokens that no other salt shares a beginning with.
func (o *Options) text(salt string, tokens int) string {
	perWord := o.TokensPerWord
	if perWord <= 0 {
		perWord = 1.3
	}
	r := o.draws(salt)
	var b strings.Builder
	for range max(1, int(math.Round(float64(tokens)/perWord))) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[r.below(len(words))])
	}
	return b.String()
}

// draws returns the generator of what has this salt.
func (o *Options) draws(salt string) *random {
	salt = o.Salt + salt
	seed := uint64(14695981039346656037) // FNV-1a
	for i := range len(salt) {
		seed = (seed ^ uint64(salt[i])) * 1099511628211
	}
	return newRandom(seed ^ o.Seed)
}

// words are common and short: most tokenizers have each as one token.
var words = strings.Fields(
	`the of and to in is that it was for on are as with his they at be this from have or by one had not but what all
were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my
made over did down only way find use may water long little very after words called just where most know get
through back much before go good new write our used me man too any day same right look think also around another
came come work three word must because does part even place well such here take why things help put years
different away again off went old number great tell men say small every found still between name should home big
give air line set own under read last never us left end along while might next sound below saw something thought
both few those always looked show large often together asked house world`)

func (o *Options) storm() *Plan {
	end := o.Solo + o.Storm
	p := &Plan{Mark: o.Solo}
	for i := range o.Streams {
		p.Requests = append(p.Requests,
			Request{ID: fmt.Sprintf("chat-%d", i), Kind: Chat, Group: "chat", Measured: true, After: -1, Until: end,
				Prompt: o.text(fmt.Sprint("chat", i), 24), Output: Endless, Exact: true})
	}
	// Enough prompts for the whole storm: at best a server computes some thousands of tokens a second. What is left
	// over when it ends is not sent.
	each := max(4, int(o.Storm.Seconds()*20000/float64(o.Prompt))/o.Clients)
	for c := range o.Clients {
		last := -1
		for n := range min(each, 2000) {
			p.Requests = append(p.Requests,
				Request{ID: fmt.Sprintf("prompt-%d-%d", c, n), Kind: Chat, Group: "prompt", At: o.Solo, After: last,
					Until:  end,
					Prompt: o.text(fmt.Sprint("prompt", c, " ", n), o.Prompt), Output: 1, Exact: true, X: o.Prompt,
					Background: o.Background, Model: o.PromptModel})
			last = len(p.Requests) - 1
		}
	}
	// Newcomers: what a client sees that asks now. One at a time, so that the queue does not make it worse for the
	// next.
	newcomers := func(group string, from, length time.Duration) {
		last := -1
		for n := range 6 {
			p.Requests = append(p.Requests,
				Request{ID: fmt.Sprintf("%s-%d", group, n), Kind: Chat, Group: group,
					At: from + time.Duration(n)*length/6, After: last, Until: from + length,
					Prompt: o.text(fmt.Sprint(group, n), 24), Output: 5, Exact: true})
			last = len(p.Requests) - 1
		}
	}
	newcomers("newcomer-alone", o.Solo/10, o.Solo*9/10)
	newcomers("newcomer-storm", o.Solo+o.Storm/40, o.Storm*39/40)
	return p
}

func (o *Options) sharedPrefix() *Plan {
	p := &Plan{}
	last := -1
	for n := 256; n <= o.Context*3/4; n *= 2 {
		p.Prompts = append(p.Prompts, n)
		for round := range o.Rounds {
			document := o.text(fmt.Sprint("document", n, " ", round), n)
			for q := range 4 {
				group := "later"
				if q == 0 {
					group = "first"
				}
				p.Requests = append(p.Requests,
					Request{ID: fmt.Sprintf("prefix-%d-%d-%d", n, round, q), Kind: Chat, Group: group, Measured: true,
						After: last, X: n,
						Prompt: document + "\n\n" + o.text(fmt.Sprint("question", n, " ", round, " ", q), 16),
						Output: min(o.Tokens, 16), Exact: true})
				last = len(p.Requests) - 1
			}
		}
	}
	return p
}

func (o *Options) decodeSweep() *Plan {
	p := &Plan{}
	for i := range o.Streams {
		p.Requests = append(p.Requests,
			Request{ID: fmt.Sprintf("stream-%d", i), Kind: Chat, Measured: true, After: -1, X: o.Streams,
				Prompt: o.text(fmt.Sprint("stream", i), 16), Output: o.Tokens, Exact: true})
	}
	return p
}

// listSchema is a schema of strings, numbers, a choice and lists. Its 200 items are more tokens than an answer has, so
// that the answer ends at its limit.
const listSchema = `{"type":"array","minItems":200,"items":{"type":"object","properties":{` +
	`"name":{"type":"string","maxLength":60},"age":{"type":"integer","minimum":0,"maximum":130},` +
	`"city":{"enum":["Berlin","Bern","Bergen","Bologna"]},"score":{"type":"number"},` +
	`"tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":4},"active":{"type":"boolean"}},` +
	`"required":["name","age","city","score","tags","active"],"additionalProperties":false}}`

// schemas compares, within one run, answers that are free with those beside them that have a schema. decode-sweep with
// as many streams has none.
func (o *Options) schemas() *Plan {
	p := o.decodeSweep()
	for i := range p.Requests {
		q := &p.Requests[i]
		if q.Group = "free"; i%2 == 1 {
			q.Group, q.Schema, q.Exact = "schema", listSchema, false
		}
	}
	return p
}

func (o *Options) longContext() *Plan {
	p := &Plan{}
	last := -1
	for n := 1024; ; n *= 2 {
		// The longest prompt fills the context up to the answer, and the tokenizer's error.
		full := n >= o.Context
		if full {
			n = o.Context - o.Tokens - o.Context/20
		}
		p.Prompts = append(p.Prompts, n)
		for round := range o.Rounds {
			p.Requests = append(p.Requests,
				Request{ID: fmt.Sprintf("context-%d-%d", n, round), Kind: Chat, Group: "context", Measured: true,
					After: last, X: n,
					Prompt: o.text(fmt.Sprint("context", n, " ", round), n), Output: o.Tokens, Exact: true})
			last = len(p.Requests) - 1
		}
		if full {
			return p
		}
	}
}

func (o *Options) agentChain() *Plan {
	p := &Plan{}
	for a := range max(1, o.Clients) {
		last := -1
		for turn := range o.Turns {
			q := Request{ID: fmt.Sprintf("agent-%d-%d", a, turn), Kind: Chat, Measured: true, After: last,
				Output: o.Tokens, X: turn + 1, Group: "turn"}
			if turn == 0 {
				q.Messages = []Message{{"system", "You are an agent that works step by step with tools. " +
					o.text("system", 400)}, {"user", o.text(fmt.Sprint("task", a), 60)}}
			} else {
				q.Grow, q.Pause = true, 200*time.Millisecond // the tool runs
				q.Messages = []Message{{"user", "Result of the tool: " +
					o.text(fmt.Sprint("result", a, " ", turn), 120)}}
			}
			last = len(p.Requests)
			p.Requests = append(p.Requests, q)
		}
	}
	return p
}

func (o *Options) twoApp() *Plan {
	r := newRandom(o.Seed)
	p := &Plan{Rate: o.Rate}
	end := o.Duration
	for i, at := 0, 0.0; at < end.Seconds(); i, at = i+1, at+r.exponential(o.Rate) {
		p.Requests = append(p.Requests,
			Request{ID: fmt.Sprintf("editor-%d", i), Kind: Chat, Group: "editor", Measured: true,
				At: time.Duration(at * 1e9), After: -1,
				Prompt: o.text(fmt.Sprint("editor", i), r.between(100, 400)), Output: r.between(8, 32), Exact: true})
	}
	for c := range o.Clients {
		last := -1
		for n := range 200 {
			p.Requests = append(p.Requests,
				Request{ID: fmt.Sprintf("batch-%d-%d", c, n), Kind: Chat, Group: "batch", After: last, Until: end,
					Background: true,
					Prompt:     o.text(fmt.Sprint("batch", c, " ", n), o.Prompt), Output: 200, Exact: true})
			last = len(p.Requests) - 1
		}
	}
	return p
}

func (o *Options) ipc() *Plan {
	p := &Plan{}
	last := -1
	for round := range 10 * o.Rounds {
		for _, via := range Protocols {
			p.Requests = append(p.Requests,
				Request{ID: fmt.Sprintf("%s-%d", via, round), Kind: Chat, Group: via, Via: via, Measured: true,
					After: last,
					// The newline protocol has no options: every protocol asks for nothing but the line, and the server
					// limits the answer.
					Messages: []Message{{"user", o.text(fmt.Sprint("ipc", round, " ", via), 16)}}, Output: o.Tokens})
			last = len(p.Requests) - 1
		}
	}
	return p
}
