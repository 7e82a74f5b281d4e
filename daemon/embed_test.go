package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

func (r *running) embed(e *wire.Embed) *wireclient.Embeddings {
	r.t.Helper()
	got, err := r.dial().Embed(context.Background(), e)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// hidden returns the hidden states of each token of a text, computed alone by a fresh engine of this configuration.
func hidden(t *testing.T, cfg fake.Config, text string) (rows [][]float64) {
	t.Helper()
	tokens, err := fake.New(cfg).Vocab().Tokenize(nil, text, true, false)
	if err != nil {
		t.Fatal(err)
	}
	return hiddenOf(t, cfg, tokens)
}

// hiddenOf is hidden for a text that is given as tokens.
func hiddenOf(t *testing.T, cfg fake.Config, tokens []runtime.Token) (rows [][]float64) {
	t.Helper()
	cfg.Options = runtime.Options{ContextTokens: 8192, Batch: 8192, MicroBatch: 8192, Sequences: 1}
	e := fake.New(cfg)
	e.Batch().Reset()
	for i, tok := range tokens {
		e.Batch().AddFor(tok, runtime.Pos(i), 0, runtime.RowEmbedding)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		var row []float64
		for _, x := range e.Embedding(i) {
			row = append(row, float64(x))
		}
		rows = append(rows, row)
	}
	return rows
}

// pooled returns the embedding of rows, of length 1, in float64.
func pooled(rows [][]float64, kind runtime.Pooling) []float64 {
	out := make([]float64, len(rows[0]))
	switch kind {
	case runtime.PoolCLS:
		copy(out, rows[0])
	case runtime.PoolLast:
		copy(out, rows[len(rows)-1])
	default:
		for _, r := range rows {
			for i, x := range r {
				out[i] += x / float64(len(rows))
			}
		}
	}
	sum := 0.0
	for _, x := range out {
		sum += x * x
	}
	for i := range out {
		out[i] /= math.Sqrt(sum)
	}
	return out
}

func closeTo(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(float64(got[i])-want[i]) > 1e-6 {
			t.Fatalf("%s: value %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// texts returns n texts of 1 to 1,500 tokens; some are longer than a step takes.
func texts(n int) (out []string) {
	for i := range n {
		out = append(out, text(i, 1+i*i*37%1500))
	}
	return out
}

// TestEmbeddings: embeddings of every pooling, in float64 from single rows, also beside answers, which stay the same
// byte for byte.
func TestEmbeddings(t *testing.T) {
	for _, kind := range []runtime.Pooling{runtime.PoolMean, runtime.PoolCLS, runtime.PoolLast} {
		t.Run(string(kind), func(t *testing.T) {
			cfg := fake.Config{Pooling: kind}
			r := serve(t, cfg, "-c", "16384", "-b", "256")
			ask := func(i int) func(q *wire.Request) {
				return func(q *wire.Request) { q.MaxTokens, q.Messages[0].Content = 60, text(50+i, 100) }
			}
			var alone []string
			for i := range 3 {
				alone = append(alone, r.ask(r.dial(), ask(i)).text)
			}
			var streams []*wireclient.Stream
			for i := range 3 {
				streams = append(streams, r.begin(r.dial(), ask(i)))
			}
			e := wireclient.EmbedTexts(texts(30)...)
			got := r.embed(e)
			for i, st := range streams {
				if a := collect(st); a.err != nil || a.text != alone[i] {
					t.Errorf("answer %d beside embeddings: %+v, alone %q", i, a, alone[i])
				}
			}
			vectors, err := got.Vectors()
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for i, v := range vectors {
				rows := hidden(t, cfg, e.Inputs[i].Text)
				closeTo(t, fmt.Sprint("text ", i), v, pooled(rows, kind))
				if got.Tokens[i] != len(rows) || got.Truncated[i] {
					t.Errorf("text %d: %d tokens of %d, cut: %v", i, got.Tokens[i], len(rows), got.Truncated[i])
				}
				total += len(rows)
			}
			if u := got.Usage; u.PromptTokens != total || u.CompletionTokens != 0 || u.CachedTokens != 0 {
				t.Errorf("usage %+v, the texts have %d tokens", u, total)
			}
			// Alone and one at a time, in another order: the same bits.
			for _, i := range []int{29, 3, 17} {
				again, err := r.embed(wireclient.EmbedTexts(e.Inputs[i].Text)).Vectors()
				if err != nil || !slices.Equal(again[0], vectors[i]) {
					t.Errorf("text %d again: %v, %v", i, again, err)
				}
			}
			r.settled()
		})
	}
}

// TestEmbeddingsOfEachToken: with pooling "none" a text has a vector for each token, as it is.
func TestEmbeddingsOfEachToken(t *testing.T) {
	cfg := fake.Config{Pooling: runtime.PoolMean}
	r := serve(t, cfg, "-c", "4096", "-b", "64", "--pooling", "none")
	e := wireclient.EmbedTexts(text(1, 200), text(2, 3))
	got := r.embed(e)
	for i := range e.Inputs {
		rows := hidden(t, cfg, e.Inputs[i].Text)
		if len(got.Rows[i]) != len(rows) {
			t.Fatalf("text %d has %d vectors, want %d", i, len(got.Rows[i]), len(rows))
		}
		for j, v := range got.Rows[i] {
			closeTo(t, fmt.Sprint("text ", i, " token ", j), v, rows[j])
		}
	}
	if _, err := got.Vectors(); err == nil {
		t.Error("there is one vector of a text")
	}
	r.settled()
}

// TestEmbedForms: tokens instead of text, sizes and norms.
func TestEmbedForms(t *testing.T) {
	cfg := fake.Config{Pooling: runtime.PoolMean}
	r := serve(t, cfg, "--embedding-sizes", "4, 8")
	tokens, err := r.model.Load().Vocab.Tokenize(nil, "some text", true, false)
	if err != nil {
		t.Fatal(err)
	}
	e := wireclient.EmbedTexts("some text")
	e.Inputs = append(e.Inputs, wire.EmbedInput{Tokens: tokens})
	got := r.embed(e)
	if !slices.Equal(got.Rows[0][0], got.Rows[1][0]) {
		t.Error("a text and its tokens have different embeddings")
	}
	rows := hidden(t, cfg, "some text")
	for _, n := range []int{4, 8, 16} {
		e.Dimensions = n
		var cut [][]float64
		for _, row := range rows {
			cut = append(cut, row[:n])
		}
		// normalised after the cut
		closeTo(t, fmt.Sprint(n, " values"), r.embed(e).Rows[0][0], pooled(cut, runtime.PoolMean))
	}
	e.Dimensions, e.Normalize = 5, wire.NormalizeNone
	e.AnyDimension = true
	closeTo(t, "as it is", r.embed(e).Rows[0][0], func() (mean []float64) {
		for i := range 5 {
			sum := 0.0
			for _, row := range rows {
				sum += row[i]
			}
			mean = append(mean, sum/float64(len(rows)))
		}
		return mean
	}())
}

func TestEmbedRefusals(t *testing.T) {
	code := func(r *running, e *wire.Embed) (wire.Code, string) {
		_, err := r.dial().Embed(context.Background(), e)
		var s *wireclient.ServerError
		if errors.As(err, &s) {
			return s.Code, s.Message
		}
		return "", fmt.Sprint(err)
	}
	r := serve(t, fake.Config{Pooling: runtime.PoolLast}, "-c", "100", "--embedding-sizes", "4")
	for _, c := range []struct {
		edit func(e *wire.Embed)
		code wire.Code
		says string
	}{
		{func(e *wire.Embed) { e.Inputs[0].Text = text(1, 100) }, wire.ContextLength,
			"input[0] is too large: it has 100 tokens (n_prompt), and this model embeds at most 99 (n_ctx)"},
		{func(e *wire.Embed) {
			e.Inputs = append(e.Inputs, wire.EmbedInput{Tokens: []int32{1 << 20}})
		},
			wire.BadRequest, "input[1]: "},
		{func(e *wire.Embed) { e.Inputs = append(e.Inputs, wire.EmbedInput{}) }, wire.BadRequest,
			"input[1] is empty"},
		{func(e *wire.Embed) { e.Dimensions = 5 }, wire.BadRequest, `field "dimensions" is 5; this model's ` +
			`embeddings have 16 values, or one of [4]`},
		{func(e *wire.Embed) { e.Dimensions = 17 }, wire.BadRequest,
			`field "dimensions" is 17; this model's embeddings have 16 values`},
	} {
		e := wireclient.EmbedTexts("a")
		c.edit(e)
		if got, says := code(r, e); got != c.code || !strings.Contains(says, c.says) {
			t.Errorf("%s %s, want %s with %q", got, says, c.code, c.says)
		}
	}
	e := wireclient.EmbedTexts(text(1, 200))
	e.Truncate = true
	if got := r.embed(e); got.Tokens[0] != 99 || !got.Truncated[0] {
		t.Errorf("cut: %+v", got)
	}
	r.settled()

	for _, c := range []struct {
		cfg  fake.Config
		args []string
		says string
	}{
		{fake.Config{Pooling: runtime.PoolRank}, nil, "ranks pairs of texts"},
	} {
		r := serve(t, c.cfg, c.args...)
		got, says := code(r, wireclient.EmbedTexts("a"))
		if got != wire.NotSupported || !strings.Contains(says, c.says) {
			t.Errorf("%s %s, want %q", got, says, c.says)
		}
		info := r.info().Model
		if info.Embeddings != nil || !strings.Contains(info.NoEmbeddings, c.says) {
			t.Errorf("info: %+v", info)
		}
	}

	none := serve(t, fake.Config{Embedding: 8192}, "--pooling", "none", "-c", "4096")
	if got, says := code(none, wireclient.EmbedTexts(text(1, 2049))); got != wire.BadRequest ||
		!strings.Contains(says, "2049 embeddings of 8192 values") {
		t.Errorf("%s %s", got, says)
	}
}

// TestEmbedByMean: a decoder whose file names no pooling embeds by mean, and info says so.
func TestEmbedByMean(t *testing.T) {
	cfg := fake.Config{}
	r := serve(t, cfg, "-c", "4096")
	s := text(1, 50)
	closeTo(t, "assumed", r.embed(wireclient.EmbedTexts(s)).Rows[0][0], pooled(hidden(t, cfg, s), runtime.PoolMean))
	if m := r.info().Model.Embeddings; m == nil || m.Pooling != runtime.PoolMean || !m.Assumed {
		t.Errorf("info: %+v", m)
	}
	if m := serve(t, cfg, "--pooling", "mean").info().Model.Embeddings; m == nil || m.Assumed {
		t.Errorf("info with --pooling: %+v", m)
	}
}

// TestEmbedEncoder: a model that reads in both directions embeds texts up to its longest one, and generates nothing.
func TestEmbedEncoder(t *testing.T) {
	cfg := fake.Config{Encoder: true, Pooling: runtime.PoolCLS}
	r := serve(t, cfg, "-c", "128", "--parallel", "4", "-b", "128")
	var all []string
	for i := range 40 {
		all = append(all, text(i, 1+i*53%127))
	}
	got := r.embed(wireclient.EmbedTexts(all...))
	for i, s := range all {
		closeTo(t, fmt.Sprint("text ", i), got.Rows[i][0], pooled(hidden(t, cfg, s), runtime.PoolCLS))
	}
	if steps, _ := r.metrics.Steps(); steps >= 40 {
		t.Errorf("%d steps for 40 texts: they do not share steps", steps)
	}
	if a := r.ask(r.dial(), nil); a.code() != wire.NotSupported ||
		!strings.Contains(a.err.Error(), "makes embeddings and generates no text") {
		t.Errorf("an answer: %+v", a)
	}
	if a := r.ask(r.dial(), func(q *wire.Request) { q.Messages, q.Prompt = nil, "x" }); a.code() != wire.NotSupported {
		t.Errorf("a completion: %+v", a)
	}
	if _, err := r.dial().Embed(context.Background(), wireclient.EmbedTexts(text(1, 129))); err == nil ||
		!strings.Contains(err.Error(), "embeds at most 128") {
		t.Errorf("a long text: %v", err)
	}
	if m := r.info().Model; m.Embeddings == nil || m.Embeddings.Longest != 128 || m.Embeddings.Values != 16 ||
		m.Embeddings.Pooling != runtime.PoolCLS {
		t.Errorf("info: %+v", m.Embeddings)
	}
	r.nothingLeft()
}

// TestEmbedCancel: a cancel, and a client that goes away, end all texts of a request.
func TestEmbedCancel(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean}, "-c", "16384", "-b", "64")
	for _, after := range []int{1, 2, 6} { // texts that have begun
		h := r.hold()
		c := r.dial()
		st, err := c.StreamEmbeddings(context.Background(), wireclient.EmbedTexts(texts(200)...))
		if err != nil {
			t.Fatal(err)
		}
		h.arrived(1)
		h.steps("texts have begun",
			func() bool { return len(h.loop.embed.embeds) > 0 && h.loop.embed.embeds[0].embed.next >= after })
		if err := c.Cancel(context.Background(), st.ID()); err != nil {
			t.Fatal(err)
		}
		h.mailed("the cancel has come", cmdCancel, 1)
		h.release()
		if a := collect(st); a.err != nil || a.eos.Reason != wire.Cancelled || a.eos.Usage.PromptTokens == 0 {
			t.Errorf("cancelled after %d: %+v", after, a)
		}
		r.settled()
	}
	c := r.dial()
	if _, err := c.StreamEmbeddings(context.Background(), wireclient.EmbedTexts(texts(200)...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return r.info().Live.Requests > 0 })
	c.Close()
	r.settled()
}

// TestEmbedStalledClient: a client that does not read stops its own texts and nothing else.
func TestEmbedStalledClient(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolLast, Embedding: 4096}, "-c", "8192")
	c := r.as(7)
	e := wireclient.EmbedTexts(texts(1000)...)
	e.ID = "stalled"
	for i := range e.Inputs {
		e.Inputs[i].Text = text(i, 3)
	}
	c.Embed(e)
	eventually(t, "its output waits", func() (waits bool) {
		r.inLoop(func(l *loop) { waits = l.stalled > 0 })
		return waits
	})
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 20 }); a.err != nil || a.tokens != 20 {
		t.Errorf("beside it: %+v", a)
	}
	if ev := c.end("stalled"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Stop ||
		ev.EOS.Usage.PromptTokens < 3000 {
		t.Errorf("%+v", ev)
	}
	r.settled()
}

