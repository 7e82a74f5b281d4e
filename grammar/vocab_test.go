package grammar

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/enginetree"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// realVocabulary is the vocabulary of Llama 3 (128,256 tokens), as llama.cpp's own tests have it. Its pieces are
// written in GPT-2's alphabet, which stands for bytes.
func realVocabulary(tb testing.TB) (*Vocabulary, [][]byte) {
	tb.Helper()
	path := enginetree.Vocabulary(tb, "llama-bpe")
	v, pieces, err := llama3(path)
	if err != nil {
		tb.Fatal(err)
	}
	return v, pieces
}

var (
	llama3Once   sync.Once
	llama3Pieces [][]byte
	llama3Vocab  *Vocabulary
	errLlama3    error
)

func llama3(path string) (*Vocabulary, [][]byte, error) {
	llama3Once.Do(func() {
		f, err := os.Open(path)
		if err != nil {
			errLlama3 = err
			return
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			errLlama3 = err
			return
		}
		pairs, _, err := gguffile.Read(f, st.Size())
		if err != nil {
			errLlama3 = err
			return
		}
		var tokens []string
		var types []int32
		for _, p := range pairs {
			switch p.Key {
			case "tokenizer.ggml.tokens":
				tokens = p.Value.([]string)
			case "tokenizer.ggml.token_type":
				types = p.Value.([]int32)
			}
		}
		alphabet := map[rune]byte{}
		other := rune(256)
		for b := range 256 {
			if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b {
				alphabet[rune(b)] = byte(b)
			} else {
				alphabet[other] = byte(b)
				other++
			}
		}
		const control = 3
		llama3Pieces = make([][]byte, len(tokens))
		for id, text := range tokens {
			if types[id] == control {
				continue
			}
			for _, r := range text {
				llama3Pieces[id] = append(llama3Pieces[id], alphabet[r])
			}
		}
		llama3Vocab = NewVocabulary(llama3Pieces, []int32{int32(slices.Index(tokens, "<|eot_id|>"))})
	})
	return llama3Vocab, llama3Pieces, errLlama3
}
