package workload

import (
	"fmt"
	"strings"
)

// editTokens is enough for every tokenizer to repeat edited.
const editTokens = 640

// edit asks a chat model to repeat a program with another name in it: most of the answer is in the prompt, so that
// speculation can guess it.
func (o *Options) edit() *Plan {
	p := &Plan{}
	for i := range o.Streams {
		r := o.draws(fmt.Sprint("edit", i))
		pick := func(words string) string {
			all := strings.Fields(words)
			return all[r.below(len(all))]
		}
		from, to := pick("Store Shelf Depot Stock"), pick("Pantry Cellar Locker Vault Barn Attic")
		text := "Rename the type " + from + " to " + to + " in this program. Answer with the whole program in Go and " +
			"nothing else.\n\n```go\n" + strings.ReplaceAll(edited, "NAME", from) + "```"
		p.Requests = append(p.Requests,
			Request{ID: fmt.Sprintf("edit-%d", i), Kind: Chat, Measured: true, After: -1, X: o.Streams,
				Messages: []Message{{"user", text}}, Output: editTokens})
	}
	return p
}

// edited is a program that a model is asked to repeat with another name in it. NAME occurs in every fourth line.
const edited = `package stock

import (
	"errors"
	"sort"
)

// NAME counts the pieces of each article.
type NAME struct {
	pieces map[string]int
	limit  int
}

// NewNAME returns an empty NAME that holds at most limit pieces of an article.
func NewNAME(limit int) *NAME {
	return &NAME{pieces: map[string]int{}, limit: limit}
}

// Add puts n pieces of an article into s.
func (s *NAME) Add(article string, n int) error {
	if n < 0 || s.pieces[article]+n > s.limit {
		return errors.New("too many pieces of " + article)
	}
	s.pieces[article] += n
	return nil
}

// Take removes n pieces of an article from s.
func (s *NAME) Take(article string, n int) error {
	if n < 0 || s.pieces[article] < n {
		return errors.New("too few pieces of " + article)
	}
	s.pieces[article] -= n
	return nil
}

// Articles lists the articles in s by name.
func (s *NAME) Articles() []string {
	var names []string
	for name, n := range s.pieces {
		if n > 0 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}
`