// TestEmbedShare: of a request with many texts a few run at a time, so that another user's requests start at once.
func TestEmbedShare(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean}, "-c", "16384", "--parallel", "8")
	flood := r.as(7)
	e := wireclient.EmbedTexts(texts(1500)...)
	for i := range e.Inputs {
		e.Inputs[i].Text = text(i, 1+i%300)
	}
	e.ID = "flood"
	h := r.hold()
	flood.Embed(e)
	h.arrived(1)
	h.steps("texts run", func() bool { return h.loop.embed.inputs > 0 })
	h.step()
	if n := h.loop.embed.inputs; n > 5 {
		t.Errorf("%d texts run at once, with 8 sequences", n)
	}
	other := r.as(8)
	other.send("one", func(q *wire.Request) { q.MaxTokens = 5 })
	h.arrived(1)
	begun := func() (n int) {
		for _, q := range h.loop.embed.embeds {
			n = q.embed.next
		}
		return n
	}
	before := begun()
	h.step()
	h.steps("the other user's answer is complete", func() bool {
		for _, q := range h.loop.requests {
			if q.wireID == "one" {
				return false
			}
		}
		return true
	})
	if n := begun() - before; n < 1 || n > 60 {
		t.Errorf("%d texts were begun beside an answer of 5 tokens", n)
	}
	h.release()
	if ev := other.end("one"); ev.Kind != wire.EventEOS || ev.EOS.Reason != wire.Length {
		t.Errorf("%+v", ev)
	}
	flood.Close()
	r.settled()
}

