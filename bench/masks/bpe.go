package masks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/runtime"
)

// Tokenizer is a vocabulary and the way texts are cut into its tokens.
type Tokenizer struct {
	Pieces [][]byte // bytes of each token by id; empty for control tokens
	Ends   []int32  // tokens that end a text
	Encode func(text string) []int32
}

// controlTokens is the number of control tokens that follow the vocabulary of Llama 3. Two of them end a text:
// endOfText and endOfTurn are their offsets from the first control token.
const (
	controlTokens = 256
	endOfText     = 1 // <|end_of_text|>
	endOfTurn     = 9
)

// Llama3 reads the byte-level BPE vocabulary of Llama 3 from dir: encoder.json has the ids of the pieces, vocab.bpe the
// merges, one a line, in their order.
func Llama3(dir string) (*Tokenizer, error) {
	data, err := os.ReadFile(filepath.Join(dir, "encoder.json"))
	if err != nil {
		return nil, err
	}
	var ids map[string]int32
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("encoder.json: %w", err)
	}
	f, err := os.Open(filepath.Join(dir, "vocab.bpe"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var merges []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			merges = append(merges, lines.Text())
		}
	}
	b, pieces := newBPE(merges), make([][]byte, len(ids)+controlTokens)
	for piece, id := range ids {
		if int(id) >= len(ids) || pieces[id] != nil {
			return nil, fmt.Errorf("encoder.json: the id %d of %q is not one of %d", id, piece, len(ids))
		}
		raw := b.raw(piece)
		pieces[id] = []byte(raw)
		b.ids[raw] = id
	}
	return &Tokenizer{Pieces: pieces, Ends: []int32{int32(len(ids)) + endOfText, int32(len(ids)) + endOfTurn},
		Encode: b.encode}, lines.Err()
}

// byteAlphabet returns the bytes by the printable characters as which byte-level BPE writes them: bytes that are
// printable in Latin-1 as themselves, the others as U+0100 and up in their order.
func byteAlphabet() map[rune]byte {
	out := map[rune]byte{}
	next := rune(256)
	for c := range 256 {
		if c >= '!' && c <= '~' || c >= 0xA1 && c <= 0xAC || c >= 0xAE {
			out[rune(c)] = byte(c)
		} else {
			out[next] = byte(c)
			next++
		}
	}
	return out
}

type bpe struct {
	ids      map[string]int32
	ranks    map[[2]string]int32
	words    map[string][]int32 // cache of encoded words
	alphabet map[rune]byte
}

// newBPE takes the merges, "LEFT RIGHT" each, in their order; the caller fills in the ids of the pieces.
func newBPE(merges []string) *bpe {
	b := &bpe{ids: map[string]int32{}, ranks: map[[2]string]int32{}, words: map[string][]int32{},
		alphabet: byteAlphabet()}
	for _, m := range merges {
		if l, r, ok := strings.Cut(m, " "); ok {
			b.ranks[[2]string{b.raw(l), b.raw(r)}] = int32(len(b.ranks))
		}
	}
	return b
}

// raw returns the bytes that a piece stands for.
func (b *bpe) raw(piece string) string {
	out := make([]byte, 0, len(piece))
	for _, r := range piece {
		out = append(out, b.alphabet[r])
	}
	return string(out)
}

func (b *bpe) encode(text string) []int32 {
	var out []int32
	for text != "" {
		n := wordLength(text)
		out = append(out, b.word(text[:n])...)
		text = text[n:]
	}
	return out
}

func (b *bpe) word(w string) []int32 {
	if id, ok := b.ids[w]; ok {
		return []int32{id}
	}
	if ids, ok := b.words[w]; ok {
		return ids
	}
	parts := make([]string, len(w))
	for i := range len(w) {
		parts[i] = w[i : i+1]
	}
	for {
		at, best := -1, int32(1<<31-1)
		for i := range len(parts) - 1 {
			if r, ok := b.ranks[[2]string{parts[i], parts[i+1]}]; ok && r < best {
				at, best = i, r
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = append(parts[:at+1], parts[at+2:]...)
	}
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i] = b.ids[p]
	}
	b.words[w] = ids
	return ids
}

// wordLength returns the length of the first word of text, as the pre-tokenizer of Llama 3 cuts it: contractions;
// letters with one leading character that is no letter, digit or line end; up to three digits; other characters with a
// leading space and trailing line ends; line ends with leading white space; white space without the last one before a
// word.
func wordLength(text string) int {
	first, n := utf8.DecodeRuneInString(text)
	at := func(i int) (rune, int) {
		if i >= len(text) {
			return -1, 0
		}
		return utf8.DecodeRuneInString(text[i:])
	}
	letters := func(i int) int {
		for {
			r, k := at(i)
			if k == 0 || !unicode.IsLetter(r) {
				return i
			}
			i += k
		}
	}
	if first == '\'' {
		for _, c := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
			if len(text) >= len(c) && strings.EqualFold(text[:len(c)], c) {
				return len(c)
			}
		}
	}
	lineEnd := func(r rune) bool { return r == '\r' || r == '\n' }
	switch {
	case unicode.IsLetter(first):
		return letters(n)
	case unicode.IsNumber(first):
		for range 2 {
			if r, k := at(n); k > 0 && unicode.IsNumber(r) {
				n += k
			} else {
				break
			}
		}
		return n
	case !lineEnd(first):
		if end := letters(n); end > n {
			return end
		}
	}
	other := func(r rune) bool {
		return r >= 0 && !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
	}
	i := 0
	if first == ' ' {
		i = n
	}
	if r, _ := at(i); other(r) {
		for {
			r, k := at(i)
			if !other(r) {
				break
			}
			i += k
		}
		for {
			r, k := at(i)
			if k == 0 || !lineEnd(r) {
				return i
			}
			i += k
		}
	}
	end, lastLine, lastSpace := 0, 0, 0
	for {
		r, k := at(end)
		if k == 0 || !unicode.IsSpace(r) {
			break
		}
		lastSpace = end
		end += k
		if lineEnd(r) {
			lastLine = end
		}
	}
	switch {
	case lastLine > 0:
		return lastLine
	case end < len(text) && lastSpace > 0:
		return lastSpace
	}
	return max(end, n)
}

// OfVocab returns a Tokenizer with the vocabulary of an open model.
func OfVocab(v runtime.Vocab) *Tokenizer {
	t := &Tokenizer{Pieces: make([][]byte, v.Size())}
	for id := range t.Pieces {
		if v.IsEOG(runtime.Token(id)) {
			t.Ends = append(t.Ends, int32(id))
		} else if !v.IsControl(runtime.Token(id)) {
			t.Pieces[id] = v.Piece(runtime.Token(id))
		}
	}
	t.Encode = func(text string) []int32 {
		tokens, err := v.Tokenize(nil, text, false, false)
		if err != nil {
			panic(err) // only a text of gigabytes fails, and instances are lines of a file
		}
		out := make([]int32, len(tokens))
		for i, id := range tokens {
			out[i] = int32(id)
		}
		return out
	}
	return t
}
