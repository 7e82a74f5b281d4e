package grammar

// Grammar is a compiled grammar. Its Matchers share what they have computed.
type Grammar struct{}

// Build compiles the texts of root. It returns ErrEmpty when no text matches, and errors that wrap ErrUndefined,
// ErrLeftRecursion, ErrLimit or regex.ErrLimit. Direct left recursion is rewritten as a repetition. The Builder must not be
// used afterwards.
func (b *Builder) Build(root Node) (*Grammar, error) { panic("soon") }
