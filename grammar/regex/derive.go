package regex

// Nullable reports whether e matches the empty text.
func (s *Set) Nullable(e Expr) bool { return s.nodes[e].nullable }

// Derive returns the texts that may follow b in those of e; Nothing when b cannot begin one.
func (s *Set) Derive(e Expr, b byte) Expr { panic("soon") }

// IsEmpty reports whether e matches no text. It explores the automaton and may exceed Limits.Steps: then the error wraps
// ErrLimit.
func (s *Set) IsEmpty(e Expr) (bool, error) { panic("soon") }

// Contains reports whether every text of b is one of a. Errors as IsEmpty's.
func (s *Set) Contains(a, b Expr) (bool, error) { return s.IsEmpty(s.Minus(b, a)) }

// Match reports whether e matches text as a whole.
func (s *Set) Match(e Expr, text []byte) bool { panic("soon") }

// Parse returns the expression of pattern. Errors wrap ErrSyntax, ErrUnsupported (naming the construct) or ErrLimit.
func (s *Set) Parse(pattern string, f Flavour) (Expr, error) { panic("soon") }
