package grammar

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// llama32 is the vocabulary of Llama 3.2 (128 k tokens) as the engine's module has it for its own tests. Its pieces are
// written in GPT-2's alphabet, which stands for bytes.
var llama32 = sync.OnceValues(func() (*Vocabulary, [][]byte) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ollama/ollama").Output()
	if err != nil {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "tokenizer/testdata/llama3.2/encoder.json"))
	if err != nil {
		return nil, nil
	}
	var ids map[string]int
	if json.Unmarshal(data, &ids) != nil {
		return nil, nil
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
	pieces := make([][]byte, len(ids)+256)
	for text, id := range ids {
		for _, r := range text {
			pieces[id] = append(pieces[id], alphabet[r])
		}
	}
	end := int32(len(ids) + 9) // <|eot_id|>
	return NewVocabulary(pieces, []int32{end}), pieces
})

func realVocabulary(tb testing.TB) (*Vocabulary, [][]byte) {
	v, pieces := llama32()
	if v == nil {
		tb.Skip("the engine's module is not here")
	}
	return v, pieces
}
