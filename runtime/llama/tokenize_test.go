//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama/cuts"
)

// withPreTokenizer is the tiny model with another tokenizer.ggml.pre.
func withPreTokenizer(t *testing.T, pre string) string {
	t.Helper()
	path := model(t, ggufgen.Tiny())
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The value's length is the 8 bytes behind the key and its type; tensor data is aligned to 32 bytes, so the last
	// tensor's record is followed by padding that takes up the difference.
	head, rest, ok1 := bytes.Cut(whole, []byte("tokenizer.ggml.pre"))
	record, data, ok2 := bytes.Cut(rest, []byte("token_embd.weight"))
	if !ok1 || !ok2 {
		t.Fatal("the model is not laid out as expected")
	}
	const recordTail = 4 + 2*8 + 4 + 8 // dimensions, type, offset
	end := len(whole) - len(data) + recordTail
	old := int(binary.LittleEndian.Uint64(record[4:]))
	out := slices.Concat(head, []byte("tokenizer.ggml.pre"), record[:4])
	out = binary.LittleEndian.AppendUint64(out, uint64(len(pre)))
	out = slices.Concat(out, []byte(pre), record[12+old:], []byte("token_embd.weight"), data[:recordTail])
	for len(out)%32 != 0 {
		out = append(out, 0)
	}
	out = append(out, whole[(end+31)/32*32:]...)
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTokenizeHostile: no text crashes the process or takes unbounded time. The pre-tokenizers named here overflowed
// the stack.
func TestTokenizeHostile(t *testing.T) {
	size := 1 << 17 // about, in bytes
	if testing.Short() {
		size = 1 << 14
	}
	for _, pre := range []string{"gpt-2", "qwen2", "gpt-4o", "tekken", "deepseek-v3", "poro-chat"} {
		t.Run(pre, func(t *testing.T) {
			v := mustOpen(t, runtime.Options{ModelPath: withPreTokenizer(t, pre), ContextTokens: 256}).Vocab()
			for name, text := range map[string]string{
				"letters": strings.Repeat("a", size), "mixed letters": strings.Repeat("aB", size/2),
				"dots":  strings.Repeat(".", size),
				"zeros": strings.Repeat("\x00", size), "blanks": strings.Repeat(" ", size),
				"ideographs": strings.Repeat("語", size),
				"markers":    strings.Repeat("<|im_start|>", size/32), "half markers": strings.Repeat("<|im_", size/8),
				"invalid bytes": strings.Repeat("\xff\xfe", size/2),
			} {
				tokens, err := v.Tokenize(nil, text, true, true)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				var back []byte
				for _, tok := range tokens {
					back = append(back, v.Piece(tok)...)
				}
				if name != "invalid bytes" && name != "markers" && string(back) != text {
					t.Errorf("%s: %d bytes came back as %d", name, len(text), len(back))
				}
			}
		})
	}
	v := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256}).Vocab()
	if _, err := v.Tokenize(nil, strings.Repeat("x", maxText+1), false, false); err == nil ||
		!strings.Contains(err.Error(), "limit") {
		t.Errorf("a text beyond the limit: %v", err)
	}
}

// TestTokenizePieces: cutting a text at its markers changes nothing.
func TestTokenizePieces(t *testing.T) {
	v := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256}).Vocab().(*vocab)
	text := strings.Repeat("<|im_start|>user\n  What is  "+
		"this?\n<|im_end|>\n<|im_start|>assistant\n<think>\nHm.</think>  It. <|im_end|>\n", 1000)
	got, err := v.Tokenize(nil, text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	v.cuts.AtMarkers = false
	want, err := v.Tokenize(nil, text, true, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("a text tokenized in pieces differs from the same in one")
	}
}

// TestTokenizeCut: tokens do not change at a Cut, with every pre-tokenizer of llama.cpp.
func TestTokenizeCut(t *testing.T) {
	pres := []string{
		"default", "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "mpt", "starcoder", "gpt-2",
		"refact", "command-r",
		"qwen2", "stablelm2", "olmo", "dbrx", "smaug-bpe", "poro-chat", "chatglm-bpe", "viking", "jais", "tekken",
		"smollm", "codeshell", "bloom",
		"gpt3-finnish", "exaone", "chameleon", "minerva-7b", "gpt-4o", "superbpe", "trillion", "granite-docling",
		"bailingmoe", "seed-coder",
		"hunyuan", "hunyuan-dense", "kimi-k2", "grok-2", "afmoe", "minimax-m2",
	}
	parts := []string{
		"a", "the", "Word", "it's", "I'LL", "x2", "1", "22", "333", "4444", "55555", " ", "  ", "   ", "\n", "\n\n",
		"\t", "\r\n", ".", ",", "...", "?!", "()", "-",
		"é", "ß", "語", "。", "한", "🙂", "\u3000", "\xff", "<|im_start|>", "<|im_end|>", "<think>", "<|im_", "$", "_",
		"  \n", "/", "'",
	}
	texts := 25
	if testing.Short() {
		texts = 8
	}
	for _, pre := range pres {
		t.Run(pre, func(t *testing.T) {
			v := mustOpen(t, runtime.Options{ModelPath: withPreTokenizer(t, pre), ContextTokens: 256}).Vocab().(*vocab)
			if !v.cuts.Words {
				t.Fatal("its texts are not cut between words: the test shows nothing")
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			whole := func(text string, special, parse bool) []runtime.Token {
				var buf []runtime.Token
				out, err := v.tokenize(nil, &buf, text, special, parse)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			for range texts {
				var b strings.Builder
				for n := 1 + r.IntN(700); b.Len() < n; {
					b.WriteString(parts[r.IntN(len(parts))])
				}
				text, parse := b.String(), r.IntN(2) == 0
				want := whole(text, true, parse)
				got, err := v.Tokenize(nil, text, true, parse)
				if err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d: %q is %v, in one piece %v", seed, text, got, want)
				}
				for k := range 4 {
					n := v.Cut(text, r.IntN(len(text))/(k+1), parse)
					if n == len(text) {
						continue
					}
					got := append(whole(text[:n], true, parse), whole(text[n:], false, parse)...)
					if !slices.Equal(got, want) {
						t.Fatalf("seed %d: %q cut at %d is %v, in one piece %v", seed, text, n, got, want)
					}
				}
			}
		})
	}
}

// A vocabulary with tokens that span words is not cut between words.
func TestCrosses(t *testing.T) {
	for piece, want := range map[string]bool{"": false, " the": false, "the ": true, "of the": true, "a\n": true,
		"\n\na": false, ". ": false, ".\n": false} {
		if cuts.Crosses([]byte(piece)) != want {
			t.Errorf("%q: %v", piece, !want)
		}
	}
}

func TestTokenizeAfterClose(t *testing.T) {
	e, err := Open(runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256})
	if err != nil {
		t.Fatal(err)
	}
	v := e.Vocab()
	e.Close()
	if _, err := v.Tokenize(nil, "x", false, false); err == nil {
		t.Error("tokenize worked after Close")
	}
	if v.Text(v.EOS()) == "" || v.IsEOG(v.EOS()) == false {
		t.Error("the tables are gone after Close")
	}
}
