package core

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// operations is the number of random operations of TestRandomOperations: 100,000 in a test run, ten million by hand
// (-operations 10000000).
var operations = flag.Int("operations", 100_000, "random operations of TestRandomOperations")

// first is the seed of the first random life, to repeat one or to go on behind it: life n of a run has seed first + n.
var first = flag.Uint64("first", 0, "seed of the first life of TestRandomOperations")

// life is a random life of a server: what happens to it, operation by operation.
type life struct {
	*machine
	rng       *rand.Rand
	recording *bytes.Buffer
	lastID    ID
	paused    map[ID]bool
	loses     bool // the store loses parts, those too that a restore is about to read
	noTexts   bool // the engine makes no embeddings
	vocab     int
	draw      answer
	asked     map[ID]*Request
	counts    map[string]int
}

// shape holds the limits of the engine for a life. Lives of one seed and shape are the same on every engine.
type shape struct {
	cells, sequences, batch, vocab int
	seals, embeds                  bool
}

func shapeOf(e runtime.Engine) *shape {
	c := e.Capabilities()
	return &shape{c.ContextTokens, c.MaxSequences, c.MaxBatch, e.Model().VocabSize, c.Seals,
		c.MaxEmbeddingRows > 0}
}

// newLife makes a server of this shape, or of a random one.
func newLife(seed uint64, s *shape) (*life, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	policies := sched.Policies()
	cells := []int{96, 160, 400}[rng.IntN(3)]
	cfg := testConfig(cells, 1+rng.IntN(6), 16+rng.IntN(48), policies[rng.IntN(len(policies))])
	vocab := 1 << 30
	if s != nil {
		cfg = testConfig(s.cells, min(4, MaxRunning(s.sequences)-8), min(32, s.batch), cfg.Sched.Policy)
		cfg.Sequences, vocab = s.sequences, s.vocab
	}
	if rng.IntN(2) == 0 {
		cfg.PartTokens, cfg.Durable = []int{16, 32}[rng.IntN(2)], rng.IntN(2) == 0
		cfg.ThinkEvict = OffloadThoughts
	}
	cfg.ShareSystem = rng.IntN(3) == 0
	cfg.Sched.EveryRows = cfg.Sched.MaxBatch/4 + rng.IntN(cfg.Sched.MaxBatch)
	if rng.IntN(2) == 0 {
		cfg.Draft = DraftConfig{Sequences: 1 + rng.IntN(4), Cells: 64 + rng.IntN(cells), Batch: 8 + rng.IntN(64),
			Tokens: vocab, Cost: 0.1}
		if s == nil && seed%3 == 1 { // a head
			cfg.Draft.States = 2 + int(seed%40)
			if seed%2 == 1 { // that guesses blocks
				cfg.Draft.Block = 2 + int(seed%5)
			}
		}
		if s == nil && seed%3 == 2 { // a head that reads the model's cells
			cfg.Draft.States, cfg.Draft.Shared = 2+int(seed%40), true
		}
	}
	if s == nil && rng.IntN(4) == 0 || s != nil && s.seals { // the test's store knows parts only
		cfg.Seals, cfg.CanShift, cfg.PartTokens, cfg.Durable, cfg.ThinkEvict = true, false, 0, false, ""
	}
	recording := &bytes.Buffer{}
	cfg.Trace = &Trace{Write: func(lines []byte) { recording.Write(lines) }}
	m, err := newMachine(cfg)
	if err != nil {
		return nil, err
	}
	l := &life{
		machine: m, recording: recording, rng: rng, vocab: vocab, loses: seed%4 == 3, noTexts: s != nil && !s.embeds,
		paused: map[ID]bool{}, asked: map[ID]*Request{}, counts: map[string]int{},
	}
	l.draw = func(r *Request, _ int) (Token, bool) { return l.says(r.Tokens), false }
	l.guess = func(tokens []Token) Token {
		if tok := l.says(tokens); tok%5 > 0 {
			return tok
		}
		return 7
	}
	l.draftFull = func() bool { return rng.IntN(20) == 0 }
	if rng.IntN(8) == 0 {
		l.draftFails = func() bool { return rng.IntN(60) == 0 }
	}
	if s == nil {
		l.forced = func(r *Request) int {
			if r.Control.Phase() != meridian.OutputDecode || rng.IntN(5) > 0 {
				return 0
			}
			return max(0, min(rng.IntN(20), r.MaxTokens-r.Generated()-2))
		}
	}
	return l, nil
}

