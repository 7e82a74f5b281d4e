//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestCopyingModel: the generated model that copies says what followed its newest token before, and where a token had
// several followers the most frequent one. Benchmarks of speculation rest on it.
func TestCopyingModel(t *testing.T) {
	e, err := Open(runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyCopies()), ContextTokens: 1024, Batch: 512,
		Sequences: 1, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	scan := e.(runtime.RowScanner)
	text := []runtime.Token{1999} // the first token stands for the one before it too
	for i := range 300 {
		text = append(text, runtime.Token(300+(i*37)%1500)) // 300 different tokens
	}
	text = append(text, 2000, text[100], 2001, 2002, text[100], 2001, 2003, text[1])
	n := len(text)
	b := e.Batch()
	b.Reset()
	for i, tok := range text {
		b.Add(tok, runtime.Pos(i), 0, i == n-1)
	}
	row := n - 1
	for i := 1; i < 100; i++ {
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		got, _ := scan.Argmax(row)
		if want := text[1+i]; got != want {
			t.Fatalf("token %d of the copy is %d, want %d", i, got, want)
		}
		b.Reset()
		b.Add(got, runtime.Pos(n+i-1), 0, true)
		row = 0
	}
	// text[100] was followed by text[101] once and by 2001 twice.
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	if got, _ := scan.Argmax(0); got != 2001 {
		t.Errorf("behind a token with several followers it says %d, want 2001", got)
	}
}
