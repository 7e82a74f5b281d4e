package masks

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/internal/testutil/enginetree"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// smallVocab writes a vocabulary of the bytes, and of what merges make of them, in the files of Llama 3's.
func smallVocab(t *testing.T, merges ...string) string {
	t.Helper()
	dir := t.TempDir()
	ids := map[string]int{}
	alphabet := byteAlphabet()
	written := map[byte]string{}
	for r, b := range alphabet {
		written[b] = string(r)
		ids[string(r)] = int(b)
	}
	for _, m := range merges {
		ids[strings.ReplaceAll(m, " ", "")] = len(ids)
	}
	data, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"encoder.json": string(data), "vocab.bpe": "#version\n" +
		strings.Join(merges, "\n") + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGGUF: the vocabulary of Llama 3 in llama.cpp's tests, whose expected tokens lie beside it.
func TestGGUF(t *testing.T) {
	path := enginetree.Vocabulary(t, "llama-bpe")
	tok, err := GGUF(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(tok.Pieces) != 128_256 || !slices.Equal(tok.Ends, []int32{128_001, 128_009}) {
		t.Errorf("%d pieces, ends %v", len(tok.Pieces), tok.Ends)
	}
	texts, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	inputs := strings.Split(string(texts), "\n__ggml_vocab_test__\n")
	expected := strings.Split(string(tokens), "\n")
	if len(inputs) < 40 || len(expected) < len(inputs) {
		t.Fatalf("%d texts, %d lines of tokens", len(inputs), len(expected))
	}
	for i, text := range inputs {
		var want []int32
		for _, id := range strings.Fields(expected[i]) {
			n, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(n))
		}
		if got := tok.Encode(text); !slices.Equal(got, want) {
			t.Errorf("%q is\n%v, want\n%v", text, got, want)
		}
	}
	_, err = GGUF(enginetree.Vocabulary(t, "llama-spm"))
	if err == nil || !strings.Contains(err.Error(), "model is llama") {
		t.Errorf("another kind of vocabulary: %v", err)
	}
}

func TestLlama3(t *testing.T) {
	tok, err := Llama3(smallVocab(t, "a b", "ab c", "Ġ ab"))
	if err != nil {
		t.Fatal(err)
	}
	if len(tok.Pieces) != 256+3+controlTokens || !slices.Equal(tok.Ends, []int32{260, 268}) {
		t.Errorf("%d pieces, ends %v", len(tok.Pieces), tok.Ends)
	}
	for text, want := range map[string][]int32{
		"abc":       {257},
		"ab":        {256},
		"cab":       {'c', 256},
		"x ab":      {'x', 258},
		"é\n":       {0xc3, 0xa9, '\n'},
		`{"abc": 1`: {'{', '"', 257, '"', ':', ' ', '1'},
	} {
		got := tok.Encode(text)
		if !slices.Equal(got, want) || string(tok.Text(got)) != text {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if _, err := Llama3(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		`{"name": "Jo's", "n": 12345}`: {`{"`, `name`, `":`, ` "`, `Jo`, `'s`, `",`, ` "`, `n`, `":`, ` `, `123`, `45`,
			`}`},
		"a  b\n\n c": {"a", " ", " b", "\n\n", " c"},
		"  \n x":     {"  \n", " x"},
		"tail  ":     {"tail", "  "},
		"über-x":     {"über", "-x"},
		"I'LL":       {"I", "'LL"},
	} {
		var got []string
		for rest := text; rest != ""; {
			n := wordLength(rest)
			got = append(got, rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestDumps(t *testing.T) {
	got, err := Dumps([]byte(`{"b":[1,2.50,{}],"a":"é\u0001\"\n","c":null}`))
	if want := `{"b": [1, 2.50, {}], "a": "é\u0001\"\n", "c": null}`; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestRunAndSum(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cases.jsonl")
	in := `{"name":"passes","schema":{"type":"integer"},"tests":[{"valid":true,"data":12},{"valid":false,"data":"x"}]}
{"name":"refused","schema":{"type":"array","uniqueItems":true},"tests":[]}

{"name":"wrong twice","schema":{"type":"string"},"tests":[{"valid":true,"data":1},{"valid":false,"data":"x"}]}
`
	if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	cases, err := Read(file)
	if err != nil || len(cases) != 3 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	tok, err := Llama3(smallVocab(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	outcomes := Run(cases, tok, DefaultOptions(), func(done int, _ *Outcome) { seen = done })
	if seen != 3 {
		t.Errorf("%d cases were reported", seen)
	}
	if !errors.Is(outcomes[1].Compile, jsonschema.ErrUnsupported) || !strings.HasPrefix(Reason(outcomes[1].Compile),
		"uniqueItems: ") {
		t.Errorf("refused: %v", outcomes[1].Compile)
	}
	r := Sum(outcomes)
	r.TBM, r.TTFM = Spread{}, Spread{}
	if want := (Report{Schemas: 3, Passing: 1, Compile: 1, Validation: 1, Invalidation: 1, Tokens: 7}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestSpread(t *testing.T) {
	var ds []time.Duration
	for i := range 1000 {
		ds = append(ds, time.Duration(1000-i)*time.Microsecond)
	}
	if got, want := spread(ds), (Spread{Avg: 500.5, P50: 501, P99: 991, P999: 1000, Max: 1000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := spread(nil); got != (Spread{}) {
		t.Errorf("nothing: %+v", got)
	}
}

func TestOfVocab(t *testing.T) {
	e := fake.New(fake.Config{})
	defer e.Close()
	tok := OfVocab(e.Vocab())
	if got := tok.Text(tok.Encode("hello")); string(got) != "hello" {
		t.Errorf("hello: %q", got)
	}
	if len(tok.Ends) == 0 {
		t.Error("no token ends a text")
	}
}
