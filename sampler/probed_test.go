package sampler

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestSampleProbed: a chain that is told the row's statistics draws what one that reads the row draws, even when the
// prober is as wrong as it may be.
func TestSampleProbed(t *testing.T) {
	var scratch, plain Scratch
	told, prefixes := 0, 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := 1 + r.IntN(3000)
		p := randomParams(r, n)
		if seed%3 == 0 {
			p = randomShape(r, p, n)
		}
		p.Logprobs = max(0, r.IntN(8)-4)
		vocab := VocabFacts{Size: n, EOG: []int32{int32(r.IntN(n)), int32(r.IntN(n))}}
		a, b := New(p, vocab, &plain), New(p, vocab, &scratch)
		for range r.IntN(300) {
			tok := int32(r.IntN(min(n, 80)))
			a.Accept(tok)
			b.Accept(tok)
		}
		for i := range 10 {
			logits := randomLogits(r, n)
			switch r.IntN(20) {
			case 0:
				logits[r.IntN(n)] = []float32{nan, inf}[r.IntN(2)]
			case 1:
				for range r.IntN(2 * n) {
					logits[r.IntN(n)] = -inf
				}
			case 2:
				for j := range logits { // ties
					logits[j] = float32(int(logits[j]))
				}
			}
			st := meridian.ReferenceProbe(logits, nil)
			st.LogSumExp += (2*r.Float64() - 1) * runtime.LogSumExpError
			want, wantErr := a.Sample(logits)
			got, err := b.SampleProbed(logits, &st)
			if err != wantErr || got.Token != want.Token || got.Logprob != want.Logprob ||
				!slices.Equal(got.Top, want.Top) {
				t.Fatalf("seed %d, row %d, n %d: %+v (%v), want %+v (%v); %+v", seed, i, n, got, err, want, wantErr, p)
			}
			if !reflect.DeepEqual(scratch.cands, plain.cands) && p.Temperature > 0 && !a.greedy() && p.Logprobs == 0 {
				t.Fatalf("seed %d, row %d, n %d: other candidates; %+v", seed, i, n, p)
			}
			if err == nil {
				a.Accept(want.Token)
				b.Accept(got.Token)
			}
			// How often the short way to top_p is taken.
			if p.TopP < 1 && p.TopK == 0 && !b.greedy() && st.NonFinite == 0 {
				scratch.known = &st
				scratch.adjust(b, logits)
				if top, ok := scratch.best(); ok && top.id >= 0 {
					told++
					scratch.max, scratch.floor, scratch.cands = top.logit, -700+top.logit, scratch.cands[:0]
					if _, ok := scratch.knownPrefix(logits, float64(p.TopP)); ok {
						prefixes++
					}
				}
				scratch.known = nil
			}
		}
	}
	if told < 400 || prefixes < told*8/10 {
		t.Errorf("the known mass was enough for %d of %d rows", prefixes, told)
	}
	t.Logf("the known mass was enough for %d of %d rows", prefixes, told)
}

// TestMassPrefixSlack: whatever target lies within the slack, either the same prefix in the same order comes out, or
// the function says that it is not sure.
func TestMassPrefixSlack(t *testing.T) {
	sure := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 8))
		cands := make([]candidate, 1+r.IntN(200))
		sum := 0.0
		for i := range cands {
			cands[i] = candidate{id: int32(i), logit: float32(r.NormFloat64())}
			cands[i].p = float32(exp(cands[i].logit - 4))
			sum += float64(cands[i].p)
		}
		target, slack := r.Float64()*sum*1.01, sum*1e-3
		a, b := slices.Clone(cands), slices.Clone(cands)
		n, ok := massPrefix(a, target, slack)
		if !ok {
			continue
		}
		sure++
		m, _ := massPrefix(b, target+(2*r.Float64()-1)*slack, 0)
		if n != m || !slices.Equal(a[:n], b[:m]) {
			t.Fatalf("seed %d: a prefix of %d, and of %d for a target within the slack", seed, n, m)
		}
	}
	if sure < 1000 {
		t.Errorf("sure %d times of 3000", sure)
	}
}

// BenchmarkProbedSample is Sample with and without the row's statistics; of_plain is the ratio of the two.
func BenchmarkProbedSample(b *testing.B) {
	for _, n := range []int{49_152, 152_064} {
		rows := rows(n)
		stats := make([]runtime.RowStats, len(rows))
		for i, row := range rows {
			stats[i] = meridian.ReferenceProbe(row, nil)
		}
		for _, c := range benchParams {
			b.Run(name(n, c.name), func(b *testing.B) {
				chain := New(c.p, VocabFacts{Size: n}, new(Scratch))
				for i := range int32(200) {
					chain.Accept(i * 37)
				}
				var plain time.Duration
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					b.StopTimer()
					start := time.Now()
					chain.Sample(rows[i%len(rows)])
					plain += time.Since(start)
					b.StartTimer()
					if _, err := chain.SampleProbed(rows[i%len(rows)], &stats[i%len(rows)]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed())/float64(plain), "of_plain")
			})
		}
	}
}

func TestSampleProbedAllocs(t *testing.T) {
	rows := rows(5000)
	for _, c := range benchParams {
		chain := New(c.p, VocabFacts{Size: 5000}, new(Scratch))
		i := 0
		var st runtime.RowStats
		turn := func() {
			row := rows[i%len(rows)]
			meridian.ProbeRow(row, nil, &st)
			choice, err := chain.SampleProbed(row, &st)
			if err != nil {
				t.Fatal(err)
			}
			chain.Accept(choice.Token)
			i++
		}
		for range len(rows) {
			turn()
		}
		if n := testing.AllocsPerRun(200, turn); n != 0 {
			t.Errorf("%s: %v allocations a token", c.name, n)
		}
	}
}
