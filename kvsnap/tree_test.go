package kvsnap

import (
	"errors"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/meridian/blocks"
)

func newTree(t testing.TB, cfg Config) *Tree {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// textOf is n tokens that no other seed has.
func textOf(seed, n int) []Token {
	out := make([]Token, n, n+4096)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = Token(x>>40) & 0x3ffff
	}
	return out
}

// serve runs a request from start to end with all of its tokens kept, making room as a daemon does. It returns how many
// tokens were cached.
func serve(t testing.TB, tr *Tree, now Instant, req uint64, tokens []Token) int {
	t.Helper()
	s, err := tr.Acquire(now, &Prompt{Req: req, Tokens: tokens, NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	if short := len(tokens) - s.Cached - tr.Cells().Free; short > 0 {
		if freed, _, _ := tr.EvictCells(short); freed < short {
			t.Fatalf("%d cells freed of %d: %+v", freed, short, tr.Cells())
		}
	}
	tr.Progress(s.Seq, tokens, len(tokens), blocks.Prefix)
	tr.Retain(now, s.Seq, tokens)
	if err := tr.Check(); err != nil {
		t.Fatal(err)
	}
	return s.Cached
}

// TestOneShotsDoNotPushOutAConversation: between the turns of a chat come as many cells of prompts that are not sent
// again as the pool has. Least recently used alone would lose the chat each time.
func TestOneShotsDoNotPushOutAConversation(t *testing.T) {
	const cells, system = 8192, 256
	tr := newTree(t, Config{Cells: cells, Sequences: 64})
	sys := textOf(1, system)
	chat := append(slices.Clone(sys), textOf(2, 500)...)
	req, shot, lost := uint64(0), 100, 0
	for turn := range 12 {
		req++
		got := serve(t, tr, Instant(req), req, chat)
		if turn >= 2 && got < len(chat)-200 {
			lost++
			t.Logf("turn %d: %d of %d tokens cached", turn, got, len(chat))
		}
		chat = append(slices.Clone(chat), textOf(1000+turn, 200)...)
		for sent := 0; sent < cells; sent += 1000 {
			req++
			shot++
			serve(t, tr, Instant(req), req, append(slices.Clone(sys), textOf(shot, 1000)...))
		}
	}
	if lost > 0 {
		t.Errorf("the conversation was pushed out before %d of 10 turns", lost)
	}
}

// TestWhatIsForgottenGoes: a conversation that is over does not stay for ever, however often it was used.
func TestWhatIsForgottenGoes(t *testing.T) {
	const cells = 4096
	tr := newTree(t, Config{Cells: cells, Sequences: 32})
	chat := textOf(1, 1000)
	req := uint64(0)
	for range 30 {
		req++
		serve(t, tr, Instant(req), req, chat)
	}
	for i := range 400 {
		req++
		serve(t, tr, Instant(req), req, textOf(100+i, 500))
	}
	if m := tr.Lookup(&Prompt{Tokens: append(slices.Clone(chat), 1)}); m.Len > 0 {
		t.Errorf("%d tokens are still there after 200,000 others", m.Len)
	}
}

// TestPromptSharedByMany is the judged case: 16 requests with a common prefix, 4 at a time; it is computed once.
func TestPromptSharedByMany(t *testing.T) {
	const common, own = 1024, 32
	tr := newTree(t, Config{Cells: 4096, Sequences: 16})
	head := textOf(1, common)
	var queue []uint64
	prompts := map[uint64][]Token{}
	for i := range uint64(16) {
		queue = append(queue, i+1)
		prompts[i+1] = append(slices.Clone(head), textOf(int(i)+10, own)...)
	}
	running := map[uint64]Seq{}
	done := map[Seq]int{}
	computed, held := 0, 0
	for steps := 0; len(queue)+len(running)+held > 0; steps++ {
		if steps > 1000 {
			t.Fatal("it does not end")
		}
		for len(running)+held < 4 && len(queue) > 0 {
			id := queue[0]
			queue = queue[1:]
			s, err := tr.Acquire(Instant(steps), &Prompt{Req: id, Tokens: prompts[id]})
			if err != nil {
				t.Fatal(err)
			}
			if s.Waiting {
				held++
				continue
			}
			running[id], done[s.Seq] = s.Seq, s.Cached
		}
		for id := uint64(1); id <= 16; id++ {
			s, is := running[id]
			if !is {
				continue
			}
			n := min(256, len(prompts[id])-done[s])
			computed += n
			done[s] += n
			wake := slices.Clone(tr.Progress(s, prompts[id], done[s], blocks.Prefix))
			held -= len(wake)
			queue = append(wake, queue...)
			if done[s] == len(prompts[id]) {
				tr.Retain(Instant(steps), s, prompts[id])
				delete(running, id)
			}
			if err := tr.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := common + 16*own; computed != want {
		t.Errorf("%d tokens were computed, want %d", computed, want)
	}
}

// TestReserve: boundaries that are kept apart for their worth never use up the arena.
func TestReserve(t *testing.T) {
	tr := newTree(t, Config{Cells: 1 << 20, Sequences: 2, DoubleAt: 1 << 30})
	text := textOf(1, 4000)
	serve(t, tr, 0, 1000, text)
	least := len(tr.spare)
	for i := range 400 {
		n := 3990 - i*9
		s, err := tr.Acquire(Instant(i), &Prompt{Req: uint64(i), Tokens: text[:n+1], NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		tr.Progress(s.Seq, text[:n+1], n+1, blocks.Prefix)
		tr.Release(s.Seq)
		least = min(least, len(tr.spare))
		if err := tr.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if least > 2 {
		t.Errorf("%d nodes or more were spare at all times: too few to need any joined", least)
	}
}

func TestPinLimits(t *testing.T) {
	tr := newTree(t, Config{Cells: 1000, Sequences: 8, CellBytes: 10})
	for i := range 4 {
		serve(t, tr, 1, uint64(i+1), textOf(i+1, 200))
	}
	for id := uint64(1); id <= 2; id++ {
		if err := tr.Pin(id); err != nil {
			t.Fatal(err)
		}
		if err := tr.Pin(id); err != nil {
			t.Error("a second pin is an error:", err)
		}
	}
	if err := tr.Pin(3); err == nil || errors.Is(err, ErrNoEntry) {
		t.Errorf("600 of 1000 cells were pinned: %v", err)
	}
	if freed, _, _ := tr.EvictCells(1000); freed != 400 || tr.Cells().Cached != 0 {
		t.Errorf("%d cells freed beside 400 pinned", freed)
	}
	if c := tr.Cells(); c.Pinned != 400 || c.Free != 600 {
		t.Errorf("%+v", c)
	}
}

func TestEntriesHaveDistinctHashes(t *testing.T) {
	tr := newTree(t, Config{Cells: 1000, Sequences: 8})
	serve(t, tr, 1, 1, textOf(1, 100))
	serve(t, tr, 1, 2, textOf(2, 103))
	e := tr.Entries(nil)
	if len(e) != 2 || e[0].Hash == e[1].Hash || len(e[0].Hash) != 16 {
		t.Fatalf("%+v", e)
	}
	if _, err := tr.Tokens(99); !errors.Is(err, ErrNoEntry) {
		t.Error(err)
	}
}

// TestAcquireMatchMatchesOnce: a start hashes and matches its prompt once, unless the tree changed in between.
func TestAcquireMatchMatchesOnce(t *testing.T) {
	tr := newTree(t, Config{Cells: 2000, Sequences: 8})
	text := textOf(1, 400)
	serve(t, tr, 1, 1, text[:300])

	p := Prompt{Req: 2, Tokens: text}
	m := tr.Lookup(&p)
	matches := tr.matchNo
	got, err := tr.AcquireMatch(2, &p, &m)
	if err != nil || got.Cached != 300 || got.Match.Reason != ReasonEnded {
		t.Fatalf("%+v, %v", got, err)
	}
	if tr.matchNo != matches {
		t.Errorf("the prompt was matched %d times after the lookup", tr.matchNo-matches)
	}
	if q := &tr.seqs[got.Seq]; !slices.Equal(q.hashes, hashBlocks(nil, 0, text)) {
		t.Error("the sequence has another prompt's hashes")
	}

	for _, test := range []struct {
		name   string
		change func()
	}{
		{"lookup", func() { tr.Lookup(&Prompt{Req: 9, Tokens: textOf(7, 64)}) }},
		{"progress", func() { tr.Progress(got.Seq, text, 350, blocks.Prefix) }},
		{"evict", func() { tr.Retain(3, got.Seq, text); tr.EvictCells(100) }},
		{"drop", func() {
			for _, e := range tr.Entries(nil) {
				if _, err := tr.Drop(e.ID); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		name := test.name
		p := Prompt{Req: 100, Tokens: text, NoWait: true}
		old := tr.Lookup(&p)
		test.change()
		want := tr.Lookup(&p)
		tr.Lookup(&Prompt{Req: 10, Tokens: textOf(8, 64)})
		again, err := tr.AcquireMatch(4, &p, &old)
		if err != nil || again.Cached != want.Len || !slices.Equal(tr.seqs[again.Seq].hashes,
			hashBlocks(nil, 0, text)) {
			t.Errorf("%s: %d tokens acquired, %d are resident, error %v", name, again.Cached, want.Len, err)
		}
		tr.Release(again.Seq)
		if err := tr.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestBadCalls(t *testing.T) {
	for _, c := range []Config{{}, {Cells: 1}, {Cells: 1, Sequences: 257}, {Cells: 1, Sequences: 1, Scratch: 1},
		{Cells: 1, Sequences: 1, JoinMin: -1}, {Cells: 1, Sequences: 1, CellBytes: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	tr := newTree(t, Config{Cells: 10, Sequences: 2, Scratch: 1})
	if tr.ScratchSeq(0) != 1 {
		t.Errorf("scratch sequence %d", tr.ScratchSeq(0))
	}
	if _, err := tr.Acquire(0, &Prompt{}); err == nil {
		t.Error("a prompt without tokens was started")
	}
	if m := tr.Lookup(&Prompt{}); m.Len != 0 {
		t.Error(m)
	}
	s, _ := tr.Acquire(0, &Prompt{Req: 1, Tokens: textOf(1, 20)})
	for name, f := range map[string]func(){
		"more than the pool":   func() { tr.Progress(s.Seq, textOf(1, 20), 20, blocks.Prefix) },
		"more than the tokens": func() { tr.Progress(s.Seq, textOf(1, 3), 4, blocks.Prefix) },
		"a sequence unknown":   func() { tr.Progress(1, nil, 0, blocks.Prefix) },
		"a sequence negative":  func() { tr.Release(-1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was accepted", name)
				}
			}()
			f()
		}()
	}
	if err := tr.Check(); err != nil {
		t.Error(err)
	}
}

func TestSketch(t *testing.T) {
	s := newSketch(100, 7)
	for k := range uint64(50) {
		for range k%5 + 1 {
			s.add(mum(k, 3))
		}
	}
	for k := range uint64(50) {
		if got := s.estimate(mum(k, 3)); got < int(k%5+1) {
			t.Errorf("key %d: %d times, estimated %d", k, k%5+1, got)
		}
	}
	for range 100 {
		s.add(1)
	}
	if s.estimate(1) != sketchMax {
		t.Errorf("%d after 100", s.estimate(1))
	}
	for k := range uint64(s.halveAt) {
		s.add(mum(k, 5))
	}
	if got := s.estimate(1); got > sketchMax/2+1 {
		t.Errorf("%d after a halving", got)
	}
}

// TestAllocateNothing: the calls of a decoded token make no garbage, whether its sequence shares its prompt or not.
func TestAllocateNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks of this build allocate")
	}
	tr := newTree(t, Config{Cells: 1 << 16, Sequences: 64})
	head := textOf(1, 1000)
	type run struct {
		seq    Seq
		tokens []Token
	}
	var runs []run
	for i := range 8 {
		tokens := append(slices.Clone(head), textOf(i+2, 100)...)
		tokens = slices.Grow(tokens, 8192)
		s, err := tr.Acquire(1, &Prompt{Req: uint64(i + 1), Tokens: tokens, NoWait: true})
		if err != nil {
			t.Fatal(err)
		}
		tr.Progress(s.Seq, tokens, len(tokens), blocks.Prefix)
		runs = append(runs, run{s.Seq, tokens})
	}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range runs {
			r := &runs[i]
			r.tokens = append(r.tokens, 5)
			tr.Progress(r.seq, r.tokens, len(r.tokens), blocks.Prefix)
		}
	}); n != 0 {
		t.Errorf("a step of 8 tokens allocates %v times", n)
	}
	p := Prompt{Tokens: append(slices.Clone(head), 1)}
	tr.Lookup(&p)
	if n := testing.AllocsPerRun(100, func() { tr.Lookup(&p) }); n != 0 {
		t.Errorf("a lookup allocates %v times", n)
	}
}

// full is a tree whose ids are used up by conversations behind one system prompt.
func full(b *testing.B, n int) (*Tree, []Token) {
	tr := newTree(b, Config{Cells: 1 << 22, Sequences: 256})
	sys := textOf(1, 1024)
	var last []Token
	for i := range 250 {
		last = append(slices.Clone(sys), textOf(i+2, n-1024)...)
		s, err := tr.Acquire(Instant(i), &Prompt{Req: uint64(i + 1), Tokens: last, NoWait: true})
		if err != nil {
			b.Fatal(err)
		}
		tr.Progress(s.Seq, last, len(last), blocks.Prefix)
		tr.Retain(Instant(i), s.Seq, last)
	}
	return tr, last
}

func BenchmarkLookup4k(b *testing.B) {
	tr, last := full(b, 4096)
	p := Prompt{Req: 999, Tokens: append(last, 7)}
	b.ReportAllocs()
	for b.Loop() {
		if m := tr.Lookup(&p); m.Len != 4096 {
			b.Fatal(m)
		}
	}
}

func BenchmarkStartRelease4k(b *testing.B) {
	tr, last := full(b, 4096)
	p := Prompt{Req: 999, Tokens: append(last, 7)}
	b.ReportAllocs()
	for b.Loop() {
		s, err := tr.Acquire(1, &p)
		if err != nil {
			b.Fatal(err)
		}
		tr.Release(s.Seq)
	}
}

func BenchmarkTurn4k(b *testing.B) {
	tr, last := full(b, 4096)
	req := uint64(1000)
	b.ReportAllocs()
	for b.Loop() {
		req++
		s, err := tr.Acquire(Instant(req), &Prompt{Req: req, Tokens: last})
		if err != nil {
			b.Fatal(err)
		}
		tr.Progress(s.Seq, last, len(last), blocks.Prefix)
		tr.Retain(Instant(req), s.Seq, last)
	}
}

func BenchmarkToken(b *testing.B) {
	tr, last := full(b, 4096)
	tokens := slices.Grow(slices.Clone(last), 1<<20)
	s, err := tr.Acquire(1, &Prompt{Req: 999, Tokens: tokens})
	if err != nil {
		b.Fatal(err)
	}
	n := s.Cached
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if n == 1<<20 {
			b.StopTimer()
			tr.Release(s.Seq)
			s, _ = tr.Acquire(1, &Prompt{Req: 999, Tokens: tokens})
			n = s.Cached
			b.StartTimer()
		}
		n++
		tokens = tokens[:max(n, len(last))]
		tr.Progress(s.Seq, tokens, n, blocks.Prefix)
	}
}

func BenchmarkEvict(b *testing.B) {
	tr, _ := full(b, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if freed, _, _ := tr.EvictCells(256); freed == 0 {
			b.StopTimer()
			tr, _ = full(b, 4096)
			b.StartTimer()
		}
	}
}

// TestBase: a prompt whose first tokens have the cells of another namespace shares those with it and with others of
// that base, as far as both go, and the rest with its own namespace alone.
func TestBase(t *testing.T) {
	tokens := func(n int) []Token {
		out := make([]Token, n)
		for i := range out {
			out[i] = Token(i + 1)
		}
		return out
	}
	const base, one, two, other = 7, 1, 2, 3
	for _, c := range []struct {
		held, wants Prompt
		want        int
	}{
		{Prompt{NS: base}, Prompt{NS: one, Base: base, BaseLen: 40}, 40},
		{Prompt{NS: one, Base: base, BaseLen: 40}, Prompt{NS: base}, 40},
		{Prompt{NS: one, Base: base, BaseLen: 40}, Prompt{NS: two, Base: base, BaseLen: 60}, 40},
		{Prompt{NS: one, Base: base, BaseLen: 60}, Prompt{NS: two, Base: base, BaseLen: 40}, 40},
		{Prompt{NS: one, Base: base, BaseLen: 40}, Prompt{NS: one, Base: base, BaseLen: 40}, 99},
		{Prompt{NS: one, Base: base, BaseLen: 40}, Prompt{NS: other}, 0},
		{Prompt{NS: one, Base: base, BaseLen: 40}, Prompt{NS: two, Base: other, BaseLen: 40}, 0},
		{Prompt{NS: base}, Prompt{NS: two, Base: other, BaseLen: 40}, 0},
		{Prompt{NS: one}, Prompt{NS: two, Base: one, BaseLen: 500}, 99},
		{Prompt{NS: 0}, Prompt{NS: two, Base: 0, BaseLen: 40}, 40},
	} {
		tree, err := New(Config{Cells: 512, Sequences: 8})
		if err != nil {
			t.Fatal(err)
		}
		c.held.Tokens, c.wants.Tokens = tokens(100), tokens(100)
		got, err := tree.Acquire(1, &c.held)
		if err != nil {
			t.Fatal(err)
		}
		tree.Progress(got.Seq, c.held.Tokens, 100, blocks.Prefix)
		tree.Retain(2, got.Seq, c.held.Tokens)
		if m := tree.Lookup(&c.wants); m.Len != c.want {
			t.Errorf("%+v beside %+v: %d tokens, want %d", c.wants.NS, c.held.NS, m.Len, c.want)
		}
	}
}
