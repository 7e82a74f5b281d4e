package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// Limits of an embed request.
const (
	MaxEmbedInputs = 2048 // texts; OpenAI's limit
	MaxNormalize   = 64   // "normalize": the p of a p-norm
	// MaxEmbedValues bounds the numbers of an answer, all embeddings together: 64 MiB as float32.
	MaxEmbedValues = 1 << 24
	// MaxDimensions bounds "dimensions" while a request is parsed; the effective limit is the model's width.
	MaxDimensions = 1 << 20
)

// How an embedding is normalised, as in llama-server's embd_normalize. Larger numbers are the p of a p-norm.
const (
	NormalizeNone = -1
	NormalizeMax  = 0 // to the range of int16: the largest magnitude becomes 32760
	NormalizeSum  = 1 // the sum of magnitudes becomes 1
	NormalizeL2   = 2 // the length becomes 1
)

// Embed asks for the embeddings of texts: {"event":"embed","id":…,"input":…}. It owns its memory.
type Embed struct {
	ID     string
	Model  string       // the name of the model that is asked; "" = the default one
	Inputs []EmbedInput // 1…MaxEmbedInputs
	// Query, if not nil: the inputs are documents, texts all of them, and instead of its embedding each gets one value,
	// its score as an answer to Query. Only models that rank do that.
	Query        *string
	Base64       bool // embeddings come as base64 of little-endian float32 instead of numbers
	Dimensions   int  // the first so many values of each; 0 = all
	AnyDimension bool // Dimensions need not be one that the model was trained for
	Normalize    int  // NormalizeNone … MaxNormalize
	Truncate     bool // a text that is too long is cut at its end; otherwise it is refused
	ParseSpecial bool // markers in texts are single tokens; otherwise they are text like any other
	Priority     Priority
	Metadata     []byte // the JSON value of "metadata", echoed as it came; nil = none
}

// EmbedInput is a text, or its tokens.
type EmbedInput struct {
	Text   string
	Tokens []int32 // nil = Text; used as they are, no special tokens are added
}

// DefaultEmbed returns an embed request with the defaults of all fields except id and input.
func DefaultEmbed() Embed { return Embed{Normalize: NormalizeL2} }

// Embedding is an embedding event: of a whole input, or with pooling "none" of one of its tokens.
type Embedding struct {
	ID        string
	Index     int // of the input
	Row       int // of the token in its input, from 0; -1 = the embedding is of the whole input
	Values    []float32
	Tokens    int  // of the input, those at its beginning and end included
	Truncated bool // the input was cut to Tokens
	Base64    bool // Values are written as base64, not as numbers; not set in an event that was read
}

const inputMust = "a string, an array of token ids, or an array of strings and such arrays"

// embedField reads a field of an embed request.
func (d *decoder) embedField(key string, v *fastjson.Value) (err error) {
	e := &d.embed
	switch key {
	case "input":
		err = d.inputs(key, v)
	case "query":
		var s string
		s, err = d.str(key, v)
		e.Query = &s
	case "encoding_format":
		var i int
		i, err = d.word(key, v, []string{"float", "base64"})
		e.Base64 = i == 1
	case "dimensions":
		e.Dimensions, err = d.count(key, v, 1, MaxDimensions)
	case "any_dimension":
		err = d.boolean(key, v, &e.AnyDimension)
	case "normalize":
		e.Normalize, err = d.count(key, v, NormalizeNone, MaxNormalize)
	case "truncate":
		err = d.boolean(key, v, &e.Truncate)
	case "parse_special":
		err = d.boolean(key, v, &e.ParseSpecial)
	case "priority", "service_tier", "metadata":
		err = fields[fieldIndex[key].at].read(d, key, v)
	case "model":
		if v.Type() == fastjson.TypeString {
			e.Model, err = d.modelName(key, v)
		}
	case "user":
	default:
		return fmt.Errorf("field %s is not known in an embed request; docs/protocol.md lists those that are",
			quoted([]byte(key)))
	}
	if err == nil && slices.Contains(d.asked, key) {
		return fmt.Errorf("field %q is given twice", key)
	}
	d.asked = append(d.asked, key)
	return err
}

