package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestMaskedRow: a mask chooses the tokens that the same chain chooses from a row whose other logits are -Inf, whatever
// stages are on and whether the row was probed; log-probabilities stay those of the raw row, and the row is not written
// to.
func TestMaskedRow(t *testing.T) {
	var plain, scratch Scratch
	drawn := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 21))
		n := 1 + r.IntN(1500)
		p := randomParams(r, n)
		if seed%3 == 0 {
			p = randomShape(r, p, n)
		}
		vocab := VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n))}}
		want := New(p, vocab, &plain)
		p.Logprobs = r.IntN(3)
		got := New(p, vocab, &scratch)
		for range r.IntN(100) {
			tok := int32(r.IntN(min(n, 80)))
			want.Accept(tok)
			got.Accept(tok)
		}
		for range 8 {
			logits := randomLogits(r, n)
			mask := make(Mask, r.IntN(2)+(n+31)/32)
			share := []int{0, 1, 50, 90, 100}[r.IntN(5)]
			allowed := slices.Clone(logits)
			for i := range allowed {
				if r.IntN(100) < share {
					mask[i/32] |= 1 << (i % 32)
				} else {
					allowed[i] = -inf
				}
			}
			kept := slices.Clone(logits)
			a, wantErr := want.Sample(allowed)
			got.Restrict(mask)
			var b Choice
			var err error
			if r.IntN(2) == 0 {
				st := meridian.ReferenceProbe(logits, nil)
				b, err = got.SampleProbed(logits, &st)
			} else {
				b, err = got.Sample(logits)
			}
			if err != wantErr || b.Token != a.Token {
				t.Fatalf("seed %d, n %d, %d %%: token %d (%v), want %d (%v); %+v", seed, n, share, b.Token, err,
					a.Token, wantErr, p)
			}
			if !slices.Equal(kept, logits) {
				t.Fatalf("seed %d: the row was written to", seed)
			}
			if err != nil {
				continue
			}
			if drawn++; !mask.Has(b.Token) {
				t.Fatalf("seed %d: token %d may not come", seed, b.Token)
			}
			if p.Logprobs > 0 {
				if l, top := plain.logprobs(logits, b.Token, p.Logprobs); b.Logprob != l || !slices.Equal(b.Top, top) {
					t.Fatalf("seed %d: log-probability %v %v, want %v %v", seed, b.Logprob, b.Top, l, top)
				}
			}
			want.Accept(a.Token)
			got.Accept(b.Token)
		}
	}
	if drawn < 5000 {
		t.Errorf("only %d tokens were drawn", drawn)
	}
}

// TestMaskAllocs: a mask costs no allocation, and taking it away brings the free chain back.
func TestMaskAllocs(t *testing.T) {
	rows := rows(5000)
	mask := make(Mask, 5000/32+1)
	for i := range 5000 {
		if i%3 > 0 {
			mask[i/32] |= 1 << (i % 32)
		}
	}
	for _, c := range slices.Concat(benchParams, shapeParams) {
		chain, free := New(c.p, VocabFacts{Size: 5000}, new(Scratch)), New(c.p, VocabFacts{Size: 5000}, new(Scratch))
		i := 0
		turn := func() {
			chain.Restrict(mask)
			choice, err := chain.Sample(rows[i%len(rows)])
			if err != nil {
				t.Fatal(err)
			}
			chain.Accept(choice.Token)
			i++
		}
		for range 60 * len(rows) {
			turn()
		}
		if n := testing.AllocsPerRun(200, turn); n != 0 {
			t.Errorf("%s: %v allocations a token", c.name, n)
		}
		chain = New(c.p, VocabFacts{Size: 5000}, new(Scratch))
		chain.Restrict(mask)
		chain.Restrict(nil)
		a, _ := chain.Sample(rows[0])
		b, _ := free.Sample(rows[0])
		if a.Token != b.Token {
			t.Errorf("%s: without its mask the chain draws %d, want %d", c.name, a.Token, b.Token)
		}
	}
}

// TestMaskHas: tokens outside of the mask's words may not come.
func TestMaskHas(t *testing.T) {
	m := Mask{1 << 31, 1}
	for _, k := range []struct {
		token runtime.Token
		want  bool
	}{{31, true}, {32, true}, {30, false}, {33, false}, {64, false}, {-1, false}, {1 << 30, false}} {
		if m.Has(k.token) != k.want {
			t.Errorf("token %d: %v", k.token, !k.want)
		}
	}
}
