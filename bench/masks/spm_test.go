package masks

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/uma-serve/uma-serve/internal/testutil/enginetree"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

// sentencePieceOf is the vocabulary of llama.cpp's tests in the form of a tokenizer.model.
func sentencePieceOf(t *testing.T, name string) (model []byte) {
	t.Helper()
	f, err := os.Open(enginetree.Vocabulary(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pairs, _, err := gguffile.Read(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	kv := map[string]any{}
	for _, p := range pairs {
		kv[p.Key] = p.Value
	}
	scores, types := kv["tokenizer.ggml.scores"].([]float32), kv["tokenizer.ggml.token_type"].([]int32)
	for i, text := range kv["tokenizer.ggml.tokens"].([]string) {
		piece := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
		piece = protowire.AppendFixed32(protowire.AppendTag(piece, 2, protowire.Fixed32Type),
			math.Float32bits(scores[i]))
		piece = protowire.AppendVarint(protowire.AppendTag(piece, 3, protowire.VarintType), uint64(types[i]))
		model = protowire.AppendBytes(protowire.AppendTag(model, 1, protowire.BytesType), piece)
	}
	return model
}

// TestSentencePiece: the pieces of an encoded text are the text, and common words are one token.
func TestSentencePiece(t *testing.T) {
	dir := t.TempDir()
	model := sentencePieceOf(t, "llama-spm")
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := SentencePiece(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.Ends, []int32{2}) || len(v.Pieces) != 32_000 {
		t.Fatalf("%d pieces, ends %v", len(v.Pieces), v.Ends)
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
