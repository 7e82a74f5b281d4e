package fake_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name     string
		noRanges bool
		begin    func(time.Duration)
	}{{"ranges", false, nil}, {"no ranges", true, nil}, {"beside", false, func(time.Duration) {}}} {
		t.Run(c.name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				return fake.New(fake.Config{Options: o, Seed: 1, NoRanges: c.noRanges, Cost: fake.Cost{BaseMs: 1},
					Begin: c.begin, Head: &fake.Head{Seed: 1},
					Advance: func(time.Duration) {
						goruntime.Gosched() // gives an Abort from elsewhere the time a real decode would
					}})
			})
		})
	}
}

// TestHeadOfTheModelsCells: the contract with a head that has no cells.
func TestHeadOfTheModelsCells(t *testing.T) {
	enginetest.RunHead(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		return fake.New(fake.Config{Options: o, Seed: 1, Head: &fake.Head{Seed: 1, File: "assistant", Shared: true}})
	}, &runtime.Options{ModelPath: "assistant"})
}

// TestHeadOfAFile: the contract with a head that has a file.
func TestHeadOfAFile(t *testing.T) {
	enginetest.RunHead(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		return fake.New(fake.Config{Options: o, Seed: 1, Head: &fake.Head{Seed: 1, File: "eagle3"}})
	}, &runtime.Options{ModelPath: "eagle3"})
}