// says returns the token that the model of these tests generates after tokens. Prompts use the lower half of the
// vocabulary and answers the upper half, so that shared prefixes do not depend on the model.
func (l *life) says(tokens []Token) Token {
	h := uint32(2166136261)
	for _, t := range tokens {
		h = (h ^ uint32(t)) * 16777619
	}
	// It mostly repeats what it said a few tokens before, so that guesses come true.
	if n := len(tokens); n > 5 && h>>8%8 > 0 && int(tokens[n-5]) >= l.vocab/2 {
		return tokens[n-5]
	}
	return Token(l.vocab/2 + int(h)%(l.vocab/2))
}

// operation makes one random thing happen and names it.
func (l *life) operation() string {
	live := l.ids()
	pick := func() ID { return live[l.rng.IntN(len(live))] }
	switch n := l.rng.IntN(100); {
	case n < 70 || len(live) == 0 && n >= 85:
		if n < 10 { // another engine has the device
			l.c.Handle(l.now, Input{Kind: Limit, Limit: time.Duration(l.rng.IntN(3)) * 20 * time.Millisecond,
				Waited: time.Duration(l.rng.IntN(40)) * time.Millisecond})
		}
		l.turn()
		return "step"
	case n < 85:
		if len(live) >= 24 {
			return "nothing"
		}
		l.arrival()
		return "arrive"
	case n < 89:
		l.c.Handle(l.now, Input{Kind: Cancel, Req: pick()})
		return "cancel"
	case n < 93:
		id := pick()
		kind := Pause
		if l.paused[id] {
			kind = Resume
		}
		l.paused[id] = !l.paused[id]
		l.c.Handle(l.now, Input{Kind: kind, Req: id})
		return "pause"
	case n < 94:
		l.c.Handle(l.now, Input{Kind: Threads, N: 1 + l.rng.IntN(3), Disturbed: l.rng.IntN(2) == 0})
		return "threads"
	case n < 95:
		l.c.Handle(l.now, Input{Kind: EndThink, Req: pick()})
		return "end think"
	case n < 97 && l.store != nil:
		l.store.slow = !l.store.slow
		l.store.full = !l.store.full && l.rng.IntN(4) == 0
		if l.loses && l.rng.IntN(2) == 0 {
			keys := slices.Sorted(maps.Keys(l.store.parts))
			l.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, key := range keys[:len(keys)/3] {
				delete(l.store.parts, key)
			}
			return "loss"
		}
		return "store"
	default:
		entries := slices.DeleteFunc(l.c.tree.Entries(nil), func(e kvsnap.Entry) bool { return e.Running })
		if len(entries) == 0 {
			return "nothing"
		}
		e := entries[l.rng.IntN(len(entries))]
		switch l.rng.IntN(3) {
		case 0:
			l.c.Drop(e.ID) // a pinned one goes too
		case 1:
			if l.c.tree.Cells().Pinned < l.cfg.Sched.Cells/4 {
				l.c.Pin(e.ID)
			}
		default:
			l.c.Unpin(e.ID)
		}
		return "prefix"
	}
}

