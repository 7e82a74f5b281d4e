package api

import (
	"context"
	"fmt"
	"io"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// Vectors are the embeddings of a request.
type Vectors struct {
	// Of has for each input one vector, or with pooling "none" one for each of its tokens.
	Of     [][][]float32
	Tokens int // of all inputs
}

// CanEmbed returns why the loaded model makes no embeddings, or with oneEach no single one of a text; nil if it does.
// While the model loads it returns nil: the request waits for it.
func (s *Server) CanEmbed(oneEach bool) *Error {
	facts := s.Facts()
	if facts == nil {
		return nil
	}
	e := facts.Model.Embeddings
	switch {
	case e == nil:
		return &Error{Code: wire.NotSupported, Message: "no embeddings: " + facts.Model.NoEmbeddings}
	case oneEach && e.Pooling == runtime.PoolNone:
		return onePooled()
	}
	return nil
}

// onePooled returns the error of an API that has room for one embedding of a text, where the model has one for each
// token.
func onePooled() *Error {
	return Refuse(`pooling is "none": there is an embedding for each token and none of a text; ask POST /embedding, ` +
		`or start uma-serve with another --pooling`)
}

// Embeddings asks for embeddings and waits for all of them. The error is an *Error.
func (s *Server) Embeddings(ctx context.Context, e *wire.Embed) (*Vectors, error) {
	e.Base64 = true // shorter, and exact
	in, err := s.Embed(ctx, e)
	if err != nil {
		return nil, AsError(err)
	}
	defer in.Close()
	v := &Vectors{Of: make([][][]float32, len(e.Inputs))}
	for ev := in.Next(); ev != nil; ev = in.Next() {
		switch ev.Kind {
		case wire.EventError:
			e := Error(ev.Error)
			return nil, &e
		case wire.EventEmbedding:
			if err := v.add(&ev.Embedding); err != nil {
				return nil, err
			}
		case wire.EventEOS:
			v.Tokens = ev.EOS.Usage.PromptTokens
			if e := Cancelled(&ev.EOS); e != nil {
				return nil, e
			}
			return v, nil
		}
	}
	return nil, &Error{Code: wire.ShuttingDown, Message: "the server ended the request: " + io.ErrUnexpectedEOF.Error()}
}

func (v *Vectors) add(e *wire.Embedding) error {
	if e.Index < 0 || e.Index >= len(v.Of) || e.Row > len(v.Of[e.Index]) {
		return &Error{Code: wire.InternalFailure, Message: fmt.Sprintf("an embedding came for input[%d], row %d",
			e.Index, e.Row)}
	}
	rows := &v.Of[e.Index]
	if *rows == nil && e.Row >= 0 {
		*rows = make([][]float32, 0, e.Tokens)
	}
	*rows = append(*rows, append([]float32(nil), e.Values...))
	return nil
}

// One returns the only vector of input i, or an *Error.
func (v *Vectors) One(i int) ([]float32, error) {
	if len(v.Of[i]) != 1 {
		return nil, onePooled()
	}
	return v.Of[i][0], nil
}

// EmbedInputs returns inputs for a request: texts stay texts, mixed ones become tokens.
func (s *Server) EmbedInputs(ctx context.Context, list []Input, markers bool) (out []wire.EmbedInput, err error) {
	if len(list) > wire.MaxEmbedInputs {
		return nil, Refusef(`field "input" has %d texts; it must have at most %d`, len(list), wire.MaxEmbedInputs)
	}
	for i := range list {
		in := wire.EmbedInput{Text: list[i].Text}
		if !list[i].IsText() {
			if in.Tokens, err = list[i].Tokens(ctx, s, true, markers); err != nil {
				return nil, err
			}
			if len(in.Tokens) == 0 {
				return nil, Refusef("input[%d] has no tokens", i)
			}
		}
		out = append(out, in)
	}
	return out, nil
}

// EmbedOptions are the fields of OpenAI's and llama-server's bodies beside the input.
type EmbedOptions struct {
	Format     string `json:"encoding_format"`
	Dimensions *int   `json:"dimensions"`
	Truncate   bool   `json:"truncate"`
	Normalize  *int   `json:"embd_normalize"`
	Priority   string `json:"priority"`
}

// Embed returns the request of these options, without inputs.
func (o *EmbedOptions) Embed() (*wire.Embed, error) {
	e := wire.DefaultEmbed()
	if o.Format != "" && o.Format != "float" && o.Format != "base64" {
		return nil, Refusef(`field "encoding_format" is %.40q; it must be "float" or "base64"`, o.Format)
	}
	if o.Dimensions != nil {
		if e.Dimensions = *o.Dimensions; e.Dimensions < 1 || e.Dimensions > wire.MaxDimensions {
			return nil, Refusef(`field "dimensions" is %d; it must be 1…%d`, e.Dimensions, wire.MaxDimensions)
		}
	}
	if o.Normalize != nil {
		if e.Normalize = *o.Normalize; e.Normalize < wire.NormalizeNone || e.Normalize > wire.MaxNormalize {
			return nil, Refusef(`field "embd_normalize" is %d; it must be %d…%d`, e.Normalize, wire.NormalizeNone,
				wire.MaxNormalize)
		}
	}
	switch o.Priority {
	case "", "interactive":
	case "background":
		e.Priority = wire.PriorityBackground
	default:
		return nil, Refusef(`field "priority" is %.40q; it must be "interactive" or "background"`, o.Priority)
	}
	e.Truncate = o.Truncate
	return &e, nil
}
