package toolcall

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"unicode/utf8"
)

// fuzzSyntax checks one text with one syntax: no panic, no broken call, nothing lost of text but a call's beginning,
// and the same result however the text is cut and whether calls are streamed.
func fuzzSyntax(t *testing.T, spec *Spec, tools *Tools, text []byte, cut int) {
	opt := Options{MaxBytes: 4096}
	whole := parse(spec, tools, opt, text)
	for _, c := range whole.Calls {
		if !json.Valid([]byte(c.Arguments)) || c.Arguments[0] != '{' || !utf8.ValidString(c.Arguments) {
			t.Fatalf("%s: broken call %s(%q) of %q", spec.syntax.Name, c.Name, c.Arguments, text)
		}
		if tools.find(c.Name) < 0 {
			t.Fatalf("%s: call of %q, which is no tool, of %q", spec.syntax.Name, c.Name, text)
		}
	}
	if len(whole.Calls) == 0 && len(spec.syntax.Content) == 0 && !slices.Contains(whole.Reasons, Unfinished) &&
		bytes.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError }) < 0 &&
		string(whole.Text) != string(text) {
		t.Fatalf("%s: text %q came as %q", spec.syntax.Name, text, whole.Text)
	}
	want := report(whole)
	cut = min(max(cut, 0), len(text))
	if got := report(parse(spec, tools, opt, text[:cut], text[cut:])); got != want {
		t.Fatalf("%s: %q cut at %d:\n%s\nwhole:\n%s", spec.syntax.Name, text, cut, got, want)
	}
	var single [][]byte
	for i := range text {
		single = append(single, text[i:i+1])
	}
	opt.Stream = true
	if got := report(parse(spec, tools, opt, single...)); got != want {
		t.Fatalf("%s: %q streamed byte by byte:\n%s\nwhole:\n%s", spec.syntax.Name, text, got, want)
	}
}

// seeds are the scripts' inputs.
func seeds(t testing.TB) (out [][]byte) {
	files, err := filepath.Glob("testdata/syntaxes/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range bytes.Split(data, []byte("answer syntax=")) {
			if input, _, found := bytes.Cut(block, []byte("\n----")); found {
				if _, input, found = bytes.Cut(input, []byte("\n")); found {
					out = append(out, input)
				}
			}
		}
	}
	return out
}

func FuzzParser(f *testing.F) {
	tools := testTools(f)
	for i, s := range seeds(f) {
		f.Add(byte(i), uint16(len(s)/2), s)
	}
	var specs []*Spec
	for i := range Syntaxes {
		specs = append(specs, Syntaxes[i].Resolve(nil), Syntaxes[i].Resolve(tokenized(&Syntaxes[i], false)))
	}
	f.Fuzz(func(t *testing.T, syntax byte, cut uint16, text []byte) {
		fuzzSyntax(t, specs[int(syntax)%len(specs)], tools, text, int(cut))
	})
}

// TestRandomTexts puts pieces of the syntaxes' texts together at random. UMA_FUZZ_BYTES sets how many bytes (10 million
// take some minutes).
func TestRandomTexts(t *testing.T) {
	budget := 200_000
	if s := os.Getenv("UMA_FUZZ_BYTES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		budget = n
	}
	tools := testTools(t)
	inputs := seeds(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	common := []string{"{", "}", "[", "]", "(", ")", "\"", "'", "\\", ",", ":", "=", "\n", " ", "get_weather", "now",
		"name", "arguments", "\xff", "\xfe", "\xfd", "é", "😀", "\xf0\x9f", "null", "true", "1", "-", "0.", "e", "\\u12",
		"location", "</", "<|", "```json"}
	for n := 0; n < budget; {
		f := &Syntaxes[r.IntN(len(Syntaxes))]
		v := tokenized(f, r.IntN(2) == 0)
		spec := f.resolve(nil)
		if r.IntN(2) == 0 {
			spec = f.resolve(v)
		}
		pieces := append(append([]string{f.Quote}, common...), f.texts()...)
		for _, fenced := range spec.tokens {
			pieces = append(pieces, string(fenced), string(fenced))
		}
		var text []byte
		if r.IntN(2) == 0 { // a good one, damaged
			text = bytes.Clone(inputs[r.IntN(len(inputs))])
			for range r.IntN(4) {
				i := r.IntN(len(text) + 1)
				j := min(len(text), i+r.IntN(8))
				text = append(text[:i:i], append([]byte(pieces[r.IntN(len(pieces))]), text[j:]...)...)
			}
		} else {
			for range r.IntN(40) {
				text = append(text, pieces[r.IntN(len(pieces))]...)
			}
		}
		fuzzSyntax(t, spec, tools, text, r.IntN(len(text)+1))
		if n += len(text) + 1; t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