func (l *life) ids() []ID {
	var ids []ID
	for id := range l.want {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// arrival is a request that often begins like others.
func (l *life) arrival() {
	l.lastID++
	most := l.cfg.Sched.Cells * 2 / 3
	head := stream(fmt.Sprint("s", l.rng.IntN(4)), 1+l.rng.IntN(most/2))
	body := stream(fmt.Sprint("p", l.rng.IntN(12)), l.rng.IntN(most/3))
	r := &Request{ID: l.lastID, Spec: &Spec{Spec: sched.Spec{Owner: uint32(l.rng.IntN(3)),
		MaxTokens: 1 + l.rng.IntN(most/4)}, Chat: l.rng.IntN(3) == 0}}
	r.Tokens = append(head, body...)
	for i := range r.Tokens {
		r.Tokens[i] %= Token(l.vocab / 2)
	}
	r.Prompt = len(r.Tokens)
	if o := l.asked[ID(l.rng.IntN(int(l.lastID)))]; o != nil && o.Prompt < most/2 && o.cut == 0 { // asked again
		r.Owner, r.Tokens, r.Prompt = o.Owner, slices.Clone(o.Tokens[:o.Prompt]), o.Prompt
	}
	r.Shareable = l.rng.IntN(min(len(head), r.Prompt) + 1)
	if l.rng.IntN(4) == 0 {
		r.Class = sched.Background
	}
	if l.rng.IntN(5) == 0 && !l.noTexts {
		r.Kind, r.EveryRow, r.MaxTokens = Embed, l.rng.IntN(2) == 0, 1
		r.Whole = l.rng.IntN(2) == 0 && r.Prompt <= l.cfg.Sched.EveryRows
		l.asked[r.ID] = r
		l.arrive(r)
		return
	}
	r.Speculate = max(0, l.rng.IntN(2*MaxGuess)-MaxGuess/2)
	s := &script{}
	if l.rng.IntN(3) == 0 {
		if l.store != nil && most > 100 && l.rng.IntN(2) == 0 { // long enough to be offloaded
			r.MaxTokens = 2*minThought + l.rng.IntN(most/2)
			r.Tokens = r.Tokens[:min(len(r.Tokens), most-r.MaxTokens)]
			r.Prompt, r.Shareable = len(r.Tokens), min(r.Shareable, len(r.Tokens))
		}
		s.think = 1 + l.rng.IntN(r.MaxTokens)
		s.forks = map[int]int{1 + l.rng.IntN(s.think): 1 + l.rng.IntN(6)}
	}
	r.Control = s
	l.asked[r.ID] = r
	l.arrive(r)
}

// turn is one step.
func (l *life) turn() {
	before, had := l.c.ledger.Evictions().Cells, l.evictable()
	s := l.next()
	if err := l.inOrder(before, had); err != nil {
		panic(err)
	}
	for tier, n := range l.c.ledger.Evictions().Cells {
		if n[blocks.Pressure] > before[tier][blocks.Pressure] {
			l.counts[fmt.Sprintf("evicted %v", blocks.Tier(tier))]++
		}
	}
	for i := range s.Notes {
		n := &s.Notes[i]
		l.counts[noteNames[n.Kind]]++
		if n.Kind == Verified {
			l.counts["accepted"] += n.Accepted
			l.counts["rolled back"] += n.N - n.Accepted
			l.counts[fmt.Sprintf("accepted of %v", n.Source)] += n.Accepted
		}
	}
	for i := range s.Ops {
		l.counts[opNames[s.Ops[i].Kind]]++
	}
	for i := range s.Ends {
		l.counts[endNames[s.Ends[i].Kind]]++
	}
	for _, r := range s.Histories {
		in := Input{Kind: History, Req: r.ID}
		switch l.rng.IntN(3) {
		case 0:
			in.Tokens = slices.Clone(r.Tokens[:l.rng.IntN(len(r.Tokens)+1)])
		case 1:
			in.Tokens = append(slices.Clone(r.Tokens[:r.Prompt]), 1, 2, 3)
		}
		l.c.Handle(l.now, in)
	}
	outcome := sched.StepOK
	switch l.rng.IntN(60) {
	case 0:
		outcome = sched.StepAborted
	case 1:
		outcome = sched.StepKVFull
	}
	if s.Plan.Bound != (sched.Bound{}) && l.rng.IntN(4) == 0 {
		outcome = sched.StepLate
	}
	if l.cfg.Seals && (outcome == sched.StepAborted || outcome == sched.StepLate) {
		outcome = sched.StepOK // a state cannot go back
	}
	l.machine.done(outcome, l.draw)
	l.now = max(l.now, s.WakeAt)
	if l.store == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.store.fetches)) {
		if l.store.slow && l.rng.IntN(2) == 0 {
			l.store.fetches[id].broken = l.rng.IntN(10) == 0
			l.atHand(id)
			return
		}
	}
}

