package prepare

import (
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/pooling"
	"github.com/uma-serve/uma-serve/sched"
)

// Embeddings: the model's capabilities, and the tokenization of a request.

// Embedder describes the embeddings and the ranking of the loaded model. It does not change after New.
type Embedder struct {
	pooling runtime.Pooling
	assumed bool             // neither the file nor --pooling says so
	refusal string           // reason why it makes no embeddings; "" = it does
	longest int              // tokens of a text
	width   int              // values of an embedding
	sizes   []int            // smaller sizes that the model was trained for
	any     bool             // it was trained for all smaller sizes
	end     []runtime.Token  // tokens that the tokenizer appends to a text
	rank    *runtime.Ranking // nil: it ranks nothing, for the reason in noRank
	noRank  string
}

// newEmbedder combines the properties of the engine and of the model's file with the options. The error names an
// option.
func newEmbedder(cfg *config.Config, eng runtime.Engine) (*Embedder, error) {
	info, caps, v := eng.Model(), eng.Capabilities(), eng.Vocab()
	e := &Embedder{pooling: info.Pooling, longest: caps.ContextTokens, width: info.Embedding}
	if cfg.Pooling != "" {
		e.pooling = runtime.Pooling(cfg.Pooling)
	}
	if e.assumed = e.pooling == ""; e.assumed {
		e.pooling = runtime.PoolMean
	}
	_, can := eng.(runtime.Embedder)
	switch {
	case !can || caps.MaxEmbeddingRows == 0:
		e.refusal = "this engine returns no hidden states"
	case e.pooling == runtime.PoolRank:
		e.refusal = "this model ranks pairs of texts (POST /rerank) and makes no embeddings"
	}
	e.readRanking(eng)
	if !info.Encoder {
		e.longest-- // the scheduler keeps a cell for the next token of every request
	}
	var err error
	if e.sizes, e.any, err = cfg.ShorterEmbeddings(); err != nil {
		return nil, err
	}
	if n := slices.Max(append(e.sizes, 0)); n > e.width {
		return nil, fmt.Errorf("--embedding-sizes has %d; this model's embeddings have %d values", n, e.width)
	}
	// The tokens of a text with and without the special tokens that begin and end a sequence.
	with, err1 := v.Tokenize(nil, "a", true, false)
	bare, err2 := v.Tokenize(nil, "a", false, false)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for i := 0; len(bare) > 0 && i+len(bare) <= len(with); i++ {
		if slices.Equal(with[i:i+len(bare)], bare) {
			e.end = slices.Clone(with[i+len(bare):])
			break
		}
	}
	return e, nil
}

// check returns the error with which w is refused, nil if it can be served.
func (e *Embedder) check(w *wire.Embed) *wire.Error {
	bad := func(format string, args ...any) *wire.Error {
		return wire.Errorf(wire.BadRequest, format, args...)
	}
	switch d := w.Dimensions; {
	case w.Query != nil && e.rank == nil:
		return &wire.Error{Code: wire.NotSupported, Message: "no ranking: " + e.noRank}
	case w.Query != nil:
		return nil
	case e.refusal != "":
		return &wire.Error{Code: wire.NotSupported, Message: "no embeddings: " + e.refusal}
	case d > e.width:
		return bad(`field "dimensions" is %d; this model's embeddings have %d values`, d, e.width)
	case d == 0 || d == e.width || w.AnyDimension || e.any || slices.Contains(e.sizes, d):
		return nil
	case len(e.sizes) == 0:
		return bad(`field "dimensions" is %d; this model is not known to have shorter embeddings than %d values `+
			`(--embedding-sizes)`, d, e.width)
	default:
		return bad(`field "dimensions" is %d; this model's embeddings have %d values, or one of %v (--embedding-sizes)`,
			d, e.width, e.sizes)
	}
}

// values returns the number of values in each result for w: 1 for a score, else the size of an embedding.
func (e *Embedder) values(w *wire.Embed) int {
	if w.Query != nil {
		return 1
	}
	if w.Dimensions > 0 {
		return w.Dimensions
	}
	return e.width
}

// Input is one text of a request for embeddings.
type Input struct {
	Tokens []runtime.Token
	Cut    bool // Tokens were cut to the longest text
}

// textPart is the length of the parts in which long texts are tokenized, in bytes: a part takes 8 ms or so.
const textPart = 32 << 10

// errGivenUp: a request was cancelled while its texts were tokenized.
var errGivenUp = errors.New("cancelled")

// cancelledEarly returns the error of a request that was cancelled while its texts were tokenized; the client gets its
// eos.
func cancelledEarly() *wire.Error {
	return &wire.Error{Code: wire.BadRequest, Message: "the request was cancelled"}
}

// pacer returns a function that counts tokenized bytes and calls between after each textPart of them.
func pacer(between func() (goOn bool)) func(bytes int) (goOn bool) {
	done := 0
	return func(bytes int) bool {
		const each = 64 // of a text, whatever its length
		if done += bytes + each; done < textPart {
			return true
		}
		done = 0
		return between()
	}
}

