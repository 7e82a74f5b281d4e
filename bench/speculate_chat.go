package bench

import (
	"math/rand/v2"
	"strings"
)

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

// chatQuestion returns a question for a published model: to repeat a program with another name, or to tell a story.
func chatQuestion(rng *rand.Rand, edit bool) string {
	pick := func(words string) string {
		all := strings.Fields(words)
		return all[rng.IntN(len(all))]
	}
	if edit {
		from, to := pick("Store Shelf Depot Stock"), pick("Pantry Cellar Locker Vault Barn Attic")
		return "Rename the type " + from + " to " + to + " in this program. Answer with the whole program in Go and " +
			"nothing else.\n\n```go\n" + strings.ReplaceAll(edited, "NAME", from) + "```"
	}
	return "Tell a story about a " + pick("brave tired clever lost old tiny") + " " +
		pick("sailor fox baker robot gardener teacher") + " and a " + pick("storm letter clock bridge garden key") + "."
}
