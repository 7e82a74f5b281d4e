package masks

import (
	"container/heap"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of SentencePiece's pieces (sentencepiece_model.proto, SentencePiece.Type).
const (
	spmNormal      = 1
	spmUserDefined = 4
	spmByte        = 6
)

// spmSpace stands for a space in SentencePiece's pieces.
const spmSpace = "▁"

type spm struct {
	ids    map[string]int32
	scores []float32
	bytes  [256]int32 // tokens of single bytes
}

// SentencePiece reads the vocabulary of dir's tokenizer.model, a SentencePiece model of the type BPE without a dummy
// prefix, such as Gemma 2's.
func SentencePiece(dir string) (*Tokenizer, error) {
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.model"))
	if err != nil {
		return nil, err
	}
	s := &spm{ids: map[string]int32{}}
	t := &Tokenizer{Encode: s.encode}
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, fmt.Errorf("tokenizer.model: %w", protowire.ParseError(n))
		}
		data = data[n:]
		if field != 1 || kind != protowire.BytesType { // pieces are field 1 of ModelProto
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return nil, fmt.Errorf("tokenizer.model: %w", protowire.ParseError(n))
			}
			data = data[n:]
			continue
		}
		piece, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return nil, fmt.Errorf("tokenizer.model: %w", protowire.ParseError(n))
		}
		data = data[n:]
		if err := s.add(t, piece); err != nil {
			return nil, fmt.Errorf("tokenizer.model: piece %d: %w", len(t.Pieces), err)
		}
	}
	if len(t.Pieces) == 0 {
		return nil, fmt.Errorf("tokenizer.model: no pieces")
	}
	return t, nil
}

// add reads one piece: its text, score and type are fields 1, 2 and 3.
func (s *spm) add(t *Tokenizer, msg []byte) error {
	text, score, kind := "", float32(0), uint64(spmNormal)
	for len(msg) > 0 {
		field, wire, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		switch {
		case field == 1 && wire == protowire.BytesType:
			var v []byte
			v, n = protowire.ConsumeBytes(msg)
			text = string(v)
		case field == 2 && wire == protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(msg)
			score = math.Float32frombits(v)
		case field == 3 && wire == protowire.VarintType:
			kind, n = protowire.ConsumeVarint(msg)
		default:
			n = protowire.ConsumeFieldValue(field, wire, msg)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
	}
	id := int32(len(t.Pieces))
	var piece []byte
	switch kind {
	case spmNormal, spmUserDefined:
		piece = []byte(strings.ReplaceAll(text, spmSpace, " "))
		s.ids[text] = id
	case spmByte:
		var b byte
		if _, err := fmt.Sscanf(text, "<0x%02X>", &b); err != nil {
			return fmt.Errorf("%q is no byte", text)
		}
		piece = []byte{b}
		s.bytes[b] = id
	default: // control, unknown, unused
		if text == "<eos>" || text == "</s>" {
			t.Ends = append(t.Ends, id)
		}
	}
	t.Pieces, s.scores = append(t.Pieces, piece), append(s.scores, score)
	return nil
}

// symbol is a part of a text, in a list of the parts that are left.
type symbol struct {
	text       string // "" once it was merged into the one before it
	prev, next int
}

// merge is a pair of symbols that make a piece.
type merge struct {
	left, right int
	text        string
	score       float32
}

// merges is a heap: the best score first, of equal ones the leftmost.
type merges []merge

func (m merges) Len() int      { return len(m) }
func (m merges) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m merges) Less(i, j int) bool {
	return m[i].score > m[j].score || m[i].score == m[j].score && m[i].left < m[j].left
}
func (m *merges) Push(x any) { *m = append(*m, x.(merge)) }
func (m *merges) Pop() any {
	old := *m
	x := old[len(old)-1]
	*m = old[:len(old)-1]
	return x
}

// encode merges the characters of text into pieces, the pair with the best score first.
func (s *spm) encode(text string) []int32 {
	text = strings.ReplaceAll(text, " ", spmSpace)
	var parts []symbol
	for text != "" {
		_, n := utf8.DecodeRuneInString(text)
		parts = append(parts, symbol{text[:n], len(parts) - 1, len(parts) + 1})
		text = text[n:]
	}
	var queue merges
	try := func(left, right int) {
		if left < 0 || right >= len(parts) {
			return
		}
		joined := parts[left].text + parts[right].text
		if id, ok := s.ids[joined]; ok {
			heap.Push(&queue, merge{left, right, joined, s.scores[id]})
		}
	}
	for i := range parts {
		try(i, i+1)
	}
	for queue.Len() > 0 {
		m := heap.Pop(&queue).(merge)
		l, r := &parts[m.left], &parts[m.right]
		if l.text == "" || r.text == "" || l.text+r.text != m.text {
			continue // one of them was merged since
		}
		l.text, r.text, l.next = m.text, "", r.next
		if r.next < len(parts) {
			parts[r.next].prev = m.left
		}
		try(l.prev, m.left)
		try(m.left, l.next)
	}
	var out []int32
	for i := range parts {
		if parts[i].text == "" {
			continue
		}
		if id, ok := s.ids[parts[i].text]; ok {
			out = append(out, id)
			continue
		}
		for _, b := range []byte(strings.ReplaceAll(parts[i].text, spmSpace, " ")) {
			out = append(out, s.bytes[b])
		}
	}
	return out
}
