package workload

import "fmt"

// Templates of the reference mix, five of each kind. A number behind each keeps two requests from being the same text:
// a server with a prefix cache would not compute the second.
var chatTemplates = [5]string{
	"Write a short, friendly note that moves our meeting to next week.",
	"Which three things should a visitor to Lisbon not miss, and why?",
	"Explain to a child what a rainbow is made of.",
	"My houseplant has yellow leaves at the bottom. What may be wrong?",
	"Suggest a name for a bakery and a sentence for its door.",
}

var reasoningTemplates = [5]string{
	"A train leaves at 9:40 and covers 210 km at 84 km/h, with two stops of 6 minutes. When does it arrive?",
	"How many positive integers below 1000 are divisible by 7 but by neither 2 nor 5?",
	"The sum of two numbers is 48 and the sum of their squares 1224. Which are they?",
	"A bag holds 5 red and 7 blue balls; three are drawn without putting back. How probable are exactly two blue ones?",
	"Find all integers n for which n^2 + 19n + 92 is a perfect square.",
}

// synthetic is the reference mix. The draws of a request: which kind, which template, the thinking, the answer.
func (o *Options) synthetic() *Plan {
	r := newRandom(o.Seed)
	rs := make([]Request, o.count())
	for i := range rs {
		q := Request{ID: fmt.Sprintf("syn-%06d", i), After: -1, Measured: true, Exact: o.Exact}
		var text string
		if r.float() < o.ReasoningRatio {
			q.Kind, text = Reasoning, reasoningTemplates[r.below(5)]
			q.Think = o.scaled(r.between(600, 6000))
			q.Output = o.scaled(r.between(60, 400))
		} else {
			q.Kind, text = Chat, chatTemplates[r.below(5)]
			q.Output = o.scaled(r.between(40, 240))
		}
		q.Messages = []Message{{"user", fmt.Sprintf("%s (%s%d)", text, o.Salt, i)}}
		rs[i] = q
	}
	return o.arrange(rs)
}