// TestEmbedTroubles: a failed step fails the request with a text of it; one that is aborted, or finds no cell, is done
// again, and the embeddings are the same.
func TestEmbedTroubles(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean}, "-c", "2048", "-b", "64")
	e := wireclient.EmbedTexts(texts(12)...)
	want := r.embed(e)
	for n := 1; n < 20; n += 3 {
		for _, err := range []error{runtime.ErrAborted, runtime.ErrKVFull} {
			r.nothingLeft()
			r.engine.failStep(n, err)
			got := r.embed(e)
			for i := range want.Rows {
				if !slices.Equal(got.Rows[i][0], want.Rows[i][0]) {
					t.Fatalf("%v at step %d: text %d has another embedding", err, n, i)
				}
			}
		}
	}
	r.nothingLeft()
	r.engine.failStep(3, runtime.ErrDecode)
	_, err := r.dial().Embed(context.Background(), e)
	var s *wireclient.ServerError
	if !errors.As(err, &s) || s.Code != wire.RuntimeDecode || !strings.Contains(s.Message, "input[") {
		t.Errorf("%v", err)
	}
	r.settled()
}

// TestEmbedStop: a server that stops tells the clients that wait for embeddings.
func TestEmbedStop(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean}, "-c", "16384", "--shutdown-timeout", "1ms")
	h := r.hold()
	st, err := r.dial().StreamEmbeddings(context.Background(), wireclient.EmbedTexts(texts(500)...))
	if err != nil {
		t.Fatal(err)
	}
	h.arrived(1)
	h.steps("texts run", func() bool { return h.loop.embed.inputs > 0 })
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	h.release()
	if a := collect(st); a.err == nil && a.eos.Reason != wire.Shutdown && a.eos.Reason != wire.Stop {
		t.Errorf("%+v", a)
	}
	if err := waitfor.Recv(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// TestEmbedTold: info, why and metrics report embeddings.
func TestEmbedTold(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean}, "--pooling", "last", "--embedding-sizes", "any")
	m := r.info().Model.Embeddings
	if m == nil || m.Values != 16 || m.Pooling != runtime.PoolLast || !m.AnySize ||
		m.Longest != r.model.Load().Caps.ContextTokens-1 {
		t.Errorf("info: %+v", m)
	}
	e := wireclient.EmbedTexts("a", "bcd", "ef")
	e.ID = "mine"
	got := r.embed(e)
	for path, want := range map[string]int{"embedding_requests_total": 1, "embedding_inputs_total": 3,
		"embedding_tokens_total": got.Usage.PromptTokens} {
		if n := r.counter(path); int(n) != want {
			t.Errorf("%s is %v, want %d", path, n, want)
		}
	}
	r.nothingLeft()
	why, err := r.dial().Why(context.Background(), wire.WhyQuestion{Request: "mine"})
	if err != nil || len(why.Requests) != 1 {
		t.Fatalf("%+v %v", why, err)
	}
	told := fmt.Sprintf("%+v", why.Requests[0])
	for _, part := range []string{"the embeddings of 3 texts, and 3 of them have started", "input[", "took longest",
		"embedding"} {
		if !strings.Contains(told, part) {
			t.Errorf("why does not say %q: %s", part, told)
		}
	}
}