// finish lets everything end.
func (l *life) finish() error {
	if l.store != nil {
		l.store.slow = false
	}
	for _, id := range slices.Sorted(maps.Keys(l.paused)) {
		if l.paused[id] {
			l.c.Handle(l.now, Input{Kind: Resume, Req: id})
		}
	}
	for range 20_000 {
		if l.store != nil {
			for _, id := range slices.Sorted(maps.Keys(l.store.fetches)) {
				l.atHand(id)
			}
		}
		s := l.next()
		for _, r := range s.Histories {
			l.c.Handle(l.now, Input{Kind: History, Req: r.ID})
		}
		l.machine.done(sched.StepOK, l.draw)
		l.now = max(l.now, s.WakeAt)
		if s.Idle && len(l.want) == 0 && l.c.Quiet() {
			break
		}
	}
	cells := l.c.tree.Cells()
	switch {
	case len(l.want) > 0:
		return fmt.Errorf("%d requests never end: %v", len(l.want), l.ids())
	case cells.Own+cells.Shared > 0 || !l.c.Quiet():
		return fmt.Errorf("nothing runs, and %+v; quiet %v", cells, l.c.Quiet())
	case len(l.refs) != l.cfg.Sched.Cells-cells.Free:
		return fmt.Errorf("%d cells are held, the books say %d", len(l.refs), l.cfg.Sched.Cells-cells.Free)
	}
	for id, r := range l.asked {
		for i := r.Prompt; i < len(r.Tokens); i++ {
			if r.Tokens[i] != l.says(r.Tokens[:i]) {
				return fmt.Errorf("request %d: token %d is not what the model says", id, i)
			}
		}
	}
	return nil
}

// run makes n operations, checks the books after each, and lets everything end.
func (l *life) run(n int) (err error) {
	what := ""
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("after %v, in %q: %v", l.counts, what, p)
		}
	}()
	for range n {
		what = l.operation()
		l.counts[what]++
		if err := l.c.tree.Check(); err != nil {
			return err
		}
	}
	what = "finish"
	return l.finish()
}

// live runs n operations on one server that has no engine, and replays its recording.
func live(seed uint64, n int) (l *life, err error) {
	if l, err = newLife(seed, nil); err != nil {
		return nil, err
	}
	if err := l.run(n); err != nil {
		return l, err
	}
	got, err := Replay(l.recording.Bytes())
	if err == nil && got.Steps == 0 {
		err = fmt.Errorf("the replay had no step")
	}
	return l, err
}

// opNames are operations in the counts of a random life, which must have come across most of them, or the test shows
// too little.
var opNames = [...]string{"", "seq copy", "seq remove", "seq shift", "copy out", "fetch", "skip part", "copy in",
	"close fetch", "flush", "compute", "offload block", "draft remove"}

// TestRandomOperations: whatever happens in whatever order, every cell holds what its request computed, the books are
// conserved after each operation, cells are evicted in the order of the tiers, every request ends once, and its answer
// is what it would be alone. The recording of it replays, step for step.
func TestRandomOperations(t *testing.T) {
	const each = 500
	seen := map[string]int{}
	for seed := *first; seed < *first+uint64(*operations/each); seed++ {
		l, err := live(seed, each)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for what, n := range l.counts {
			seen[what] += n
		}
	}
	t.Log(seen)
	if *operations < 100_000 {
		return // too few for all of these to happen
	}
	for _, what := range []string{
		"started", "preempted", "parked", "recomputed", "unpinned", "restored", "seq copy", "copy out", "fetch",
		"skip part", "copy in", "flush", "cancelled", "failed", "offload block", "verified", "accepted", "rolled back",
		"accepted of own", "accepted of other", "accepted of draft-model", "accepted of head", "draft remove",
		"evicted prefix", "evicted think_complete", "evicted think_active", "evicted output_critical",
	} {
		if seen[what] == 0 {
			t.Errorf("%q never happened", what)
		}
	}
}

