package masks

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSentencePiece: the pieces of an encoded text are the text, and common words are one token.
func TestSentencePiece(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ollama/ollama").Output()
	if err != nil {
		t.Skip("the engine's module is not here")
	}
	v, err := SentencePiece(filepath.Join(strings.TrimSpace(string(out)), "tokenizer", "testdata", "gemma2"))
	if err != nil {
		t.Skip(err)
	}
	if n := len(v.Pieces); n < 250_000 || len(v.Ends) == 0 {
		t.Fatalf("%d pieces, ends %v", n, v.Ends)
	}
	for _, text := range []string{`{"name": "Grace Hopper", "born": 1906}`, "a\n\n\tb  c", "Grüße, 世界 🙂", "\x00\x7f",
		""} {
		var got []byte
		for _, id := range v.Encode(text) {
			got = append(got, v.Pieces[id]...)
		}
		if string(got) != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if ids := v.Encode(" the"); len(ids) != 1 || !slices.Equal(v.Pieces[ids[0]], []byte(" the")) {
		t.Errorf("%q has the tokens %v", " the", ids)
	}
}
