package mrdn

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/blake3"
)

// ErrPrologue: the body is not uma-serve's, or its prologue is invalid.
var ErrPrologue = errors.New("mrdn: bad prologue")

// ErrForeign: the body is valid but of another model, engine, cell type, namespace or span of tokens.
var ErrForeign = errors.New("mrdn: made for something else")

// Encoding is the encoding of the KV bytes after a prologue.
type Encoding uint8

const (
	Raw  Encoding = iota // as the engine wrote them
	Zstd                 // one zstd frame that unpacks to Prologue.KVBytes
	encodings
)

// String returns the encoding's name.
func (e Encoding) String() string {
	if e >= encodings {
		return fmt.Sprintf("encoding(%d)", uint8(e))
	}
	return [...]string{"raw", "zstd"}[e]
}

// Kind is the type of content of a body: cells, or a seal.
type Kind uint8

const (
	KindCells Kind = iota // the cells of the positions [First, End)
	KindSeal              // a whole sequence of End tokens: the states of its recurrent layers, and its cells
	kinds
)

// String returns the kind's name.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return [...]string{"cells", "seal"}[k]
}

// Prologue describes the KV bytes of a body. On the wire, little-endian:
//
//	offset  size  field
//	0       4     magic, "UKV1"
//	4       2     bytes from offset 0 to the first KV byte
//	6       1     encoding: 0 raw, 1 zstd
//	7       1     kind: 0 cells, 1 a seal
//	8       4     first position
//	12      4     end position (exclusive)
//	16      8     KV bytes before encoding
//	24      32    fingerprint of the model
//	56      32    hash of the tokens 0 … end
//	88      4×1   lengths of the four texts
//	92      …     engine build, type of K, type of V, namespace: printable ASCII
//
// The encoding is unique: parsing a prologue and appending it gives the same bytes.
type Prologue struct {
	Model  [32]byte // fingerprint of the weights and of all settings that change KV values
	Tokens [32]byte // HashTokens of all tokens from position 0 to End: a cell depends on every token before it

	Kind Kind
	// First and End are the positions [First, End) that the KV bytes hold. Invariant: 0 <= First < End, and First is 0
	// for a seal.
	First, End int32

	EngineBuild  string // the llama.cpp build that wrote the bytes, which determines their format
	TypeK, TypeV string // cell types by llama.cpp's names: "f16", "q8_0", …
	Namespace    string // the owner, set by the server: a user, or a shared namespace

	Encoding Encoding
	KVBytes  int64 // length before encoding; with Raw the number of bytes that follow
}

const (
	prologueMagic = "UKV1"
	prologueFixed = 92
	maxText       = 255
)

// texts returns the variable fields in their order on the wire.
func (p *Prologue) texts() [4]struct {
	name  string
	value *string
} {
	return [4]struct {
		name  string
		value *string
	}{{"engine build", &p.EngineBuild}, {"type of K", &p.TypeK}, {"type of V", &p.TypeV}, {"namespace", &p.Namespace}}
}

// check validates a prologue, for writer and reader.
func (p *Prologue) check() error {
	if p.First < 0 || p.End <= p.First {
		return fmt.Errorf("%w: positions %d to %d, want 0 <= first < end", ErrPrologue, p.First, p.End)
	}
	if p.Kind >= kinds {
		return fmt.Errorf("%w: kind %d, known are 0 to %d", ErrPrologue, p.Kind, kinds-1)
	}
	if p.Kind == KindSeal && p.First != 0 {
		return fmt.Errorf("%w: a seal from position %d on, want 0", ErrPrologue, p.First)
	}
	if p.Encoding >= encodings {
		return fmt.Errorf("%w: encoding %d, known are 0 to %d", ErrPrologue, p.Encoding, encodings-1)
	}
	if p.KVBytes < 0 {
		return fmt.Errorf("%w: %d KV bytes", ErrPrologue, p.KVBytes)
	}
	for _, t := range p.texts() {
		if n := len(*t.value); n == 0 || n > maxText {
			return fmt.Errorf("%w: %s is %d bytes long, want 1 to %d", ErrPrologue, t.name, n, maxText)
		}
		for _, c := range []byte(*t.value) {
			if c < 0x20 || c > 0x7e {
				return fmt.Errorf("%w: %s %q holds more than printable ASCII", ErrPrologue, t.name, *t.value)
			}
		}
	}
	return nil
}

// Append appends the prologue's bytes to dst.
func (p *Prologue) Append(dst []byte) ([]byte, error) {
	if err := p.check(); err != nil {
		return dst, err
	}
	return p.append(dst), nil
}

func (p *Prologue) append(dst []byte) []byte {
	texts := p.texts()
	n := prologueFixed
	for _, t := range texts {
		n += len(*t.value)
	}
	dst = append(dst, prologueMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	dst = append(dst, byte(p.Encoding), byte(p.Kind))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.First))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(p.End))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.KVBytes))
	dst = append(dst, p.Model[:]...)
	dst = append(dst, p.Tokens[:]...)
	for _, t := range texts {
		dst = append(dst, byte(len(*t.value)))
	}
	for _, t := range texts {
		dst = append(dst, *t.value...)
	}
	return dst
}

