package masks

import (
	"fmt"
	"os"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// The types of a GGUF file's tokens (llama.cpp's enum llama_token_type) that have no text.
const (
	tokenControl = 3
	tokenUnused  = 5
)

// GGUF reads the vocabulary of a GGUF file that has no weights, such as llama.cpp's own tests have. The kind must be
// byte-level BPE with the words of Llama 3; the engine reads the vocabulary of a whole model (OfVocab).
func GGUF(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pairs, _, err := gguffile.Read(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	kv := map[string]any{}
	for _, p := range pairs {
		kv[p.Key] = p.Value
	}
	const prefix = "tokenizer.ggml."
	if model, words := kv[prefix+"model"], kv[prefix+"pre"]; model != "gpt2" || words != "llama-bpe" {
		return nil, fmt.Errorf("%s: tokenizer.ggml.model is %v and tokenizer.ggml.pre %v, want gpt2 and llama-bpe",
			path, model, words)
	}
	tokens, _ := kv[prefix+"tokens"].([]string)
	types, _ := kv[prefix+"token_type"].([]int32)
	merges, _ := kv[prefix+"merges"].([]string)
	if len(tokens) == 0 || len(types) != len(tokens) {
		return nil, fmt.Errorf("%s: it has %d tokens and %d types of them", path, len(tokens), len(types))
	}
	b, t := newBPE(merges), &Tokenizer{Pieces: make([][]byte, len(tokens))}
	for id, text := range tokens {
		switch {
		case types[id] != tokenControl && types[id] != tokenUnused:
			t.Pieces[id] = []byte(b.raw(text))
			b.ids[string(t.Pieces[id])] = int32(id)
		case text == "<|end_of_text|>" || text == "<|eot_id|>":
			t.Ends = append(t.Ends, int32(id))
		}
	}
	t.Encode = b.encode
	return t, nil
}