func TestAdapters(t *testing.T) {
	var paths []string
	for _, text := range []string{"GGUF one", "GGUF two"} {
		paths = append(paths, filepath.Join(t.TempDir(), "adapter.gguf"))
		if err := os.WriteFile(paths[len(paths)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Adapters(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		return fake.New(fake.Config{Options: o, Seed: 1})
	}, paths[0], paths[1])
}

func prompt(t *testing.T, e *fake.Engine, text string) []runtime.Token {
	t.Helper()
	tokens, err := e.Vocab().Tokenize(nil, text, false, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func greedy(t *testing.T, e *fake.Engine, text string, n int) (out []runtime.Token, shown string) {
	t.Helper()
	out, err := enginetest.Greedy(e, prompt(t, e, text), n)
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range out {
		if e.Vocab().IsControl(tok) && !e.Vocab().IsEOG(tok) {
			shown += e.Vocab().Text(tok)
		}
		shown += string(e.Vocab().Piece(tok))
	}
	return out, shown
}

func TestScripts(t *testing.T) {
	e := fake.New(fake.Config{Scripts: []fake.Script{
		{After: "2+2=", Emit: "four"},
		{Emit: "<think>\nhm</think>\nHi 😀"},
	}})
	const turn = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
	for _, c := range []struct{ prompt, want string }{
		{turn, "<think>\nhm</think>\nHi 😀"},
		{"2+2=", "four"},
		{turn + "<think>\nhm</think>\nHi 😀<|im_end|>\n" + turn, "<think>\nhm</think>\nHi 😀"}, // the last place counts
		{turn + "<think>\nh", "m</think>\nHi 😀"},                                             // begun already
	} {
		out, shown := greedy(t, e, c.prompt, 100)
		if shown != c.want || !e.Vocab().IsEOG(out[len(out)-1]) {
			t.Errorf("after %q: %q, want %q and an end", c.prompt, shown, c.want)
		}
	}
	if out, shown := greedy(t, e, "something else", 50); len(out) != 50 || strings.Contains(shown, "hm") {
		t.Errorf("without a script that fits: %d tokens, %q", len(out), shown)
	}
}

func TestNoise(t *testing.T) {
	_, a := greedy(t, fake.New(fake.Config{Seed: 1}), "a prompt", 60)
	_, again := greedy(t, fake.New(fake.Config{Seed: 1}), "a prompt", 60)
	_, b := greedy(t, fake.New(fake.Config{Seed: 2}), "a prompt", 60)
	if a != again || a == b {
		t.Errorf("seed 1: %q and %q; seed 2: %q", a, again, b)
	}
	ended := 0
	for i := range 200 {
		out, _ := greedy(t, fake.New(fake.Config{Seed: uint64(i), EndEvery: 20}), "a prompt", 20)
		if len(out) < 20 {
			ended++
		}
	}
	if ended < 90 || ended > 160 { // 200·(1 - 0.95¹⁹) = 125
		t.Errorf("%d of 200 generations ended within 19 tokens, want about 125", ended)
	}
}

func TestCost(t *testing.T) {
	var clock time.Duration
	e := fake.New(fake.Config{
		Options: runtime.Options{Sequences: 2}, Cost: fake.Cost{BaseMs: 10, PrefillMs: 2, DecodeMs: 1, KVMs: 0.01,
			ReadMs: 0.1},
		Advance: func(d time.Duration) { clock += d },
	})
	b := e.Batch()
	step := func(want float64) {
		t.Helper()
		before := clock
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		if got := e.LastDecode(); math.Abs(got.Seconds()*1000-want) > 1e-4 || clock-before != got {
			t.Errorf("the step took %v and moved the clock by %v, want %v ms", got, clock-before, want)
		}
		b.Reset()
	}
	for i := range 5 {
		b.Add(10, int32(i), 0, false)
	}
	step(10 + 5*2 + 0.01*(1+2+3+4+5) + 0.1*5)
	b.Add(10, 5, 0, true)
	b.Add(10, 0, 1, true)
	step(10 + 2*1 + 0.01*(6+1) + 0.1*(6+1))
	if e.Used() != 7 || e.Decodes() != 2 || len(e.Tokens(0)) != 6 {
		t.Errorf("%d cells used, %d decodes, %d held, want 7, 2, 6", e.Used(), e.Decodes(), len(e.Tokens(0)))
	}
}

func TestFailDecode(t *testing.T) {
	e := fake.New(fake.Config{})
	boom := fmt.Errorf("%w: device lost", runtime.ErrDecode)
	e.FailDecode(2, boom)
	e.FailDecode(3, runtime.ErrKVFull)
	held := 0
	for i, want := range []struct {
		err  error
		held int // of 4 rows more
	}{{nil, 4}, {boom, 2}, {runtime.ErrKVFull, 0}, {nil, 4}} {
		e.Batch().Reset()
		for range 4 {
			e.Batch().Add(10, int32(held+e.Batch().Len()), 0, true)
		}
		if err := e.Decode(); err != want.err {
			t.Errorf("decode %d: %v, want %v", i+1, err, want.err)
		}
		held += want.held
		if got := len(e.Tokens(0)); got != held {
			t.Errorf("after decode %d: %d tokens held, want %d", i+1, got, held)
		}
		if (e.Logits(3) != nil) != (want.err == nil) {
			t.Errorf("decode %d: logits %v", i+1, e.Logits(3) != nil)
		}
	}
}

// TestMisuse: what a caller must never do panics, where a model would only say something else.
func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(*fake.Engine){
		"copy over held cells": func(e *fake.Engine) { e.SeqCopy(0, 1, 0, -1) },
		"shift of shared cells": func(e *fake.Engine) {
			e.SeqRemove(1, 0, -1)
			e.SeqCopy(0, 1, 0, -1)
			e.SeqAdd(0, 0, 2, 1)
		},
		"use after close": func(e *fake.Engine) { e.Close(); e.SeqRemove(0, 0, -1) },
		"call from inside": func(e *fake.Engine) {
			e.Batch().Reset()
			e.Batch().Add(10, 2, 0, true)
			e.Decode()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var e *fake.Engine
			e = fake.New(fake.Config{Options: runtime.Options{Sequences: 3}, Advance: func(time.Duration) {
				if name == "call from inside" && e.Decodes() > 1 {
					e.SeqRemove(2, 0, -1)
				}
			}})
			for s := range runtime.Seq(2) {
				e.Batch().Add(10, 0, s, false)
				e.Batch().Add(10, 1, s, false)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f(e)
		})
	}
}

func TestEncoderContract(t *testing.T) {
	enginetest.RunEncoder(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		return fake.New(fake.Config{Options: o, Seed: 1, Encoder: true, Pooling: runtime.PoolMean})
	})
}