// ParsePrologue returns a body's prologue and its KV bytes, a subslice of body.
func ParsePrologue(body []byte) (p Prologue, kv []byte, err error) {
	bad := func(format string, a ...any) (Prologue, []byte, error) {
		return Prologue{}, nil, fmt.Errorf("%w: "+format, append([]any{ErrPrologue}, a...)...)
	}
	if len(body) < prologueFixed {
		return bad("the body is %d bytes long, a prologue takes at least %d", len(body), prologueFixed)
	}
	if string(body[:4]) != prologueMagic {
		return bad("it begins with % x, want %q", body[:4], prologueMagic)
	}
	first, end := binary.LittleEndian.Uint32(body[8:]), binary.LittleEndian.Uint32(body[12:])
	kvBytes := binary.LittleEndian.Uint64(body[16:])
	if first > math.MaxInt32 || end > math.MaxInt32 || kvBytes > math.MaxInt64 {
		return bad("positions %d to %d, %d KV bytes: out of range", first, end, kvBytes)
	}
	p.Encoding, p.Kind, p.KVBytes = Encoding(body[6]), Kind(body[7]), int64(kvBytes)
	p.First, p.End = int32(first), int32(end)
	copy(p.Model[:], body[24:])
	copy(p.Tokens[:], body[56:])
	at := prologueFixed
	for i, t := range p.texts() {
		n := int(body[88+i])
		if n > len(body)-at {
			return bad("%s is %d bytes long, %d are left", t.name, n, len(body)-at)
		}
		*t.value = string(body[at : at+n])
		at += n
	}
	if n := int(binary.LittleEndian.Uint16(body[4:])); n != at {
		return bad("it declares a length of %d bytes, its fields take %d", n, at)
	}
	if err := p.check(); err != nil {
		return Prologue{}, nil, err
	}
	kv = body[at:]
	if p.Encoding == Raw && p.KVBytes != int64(len(kv)) {
		return bad("it declares %d KV bytes, %d follow", p.KVBytes, len(kv))
	}
	return p, kv, nil
}

// Matches returns nil when a body with prologue p may be restored where want is needed, else an [ErrForeign] that names
// the first field that differs. It ignores Encoding and KVBytes, which concern the transport only.
func (p *Prologue) Matches(want *Prologue) error {
	differ := func(field string, got, want any) error {
		return fmt.Errorf("%w: %s is %v, want %v", ErrForeign, field, got, want)
	}
	mine, theirs := p.texts(), want.texts()
	// Check the namespace first: another user's body is the worst error.
	for _, i := range []int{3, 0, 1, 2} {
		if *mine[i].value != *theirs[i].value {
			return differ(mine[i].name, fmt.Sprintf("%q", *mine[i].value), fmt.Sprintf("%q", *theirs[i].value))
		}
	}
	switch {
	case p.Model != want.Model:
		return differ("model", hex.EncodeToString(p.Model[:8]), hex.EncodeToString(want.Model[:8]))
	case p.Kind != want.Kind:
		return differ("kind", p.Kind, want.Kind)
	case p.First != want.First || p.End != want.End:
		return differ("range of positions", [2]int32{p.First, p.End}, [2]int32{want.First, want.End})
	case p.Tokens != want.Tokens:
		return differ("token hash", hex.EncodeToString(p.Tokens[:8]), hex.EncodeToString(want.Tokens[:8]))
	}
	return nil
}

// Key returns the span's key in a fabric: 64 hexadecimal digits, equal exactly when [Prologue.Matches] returns nil.
// Machines with the same model find each other's spans by it; users never find other users' spans.
func (p *Prologue) Key() string {
	id := *p
	id.Encoding, id.KVBytes = 0, 0
	var room [prologueFixed + 128]byte
	sum := blake3.Sum256(id.append(room[:0]))
	return hex.EncodeToString(sum[:])
}

// HashTokens returns the BLAKE3-256 of token ids, four bytes each, little-endian. No collisions are known, so equal
// hashes mean equal tokens.
func HashTokens[T ~int32](tokens []T) (sum [32]byte) {
	var h TokenHasher[T]
	h.Add(tokens)
	return h.Sum()
}

// TokenHasher computes [HashTokens] of a growing list: the hashes of all prefixes cost as much as that of the longest.
// Its zero value has no tokens.
type TokenHasher[T ~int32] struct{ h *blake3.Hasher }

// Add appends tokens to the list.
func (t *TokenHasher[T]) Add(tokens []T) {
	if t.h == nil {
		t.h = blake3.New()
	}
	var buf [1024]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
		}
		t.h.Write(buf[:4*n])
		tokens = tokens[n:]
	}
}

// Sum returns the hash of the tokens so far.
func (t *TokenHasher[T]) Sum() (sum [32]byte) {
	t.Add(nil)
	t.h.Sum(sum[:0])
	return sum
}

// Begin appends room for a header, and p's bytes. Append the KV bytes to the result, then complete the frame with
// [Seal]. If dst was not empty, pass Seal the part from len(dst) on.
func Begin(dst []byte, p *Prologue) ([]byte, error) {
	if err := p.check(); err != nil {
		return dst, err
	}
	return p.append(append(dst, make([]byte, HeaderBytes)...)), nil
}

// Open checks a whole frame and its prologue and returns the KV bytes, which lie in frame. They are safe to give to the
// engine once p matches the wanted prologue.
func Open(frame []byte, maxBody int) (p Prologue, tier Tier, kv []byte, err error) {
	h, body, err := Parse(frame, maxBody)
	if err != nil {
		return p, 0, nil, err
	}
	p, kv, err = ParsePrologue(body)
	return p, h.Tier, kv, err
}
