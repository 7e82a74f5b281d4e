//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// serveModel starts a daemon on the real engine. Computing a tiny model's cells may be quicker than reading them; its
// daemon reads them always.
func serveModel(t *testing.T, path string, args ...string) *running {
	t.Helper()
	return serveModelOverridden(t, path, overrides{price: new(false)}, args...)
}

func serveModelOverridden(t *testing.T, path string, p overrides, args ...string) *running {
	t.Helper()
	fs, c, _ := config.NewFlagSet()
	args = append([]string{"--model", path, "--socket", filepath.Join(t.TempDir(), "s"), "-t", "1",
		"-c", "2048", "--cache-ram", "256MiB"}, args...)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(nil); err != nil {
		t.Fatal(err)
	}
	s, err := New(c, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if p.price != nil {
		s.overrides.price = p.price
	}
	r := &running{Server: s, t: t}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) { return llama.Open(o) })
	}()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil && !errors.Is(err, runtime.ErrNotBuilt) {
			t.Errorf("Serve: %v", err)
		}
	})
	eventually(t, "the model is loaded", s.Ready)
	return r
}

// row is a token with the logits' largest values, as a client sees them.
type row struct {
	token runtime.Token
	top   []float32
}

// rows asks for an answer and what was likely at each of its tokens.
func (r *running) rows(prompt string, n int) (out []row, u wire.Usage) {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	q := wire.DefaultRequest()
	q.Prompt, q.MaxTokens, q.Sampling.Temperature, q.Sampling.Logprobs, q.Sampling.IgnoreEOS = prompt, n, 0, 20, true
	st, err := c.Stream(context.Background(), &q)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		switch ev.Kind {
		case wire.EventToken:
			w := row{token: ev.Token.TokenID}
			for _, x := range ev.Token.Top {
				w.top = append(w.top, x.Logprob)
			}
			out = append(out, w)
		case wire.EventEOS:
			u = ev.EOS.Usage
			u.CacheMiss = ""
			return out, u
		}
	}
}

// quiet waits until nothing runs, nothing lingers and all copies are made.
func (r *running) quiet() {
	r.t.Helper()
	eventually(r.t, "all is quiet", func() (ok bool) {
		r.inLoop(func(l *loop) {
			ok = len(l.requests) == 0 && l.core.Quiet()
		})
		return ok
	})
}

// cells are the bytes of each of the first n positions of the only cached prefix.
func (r *running) cells(n int) (out [][]byte) {
	r.t.Helper()
	r.quiet()
	r.inLoop(func(l *loop) {
		entries := l.core.Tree().Entries(nil)
		if len(entries) != 1 || entries[0].Tokens < n {
			r.t.Errorf("%d cached prefixes: %+v, want one of %d tokens", len(entries), entries, n)
			return
		}
		for p := range runtime.Pos(n) {
			size, err := l.eng.SnapshotSize(entries[0].Seq, p, p+1)
			if err != nil {
				r.t.Error(err)
				return
			}
			b := make([]byte, size)
			k, err := l.eng.Snapshot(b, entries[0].Seq, l.core.Tree().ScratchSeq(0), p, p+1)
			if err != nil {
				r.t.Error(err)
				return
			}
			out = append(out, b[:k])
		}
	})
	return out
}

func (r *running) sameCells(what string, want [][]byte) {
	r.t.Helper()
	got := r.cells(len(want))
	for p := range min(len(got), len(want)) {
		if !bytes.Equal(got[p], want[p]) {
			r.t.Errorf("%s: the cell at position %d differs", what, p)
			return
		}
	}
}

func (r *running) sameRows(what string, got, want []row) {
	r.t.Helper()
	for i := range want {
		if got[i].token != want[i].token {
			r.t.Errorf("%s: token %d is %d, want %d", what, i, got[i].token, want[i].token)
			return
		}
		for k := range want[i].top {
			if math.Float32bits(got[i].top[k]) != math.Float32bits(want[i].top[k]) {
				r.t.Errorf("%s: token %d: log-probability %d is %v, want %v", what, i, k, got[i].top[k], want[i].top[k])
				return
			}
		}
	}
}

// forgetPool empties the pool and leaves the stores alone.
func (r *running) forgetPool() {
	r.t.Helper()
	r.quiet()
	r.inLoop(func(l *loop) {
		for _, e := range l.core.Tree().Entries(nil) {
			if _, err := l.stores.Save(e.ID); err != nil {
				r.t.Error(err)
			}
			if err := l.core.Drop(e.ID); err != nil {
				r.t.Error(err)
			}
		}
		if c := l.core.Tree().Cells(); c.Free != c.Own+c.Shared+c.Cached+c.Pinned+c.Free {
			r.t.Errorf("%+v", c)
		}
	})
}