// TestFoundLives: lives in which longer runs of TestRandomOperations have found an error.
func TestFoundLives(t *testing.T) {
	for _, seed := range []uint64{
		1292, // a text that is computed whole waited for ever after a full cache
		6081, // a thought was copied out whose end had been evicted
	} {
		if _, err := live(seed, 500); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestRandomOperationsOnEngines: the same life on the fake engine as on none. llama.cpp is in llama_test.go.
func TestRandomOperationsOnEngines(t *testing.T) {
	f := fake.Config{Seed: 7}
	f.ContextTokens, f.Batch, f.Sequences = 240, 32, 24
	alone := fake.New(f)
	f.Begin = func(time.Duration) {}
	eng := fake.New(f)
	for seed := range uint64(20) {
		onEngine(t, seed, 400, shapeOf(eng), eng, alone, 0)
	}
}

// onEngine runs a random life without an engine and again on eng. Both make the same recording, byte for byte: what
// came, what each step decided, and every token. The tokens are those of life.says, so that they do not depend on the
// engine; what eng would have said instead is, at each of them, what alone says to the same history and nothing else.
// Tokens whose logits there are less than tie apart are the same.
func onEngine(t *testing.T, seed uint64, n int, s *shape, eng, alone runtime.Engine, tie float32) {
	t.Helper()
	var lives [2]*life
	said := map[ID][]Token{}
	for i := range lives {
		l, err := newLife(seed, s)
		if err != nil {
			t.Fatal(err)
		}
		if lives[i] = l; i == 1 {
			for seq := range Seq(s.sequences) {
				eng.SeqRemove(seq, 0, -1)
			}
			says := l.draw
			l.eng = eng
			l.draw = func(r *Request, row int) (Token, bool) {
				said[r.ID] = append(said[r.ID], argmax(eng.Logits(row)))
				return says(r, row)
			}
		}
		if err := l.run(n); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if without, with := lives[0].recording.String(), lives[1].recording.String(); without != with {
		a, b := strings.Split(without, "\n"), strings.Split(with, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d: line %d of the recording is\n%s\nwithout the engine\n%s", seed, i+1, b[i], a[i])
			}
		}
		t.Fatalf("seed %d: the recordings have %d and %d lines", seed, len(a), len(b))
	}
	checked := 0
	for id, got := range said {
		if checked++; checked > 40 {
			break
		}
		r := lives[1].asked[id]
		for i, row := range solo(t, alone, r.Tokens, r.Prompt) {
			if want := argmax(row); got[i] != want && !(row[want]-row[got[i]] <= tie) {
				t.Fatalf("seed %d: request %d: token %d would be %d, alone it is %d, by %v", seed, id, i, got[i], want,
					row[want]-row[got[i]])
			}
		}
	}
	if checked == 0 {
		t.Fatalf("seed %d: no request has answered: the test shows nothing", seed)
	}
}

// solo returns the logits, on an engine without other sequences, behind each proper prefix of tokens that has at least
// prompt tokens.
func solo(t *testing.T, e runtime.Engine, tokens []Token, prompt int) (out [][]float32) {
	t.Helper()
	e.SeqRemove(0, 0, -1)
	b := e.Batch()
	for pos := 0; pos < len(tokens)-1; {
		b.Reset()
		first := pos
		for ; pos < len(tokens)-1 && b.Len() < cap(b.Token); pos++ {
			b.Add(tokens[pos], runtime.Pos(pos), 0, pos >= prompt-1)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		for i := max(first, prompt-1); i < pos; i++ {
			out = append(out, slices.Clone(e.Logits(i-first)))
		}
	}
	return out
}

func argmax(row []float32) Token {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return Token(best)
}
