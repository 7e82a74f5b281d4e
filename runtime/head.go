package runtime

// HeadOptions are the options of a head's memory.
type HeadOptions struct {
	ContextTokens int // cells of all its sequences
	Batch         int // tokens per Decode
	Sequences     int
}

// Headed is an optional interface of an Engine whose file may have a head: a layer that guesses the token behind the
// next one, from the state of a row and the next token (multi-token prediction, MTP).
type Headed interface {
	// OpenHead opens the head as an engine with sequences and cells for guesses. The caller closes it before the model.
	// The error says why there is none to open; nil and nil: the file has none.
	OpenHead(o HeadOptions) (Head, error)
	// KeepStates has the rows of later Decodes keep their states, or not. It is off at first.
	KeepStates(on bool)
	// State returns a view of the state of batch row i, valid until the next Decode; nil where it was not kept. It
	// allocates nothing.
	State(i int) []float32
}

// Head is the head of a model as an engine. It shares the model's weights and its vocabulary. Each row of a batch has
// beside its token the state of the row before: of the model, or of the head where it has guessed the token itself. Its
// sequences may begin at any position.
type Head interface {
	Engine
	// Follow sets the state that row i of the filled batch follows. It copies it, and allocates nothing.
	Follow(i int, state []float32)
	// State returns a view of the state of row i, which has logits: the row of the token that they guess follows it. It
	// is valid until the next Decode, and allocates nothing.
	State(i int) []float32
	// StateWidth is the length of a state.
	StateWidth() int
}
