package grammar

import "github.com/uma-serve/uma-serve/grammar/regex"

// Choice returns the node that matches any of texts (guided_choice); without texts it matches nothing.
func (b *Builder) Choice(texts []string) Node { return b.Terminal(b.regex.Literals(texts)) }

// Pattern returns the texts that pattern matches as a whole (guided_regex). Errors are regex.Set.Parse's.
func (b *Builder) Pattern(pattern string) (Node, error) {
	e, err := b.regex.Parse(pattern, regex.Whole)
	if err != nil {
		return 0, err
	}
	return b.Terminal(e), nil
}
