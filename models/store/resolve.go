package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Errors of names. ErrUnknown and ErrAmbiguous are wrapped by *NameError.
var (
	ErrUnknown    = errors.New("there is no such model on this machine")
	ErrAmbiguous  = errors.New("several models have this name")
	ErrIncomplete = errors.New("the model is not whole")
)

// NameError says which name was not resolved, and which names there are instead.
type NameError struct {
	Text string
	Near []string // of an unknown name: the most alike; of an ambiguous one: all that it may mean, maxNear at most
	More int      // how many more there are
	Err  error    // ErrUnknown or ErrAmbiguous
}

// Error is one sentence.
func (e *NameError) Error() string {
	text := fmt.Sprintf("model %.200q: %v", e.Text, e.Err)
	if len(e.Near) == 0 {
		return text
	}
	list := strings.Join(e.Near, ", ")
	if e.More > 0 {
		list += fmt.Sprintf(" and %d more", e.More)
	}
	if e.Err == ErrUnknown {
		return text + ", but " + list
	}
	return text + ": " + list
}

// Unwrap returns ErrUnknown or ErrAmbiguous.
func (e *NameError) Unwrap() error { return e.Err }

// maxNear is the limit on the similar names in an error.
const maxNear = 8

// preferred are the tags that a name without one means when several models have it, in this order: the tag that ollama
// calls the default, then those that llama.cpp prefers.
var preferred = []string{Latest, "Q4_K_M", "Q8_0"}

// Lookup resolves a name as in a request: the name of a model as lists show it, an alias, or a name without a tag.
// The error is a *NameError, or wraps ErrName.
func (c *Catalog) Lookup(text string) (*Model, error) { return c.lookup(text, false) }

// Resolve is Lookup for a person at a command line, who may also write the beginning of one model's name, or of its
// last part ("smollm" for org/SmolLM2-135M-GGUF:Q8_0).
func (c *Catalog) Resolve(text string) (*Model, error) { return c.lookup(text, true) }

func (c *Catalog) lookup(text string, prefix bool) (*Model, error) {
	target := text
	bare := strings.TrimSuffix(text, ":"+Latest) // clients of ollama add it
	for alias, to := range c.Aliases {
		if strings.EqualFold(alias, text) || strings.EqualFold(alias, bare) && target == text {
			target = to
		}
	}
	// A name as lists show it, which can be longer than names may be.
	if found := c.among(func(m *Model) bool { return strings.EqualFold(m.ID(), target) }); len(found) > 0 {
		return found[0], nil
	}
	if target == text && bare != text { // as ollama's lists have it
		if found := c.among(func(m *Model) bool { return strings.EqualFold(m.ID(), bare) }); len(found) > 0 {
			return found[0], nil
		}
	}
	if target != text && filepath.IsAbs(target) {
		return &Model{Name: Name{Path: text}, id: text, Place: Own, Files: []string{target}}, nil
	}
	q, err := ParseName(target)
	if err != nil {
		return nil, err
	}
	found := c.among(func(m *Model) bool { return m.Name.matches(q) })
	if len(found) == 0 && q.Tag != "" { // a mixture of its publisher's, as llama.cpp finds it
		ud := q
		ud.Tag = "UD-" + q.Tag
		found = c.among(func(m *Model) bool { return m.Name.matches(ud) })
	}
	if len(found) == 0 && (q.Tag == "" || strings.EqualFold(q.Tag, Latest)) {
		bare := Name{Host: q.Host, Path: q.Path}
		found = c.among(func(m *Model) bool { return m.Repo.matches(bare) })
	}
	if len(found) == 0 && prefix {
		found = c.among(func(m *Model) bool { return m.begins(target) })
	}
	return c.choose(text, found)
}

// begins reports whether the model's name, or its last part, begins with text.
func (m *Model) begins(text string) bool {
	id := m.ID()
	path, _, _ := strings.Cut(m.Name.Path, ".gguf")
	base := path[strings.LastIndexByte(path, '/')+1:]
	if m.Name.Tag != "" {
		base += ":" + m.Name.Tag
	}
	for _, name := range []string{id, m.Name.String(), base} {
		if _, ok := cutPrefixFold(name, text); ok {
			return true
		}
	}
	return false
}

// among returns the models that suit, those of the same name in several places once: of the first place that has it
// whole.
func (c *Catalog) among(suits func(*Model) bool) (found []*Model) {
	at := map[string]int{}
	for i := range c.Models {
		m := &c.Models[i]
		if !suits(m) {
			continue
		}
		fold := strings.ToLower(m.ID())
		if j, twice := at[fold]; !twice {
			at[fold] = len(found)
			found = append(found, m)
		} else if found[j].Incomplete != "" && m.Incomplete == "" {
			found[j] = m
		}
	}
	return found
}

// choose returns the one model of found; of several tags of one repository the preferred one.
func (c *Catalog) choose(text string, found []*Model) (*Model, error) {
	switch len(found) {
	case 0:
		return nil, &NameError{Text: text, Near: c.near(text), Err: ErrUnknown}
	case 1:
		return found[0], nil
	}
	oneRepo := !slices.ContainsFunc(found, func(m *Model) bool { return m.Repo != found[0].Repo })
	for _, tag := range preferred {
		for _, m := range found {
			if oneRepo && strings.EqualFold(m.Name.Tag, tag) {
				return m, nil
			}
		}
	}
	e := &NameError{Text: text, Err: ErrAmbiguous}
	for _, m := range found {
		if len(e.Near) == maxNear {
			e.More = len(found) - maxNear
			break
		}
		e.Near = append(e.Near, m.ID())
	}
	return nil, e
}

// near returns the names most like text: with the fewest edits from a name, its last part, or one of the two without
// its tag.
func (c *Catalog) near(text string) (names []string) {
	const most = 3
	if len(text) > maxPartBytes {
		return nil
	}
	type candidate struct {
		name  string
		edits int
	}
	var list []candidate
	want := strings.ToLower(text)
	consider := func(name string) {
		least := len(name) + len(text)
		lower := strings.ToLower(name)
		for _, form := range []string{lower, lower[strings.LastIndexByte(lower, '/')+1:]} {
			bare, _, _ := strings.Cut(form, ":")
			for _, f := range []string{form, bare} {
				if len(f) <= maxPartBytes {
					least = min(least, levenshtein.ComputeDistance(want, f))
				}
			}
		}
		if least <= max(2, len(text)/3) {
			list = append(list, candidate{name, least})
		}
	}
	for i := range c.Models {
		consider(c.Models[i].ID())
	}
	for alias := range c.Aliases {
		consider(alias)
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		if a.edits != b.edits {
			return a.edits - b.edits
		}
		return strings.Compare(a.name, b.name)
	})
	for _, x := range list {
		if len(names) < most && !slices.Contains(names, x.name) {
			names = append(names, x.name)
		}
	}
	return names
}

// Names returns all names that Lookup finds, for a shell's completion: each model's and the aliases, without those of
// files that are not whole.
func (c *Catalog) Names() (names []string) {
	for i := range c.Models {
		if c.Models[i].Incomplete == "" {
			names = append(names, c.Models[i].ID())
		}
	}
	for alias := range c.Aliases {
		names = append(names, alias)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Whole returns an error that wraps ErrIncomplete unless the model's files are all there.
func (m *Model) Whole() error {
	if m.Incomplete == "" {
		return nil
	}
	return fmt.Errorf("model %s (%s): %w: %s", m.ID(), m.Place, ErrIncomplete, m.Incomplete)
}
