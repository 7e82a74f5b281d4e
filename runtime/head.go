package runtime

// HeadOptions are the options of a head's memory, and its file.
type HeadOptions struct {
	ContextTokens int // cells of all its sequences
	Batch         int // tokens per Decode
	Sequences     int
	// File says which file has the head and how it is loaded; its cells are those above. nil: a layer of the model's
	// file.
	File *Options
}

// Headed is an optional interface of an Engine that may have a head: layers that guess the token behind the next one,
// or several, from the states of rows and the next token. It is a layer of the model's file (multi-token prediction,
// MTP) or has a separate one (EAGLE-3, DFlash, Gemma 4's assistant).
type Headed interface {
	// OpenHead opens the head as an engine with sequences and cells for guesses. The caller closes it before the model.
	// The error says why there is none to open; nil and nil: the model's file has none. With a File it is called before
	// the engine has decoded anything, and once.
	OpenHead(o HeadOptions) (Head, error)
	// KeepStates has the rows of later Decodes keep their states, or not. It is off at first.
	KeepStates(on bool)
	// State returns a view of the state of batch row i, valid until the next State or Decode; nil where it was not
	// kept. What a state is depends on the open head. It allocates nothing.
	State(i int) []float32
}

// Head is the head of a model as an engine. It has the model's vocabulary, in the first tokens that both have. Each row
// of a batch has beside its token the state of the row before: of the model, or of the head where it has guessed the
// token itself. Its sequences may begin at any position.
type Head interface {
	Engine
	// Block is the number of tokens that the head guesses behind the newest one of a history in one Decode. Most guess
	// one: that of its row's logits. Where it is more, the history's rows have no logits, and Block rows follow them at
	// the next positions that have: the k-th is the k-th guess. For these rows Follow is not called and their token is
	// not read; there are all of them, behind at least one row of their sequence in the same batch. They are to be
	// removed, with SeqRemove, before the next Decode of their sequence.
	Block() int
	// Shared reports that the head has no cells and reads the model's. Its rows are in sequences of the model, at the
	// position behind the newest one there, those behind its own guesses too, and leave nothing. A Decode for which the
	// model's memory has no free cell returns ErrKVFull. Its options' ContextTokens and Sequences are the model's.
	Shared() bool
	// Follow sets the state that row i of the filled batch follows: one of Headed.State or one of State. It copies it,
	// and allocates nothing.
	Follow(i int, state []float32)
	// State returns a view of the head's state of row i, which has logits: the row of the token that they guess follows
	// it. It is valid until the next Decode, and allocates nothing.
	State(i int) []float32
	// StateWidth is the length of a state of the model's rows. The head's own may have another one.
	StateWidth() int
}
