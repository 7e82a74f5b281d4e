package grammar

// Vocabulary is a model's tokens as a trie, with what is memoised for all grammars. It is built once a model.
type Vocabulary struct{}

// NewVocabulary returns the vocabulary of pieces: the bytes of each token by id. An empty piece (a control token) is never
// allowed. ends are the ids that end a text (EOG); they are allowed where the text may end, whatever their piece.
// pieces is not kept.
func NewVocabulary(pieces [][]byte, ends []int32) *Vocabulary { panic("soon") }

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { panic("soon") }

// Matcher follows one text through a grammar.
type Matcher struct{}

// NewMatcher returns a Matcher at the start of g's texts.
func NewMatcher(g *Grammar, v *Vocabulary) *Matcher { panic("soon") }

// Mask returns the tokens that may come next, one bit a token: token t is bit t%32 of word t/32. An end token's bit says
// that the text may end. The slice is owned by the Matcher's grammar, must not be written, and is valid until the next
// call of any method.
func (m *Matcher) Mask() []uint32 { panic("soon") }

// Accept takes one token. It returns an error that wraps ErrRejected, and takes nothing, when the token may not come.
// An end token is accepted where MayEnd, and then only Rollback and Reset may follow.
func (m *Matcher) Accept(token int32) error { panic("soon") }

// AcceptBytes takes text as one step of Rollback, all or nothing; errors as Accept's.
func (m *Matcher) AcceptBytes(text []byte) error { panic("soon") }

// Forced returns the bytes that must come next: empty where there is a choice or the text may end. The slice is valid until
// the next call.
func (m *Matcher) Forced() []byte { panic("soon") }

// MayEnd reports whether the text so far is complete.
func (m *Matcher) MayEnd() bool { panic("soon") }

// Done reports whether the text is complete and nothing may follow.
func (m *Matcher) Done() bool { panic("soon") }

// Err returns the limit that was exceeded while matching, or nil: from then on masks allow nothing. It wraps ErrLimit or
// regex.ErrLimit.
func (m *Matcher) Err() error { panic("soon") }

// Clone returns an independent Matcher at the same place, without what was accepted before it.
func (m *Matcher) Clone() *Matcher { panic("soon") }

// Rollback takes back the last n calls of Accept and AcceptBytes that succeeded. It panics when there were fewer.
func (m *Matcher) Rollback(n int) { panic("soon") }

// Reset goes back to the start.
func (m *Matcher) Reset() { panic("soon") }