// textTokens tokenizes a text to embed, in parts where the vocabulary says where they may end.
func (m *Model) textTokens(text string, special bool, pace func(bytes int) (goOn bool)) (
	tokens []runtime.Token, err error,
) {
	cutter, _ := m.Vocab.(runtime.TextCutter)
	end := m.Embedder.end
	for first := true; ; first = false {
		n := len(text)
		if cutter != nil && n > textPart {
			n = cutter.Cut(text, textPart, special)
		}
		if tokens, err = m.Vocab.Tokenize(tokens, text[:n], first, special); err != nil {
			return nil, err
		}
		last := n == len(text)
		if at := len(tokens) - len(end); first && !last && at >= 0 && slices.Equal(tokens[at:], end) {
			tokens = tokens[:at] // the tokens that end a sequence follow the last part
		} else if first {
			end = nil
		}
		if !pace(n) {
			return nil, errGivenUp
		}
		if last {
			return append(tokens, end...), nil
		}
		text = text[n:]
	}
}

// readTexts tokenizes the inputs, in parts. It calls between after each part, and ends without a result when between
// returns false.
func (m *Model) readTexts(w *wire.Embed, between func() (goOn bool)) (texts []Input, bad *wire.Error) {
	refuse := func(format string, args ...any) ([]Input, *wire.Error) {
		return nil, wire.Errorf(wire.BadRequest, format, args...)
	}
	if w.Query != nil {
		return m.readPairs(w, between)
	}
	e := m.Embedder
	total := 0
	pace := pacer(between)
	for i := range w.Inputs {
		in := &w.Inputs[i]
		tokens, err := in.Tokens, error(nil)
		if tokens == nil {
			tokens, err = m.textTokens(in.Text, w.ParseSpecial, pace)
		} else {
			err = m.known(tokens)
		}
		t := Input{Tokens: tokens}
		switch n := len(tokens); {
		case errors.Is(err, errGivenUp):
			return nil, cancelledEarly()
		case err != nil:
			return refuse("input[%d]: %v", i, err)
		case n == 0:
			return refuse("input[%d] is empty", i)
		case n > e.longest && !w.Truncate:
			return nil, &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: e.longest, Message: fmt.Sprintf(
				"input[%d] is too large: it has %d tokens (n_prompt), and this model embeds at most %d (n_ctx); "+
					"shorten it, or send \"truncate\": true", i, n, e.longest)}
		case n > e.longest:
			end := e.end
			if in.Tokens != nil || len(end) >= e.longest || !slices.Equal(tokens[n-len(end):], end) {
				end = nil
			}
			t = Input{append(slices.Clone(tokens[:e.longest-len(end)]), end...), true}
		}
		texts = append(texts, t)
		total += len(t.Tokens)
	}
	n := len(texts)
	if e.pooling == runtime.PoolNone {
		n = total
	}
	if values := n * e.values(w); values > wire.MaxEmbedValues {
		return refuse("field \"input\" asks for %d embeddings of %d values; an answer has at most %d values: send "+
			"fewer texts", n, e.values(w), wire.MaxEmbedValues)
	}
	return texts, nil
}

// Texts prepares w: it fills out, which NewPrepared has made, and returns the texts. It calls between after each
// part of a text, and gives up when between returns false.
func (m *Model) Texts(out *Prepared, w *wire.Embed, between func() (goOn bool)) (texts []Input, bad *wire.Error) {
	if bad = m.Embedder.check(w); bad != nil {
		return nil, bad
	}
	if texts, bad = m.readTexts(w, between); bad != nil {
		return nil, bad
	}
	if w.Query != nil {
		w.Normalize = wire.NormalizeNone
	}
	if w.Priority == wire.PriorityBackground {
		out.Class = sched.Background
	}
	for i := range texts {
		out.Prompt += len(texts[i].Tokens)
	}
	var err error
	if out.Phases, err = meridian.NewControl(m.think, nil, meridian.Options{}, meridian.Begin{}); err != nil {
		return nil, &wire.Error{Code: wire.InternalFailure, Message: err.Error()}
	}
	return texts, nil
}

// Pooler makes the Pooler of a text of w; nil where each row is sent as it is.
func (e *Embedder) Pooler(w *wire.Embed) *pooling.Pooler {
	if w.Query != nil {
		return pooling.NewRank(e.rank, e.width)
	}
	if e.pooling == runtime.PoolNone {
		return nil
	}
	return pooling.New(e.pooling, e.width)
}

// EveryRow reports whether all rows of a text of w are needed; otherwise the last one is enough.
func (e *Embedder) EveryRow(w *wire.Embed) bool {
	if w.Query != nil {
		return !e.rank.Last
	}
	return pooling.EveryRow(e.pooling)
}