// inputs reads the texts of an embed request.
func (d *decoder) inputs(name string, v *fastjson.Value) error {
	switch v.Type() {
	case fastjson.TypeString:
		return d.input(name, v)
	case fastjson.TypeArray:
	default:
		return wrongType(name, v, inputMust)
	}
	list, _ := v.Array()
	switch {
	case len(list) == 0:
		return fmt.Errorf("field %q is empty; it must be %s", name, inputMust)
	case list[0].Type() == fastjson.TypeNumber:
		return d.input(name, v)
	case len(list) > MaxEmbedInputs:
		return fmt.Errorf("field %q has %d texts; it must have at most %d", name, len(list), MaxEmbedInputs)
	}
	for i, e := range list {
		if err := d.input(entry(name, i), e); err != nil {
			return err
		}
	}
	return nil
}

// input reads one of them.
func (d *decoder) input(name string, v *fastjson.Value) (err error) {
	var in EmbedInput
	switch v.Type() {
	case fastjson.TypeString:
		in.Text, err = d.str(name, v)
	case fastjson.TypeArray:
		if in.Tokens, err = d.tokens(name, v, jsontext.MaxValues); err == nil && len(in.Tokens) == 0 {
			err = fmt.Errorf("field %q is empty", name)
		}
	default:
		return wrongType(name, v, "a string or an array of token ids")
	}
	d.embed.Inputs = append(d.embed.Inputs, in)
	return err
}

// finishEmbed checks the constraints between the fields of an embed request.
func (d *decoder) finishEmbed() error {
	e := &d.embed
	switch {
	case e.Inputs == nil:
		return fmt.Errorf("field %q is missing; it must be %s", "input", inputMust)
	}
	if long := e.tooLong(d.p.MaxPromptBytes); long != "" {
		d.code = PromptTooLarge
		return errors.New(long)
	}
	if e.Query != nil {
		if err := d.finishRank(); err != nil {
			return err
		}
	}
	e.ID, e.Priority, e.Metadata = d.req.ID, d.req.Priority, d.req.Metadata
	if !d.priority && d.tier != 0 {
		e.Priority = d.tier - 1
	}
	return nil
}

// finishRank refuses the fields that a query excludes.
func (d *decoder) finishRank() error {
	e := &d.embed
	if i := slices.IndexFunc(e.Inputs, func(in EmbedInput) bool { return in.Tokens != nil }); i >= 0 {
		return fmt.Errorf("field %q: document %d is an array; with a query it must be a string", "input", i)
	}
	for _, name := range []string{"dimensions", "any_dimension", "normalize", "parse_special"} {
		if slices.Contains(d.asked, name) {
			return fmt.Errorf("fields %q and %q exclude each other: a score is one value, as the model computes it",
				"query", name)
		}
	}
	return nil
}

// AppendEmbedding appends an embedding event, with its values as numbers or as base64. The values must be finite.
func AppendEmbedding(dst []byte, e *Embedding, asBase64 bool) []byte {
	dst, start := BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"embedding","id":`, e.ID)
	dst = jsontext.AppendInt(dst, `,"index":`, e.Index)
	if e.Row >= 0 {
		dst = jsontext.AppendInt(dst, `,"row":`, e.Row)
	}
	dst = jsontext.AppendInt(dst, `,"tokens":`, e.Tokens)
	if e.Truncated {
		dst = append(dst, `,"truncated":true`...)
	}
	dst = append(dst, `,"embedding":`...)
	if asBase64 {
		dst = append(AppendBase64(append(dst, '"'), e.Values), '"')
	} else {
		dst = append(dst, '[')
		for i, v := range e.Values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = jsontext.AppendFloat32(dst, v)
		}
		dst = append(dst, ']')
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendBase64 appends the base64 of values as little-endian float32, as OpenAI's API has embeddings.
func AppendBase64(dst []byte, values []float32) []byte {
	var raw [3 * 4 * 64]byte // whole groups of three bytes: no padding within
	for len(values) > 0 {
		n := min(len(values), len(raw)/4)
		for i, v := range values[:n] {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
		dst = base64.StdEncoding.AppendEncode(dst, raw[:4*n])
		values = values[n:]
	}
	return dst
}
