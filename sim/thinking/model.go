// Package thinking is the reasoning model of a simulation: the tokens of its thoughts, and the entropies that its rows
// would have. With them the real phase control (package meridian) probes, decides and closes thoughts as it does in
// the daemon, without a model.
package thinking

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Model has the tokens that a simulated model writes, of the fake engine's vocabulary. It is immutable.
type Model struct {
	Vocab runtime.Vocab
	Tags  *meridian.Tags

	Open, Close, End runtime.Token
	word, line       runtime.Token
}

// New returns the model.
func New() (*Model, error) {
	m := &Model{Vocab: fake.New(fake.Config{}).Vocab()}
	var err error
	if m.Tags, err = meridian.Detect(m.Vocab, meridian.Markers{}, m.Vocab.ChatTemplate()); err != nil {
		return nil, err
	}
	line, err := m.Vocab.Tokenize(nil, "\n", false, false)
	if err != nil {
		return nil, err
	}
	marks := m.Tags.Markers()
	m.Open, m.Close, m.End = m.Vocab.Find(marks.Open[0]), m.Vocab.Find(marks.Close[0]), m.Vocab.EOS()
	m.word, m.line = m.Vocab.Find("w"), line[0]
	return m, nil
}

// A paragraph of a thought is two lines of lineTokens tokens, line breaks included, and an empty line. Phase control
// looks for these: it probes behind an empty line, and closes behind a line.
const (
	lineTokens      = 24
	paragraphTokens = 2*lineTokens + 1
)

// Thought returns the token of a thought behind n others.
func (m *Model) Thought(n int) runtime.Token {
	switch n %= paragraphTokens; n {
	case lineTokens - 1, paragraphTokens - 2, paragraphTokens - 1:
		return m.line
	}
	return m.word
}

// Word returns a token of an answer.
func (m *Model) Word() runtime.Token { return m.word }