// Cells that went through host memory, a disk and a fabric are the same bytes, and what follows from them the same
// bits, on the real engine.
func TestRealCellsComeBack(t *testing.T) {
	path := ggufgen.Cached(t, ggufgen.Tiny())
	mr := miniredis.RunT(t)
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--cache-dir", dir, "--fabric", "redis://" + mr.Addr()}
	prompt := text(0, 600)

	r := serveModel(t, path, args...)
	_, u := r.rows(prompt, 12)
	n := u.PromptTokens - 1
	if n < 150 || u.CachedTokens != 0 {
		t.Fatalf("%+v", u)
	}
	cells := r.cells(n)
	// The run that never left the pool computes the same one token as those after a restore.
	want, u := r.rows(prompt, 12)
	if u.CacheTier != wire.TierDevice || u.CachedTokens != n {
		t.Fatalf("%+v", u)
	}
	r.forgetPool()
	got, u := r.rows(prompt, 12)
	if u.CacheTier != wire.TierHost || u.CachedTokens != n {
		t.Errorf("from host: %+v", u)
	}
	r.sameRows("host", got, want)
	r.sameCells("host", cells[:u.CachedTokens])
	r.stop()

	r = serveModel(t, path, args[:2]...)
	got, u = r.rows(prompt, 12)
	if u.CacheTier != wire.TierDisk || u.CachedTokens != n {
		t.Errorf("from disk: %+v", u)
	}
	r.sameRows("disk", got, want)
	r.sameCells("disk", cells[:u.CachedTokens])
	r.stop()

	r = serveModel(t, path, args[2:]...)
	_, u = r.rows(prompt, 12)
	if u.CacheTier != wire.TierFabric || u.CachedTokens < n/32*32 {
		t.Errorf("from the fabric: %+v", u)
	}
	r.sameCells("fabric", cells[:u.CachedTokens])
	r.stop()
}

// Prompts that begin alike, read piece by piece from what earlier ones left, are the tokens that the engine makes of
// each.
func TestRealTexts(t *testing.T) {
	r := serveModel(t, ggufgen.Cached(t, ggufgen.Tiny()))
	m := r.model.Load()
	if _, can := m.Vocab.(runtime.TextCutter); !can {
		t.Fatal("the engine does not say where a text may be cut")
	}
	long := strings.Repeat("Some words, a number 42\nand it's   a <|im_end|> marker. ", 60)
	for i := range 40 {
		for _, chat := range []bool{false, true} {
			s := long[:len(long)*i/40] + text(i, 30)
			_, got, bad := m.Render(uint32(i%2), &wire.Request{Prompt: s, ParseSpecial: chat}, nil)
			want, err := m.Vocab.Tokenize(nil, s, true, chat)
			if bad != nil || err != nil || !slices.Equal(got, want) {
				t.Fatalf("%d bytes: %d tokens, %v; want %d, %v", len(s), len(got), bad, len(want), err)
			}
		}
	}
}

// A sliding window cannot be cut or copied in parts: conversations are reused whole or computed, and say the same.
func TestRealSlidingWindow(t *testing.T) {
	path := ggufgen.Cached(t, ggufgen.TinySWA())
	r := serveModel(t, path)
	alone := serveModel(t, path, "--no-prefix-cache")
	for i := range 4 {
		prompt := text(0, 200) + text(i%2, 50)
		got, _ := r.rows(prompt, 8)
		want, _ := alone.rows(prompt, 8)
		for k := range want {
			if got[k].token != want[k].token {
				t.Errorf("prompt %d: token %d is %d, computed %d", i, k, got[k].token, want[k].token)
				break
			}
		}
	}
	r.quiet()
	r.inLoop(func(l *loop) {
		if err := l.core.Tree().Check(); err != nil {
			t.Error(err)
		}
	})
}

// Random turns of several conversations in a pool too small for them, on the real engine: the books agree throughout
// (with the invariants tag after every step) and nothing is left.
func TestRealRandomLife(t *testing.T) {
	path := ggufgen.Cached(t, ggufgen.Tiny())
	r := serveModel(t, path, "-c", "512", "--parallel", "4")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for turn := range 5 {
				c, err := wireclient.Dial(context.Background(), r.cfg.Socket)
				if err != nil {
					t.Error(err)
					return
				}
				q := wire.DefaultRequest()
				q.ID, q.Prompt, q.MaxTokens, q.Sampling.IgnoreEOS = "x", text(i%2, 100+60*turn), 10+i*7, true
				st, err := c.Stream(context.Background(), &q)
				if err != nil {
					t.Error(err)
				} else if (i+turn)%4 == 3 { // it goes in the middle of its answer
					for range turn {
						if _, err := st.Next(); err != nil {
							t.Error(err)
						}
					}
				} else if a := collect(st); a.err != nil || a.tokens != q.MaxTokens {
					t.Errorf("session %d turn %d: %+v", i, turn, a)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	r.quiet()
	r.nothingLeft()
	r.inLoop(func(l *loop) {
		if err := l.core.Tree().Check(); err != nil {
			t.Error(err)
		}
		if m := l.core.Tree().Lookup(&kvsnap.Prompt{NS: uint64(os.Getuid()) + 1,
			Tokens: []kvsnap.Token{1, 2, 3}}); m.Len != 0 {
			t.Errorf("%+v", m)
		}
	})
}

// TestRealPrices: with prices, whichever way a prompt's cells come, restored, copied in part or computed again, its
// answer is the same to the bit.
func TestRealPrices(t *testing.T) {
	r := serveModelOverridden(t, ggufgen.Cached(t, ggufgen.Tiny()), overrides{}, "-c", "600")
	var want [4][]row
	for pass := range 4 {
		for i := range want {
			got, _ := r.rows(unlike(i, 600), 4)
			if pass == 0 {
				want[i] = got
			} else if !reflect.DeepEqual(got, want[i]) {
				t.Errorf("pass %d, prompt %d: %v, at first %v", pass, i, got, want[i])
			}
			r.quiet()
		}
	}
	restored := r.counter("kv_priced_total.host/restore") + r.counter("kv_priced_total.host/trial")
	computed := r.counter("kv_priced_total.host/compute")
	if restored < 3 || restored+computed < 8 {
		t.Errorf("%v were restored, %v computed", restored, computed)
	}
}
