package runtime

// Ranking is a model's input format for a pair of query and document, with the classifier that computes its score.
type Ranking struct {
	// Template is the pair as text with "{query}" and "{document}" in it; its markers are single tokens. "" where the
	// pair is the tokens Begin, query, Between, document and End.
	Template            string
	Begin, Between, End []Token
	Last                bool // the score is made of the hidden state of the pair's last row; otherwise of the first
	Classifier          Classifier
}

// Classifier is the head that makes scores of a hidden state h of ModelInfo.Embedding values: it has the labels
// Out·tanh(Dense·h + DenseBias) + OutBias, of which the first is the score. This is RoBERTa's classification head, as
// llama.cpp's build_pooling computes it. Matrices are in rows. An empty Dense is left out with its tanh, an empty Out
// or bias too.
type Classifier struct {
	Dense, DenseBias []float32
	Out, OutBias     []float32
	Softmax          bool // the labels are probabilities
}

// Ranker is an optional interface of an Engine whose Embedder gives the hidden states that scores are made of.
type Ranker interface {
	// Ranking returns how the model ranks documents, or why it does not. It is the same until the engine is closed.
	Ranking() (*Ranking, error)
}
