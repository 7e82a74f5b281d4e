package kvsnap

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// model is the simplest pool: each sequence is a list of numbered cells. Like an engine, it learns of changes only by
// actions and computed tokens.
type model struct {
	next  int
	held  map[Seq][]cell
	tiers map[int]blocks.Tier // by number of the cell
}

type cell struct {
	number int // 0: the place of an offloaded cell
	token  Token
}

func (m *model) do(actions []Action) error {
	for _, a := range actions {
		switch a.Kind {
		case Copy:
			if a.From < len(m.held[a.Dst]) { // a thought comes back to its place
				for i := a.From; i < a.To; i++ {
					if i >= len(m.held[a.Dst]) || m.held[a.Dst][i].number != 0 || m.held[a.Src][i].number == 0 {
						return fmt.Errorf("copy %+v: position %d of the target is taken, or empty in the source", a, i)
					}
					m.held[a.Dst][i] = m.held[a.Src][i]
				}
				continue
			}
			if a.To > len(m.held[a.Src]) || a.From != len(m.held[a.Dst]) {
				return fmt.Errorf("copy %+v: source has %d cells, target %d", a, len(m.held[a.Src]), len(m.held[a.Dst]))
			}
			m.held[a.Dst] = append(m.held[a.Dst], m.held[a.Src][a.From:a.To]...)
		case Remove:
			to := a.To
			if to < 0 {
				to = len(m.held[a.Dst])
			}
			if a.From >= to {
				return fmt.Errorf("remove %+v of a sequence of %d cells: nothing to remove", a, len(m.held[a.Dst]))
			}
			m.held[a.Dst] = slices.Delete(slices.Clone(m.held[a.Dst]), a.From, to)
			if len(m.held[a.Dst]) == 0 {
				delete(m.held, a.Dst)
			}
		case Shift:
			if len(m.held[a.Dst])+a.Delta != a.From+a.Delta+(len(m.held[a.Dst])-a.From) || a.Delta >= 0 {
				return fmt.Errorf("shift %+v", a)
			}
		}
	}
	return nil
}

func (m *model) compute(s Seq, tokens []Token, to int, tier blocks.Tier) {
	for i := len(m.held[s]); i < to; i++ {
		m.next++
		m.tiers[m.next] = tier
		m.held[s] = append(m.held[s], cell{m.next, tokens[i]})
	}
}

// pair applies the same operations to a tree, the model and a fake engine.
type pair struct {
	t       *Tree
	m       model
	e       *fake.Engine
	cfg     Config
	now     Instant
	runs    map[Seq]*run
	waiting map[uint64]*run
	nextID  uint64
	marked  map[uint64][2]int // thoughts that may go alone, by request
	saved   map[uint64][]byte // their snapshots
	full    bool              // the arena of nodes was nearly full once: spans of unequal tiers may have been joined
	between func()            // changes the tree between a Lookup and an AcquireMatch; may be nil
}

type run struct {
	p        Prompt
	seq      Seq
	tokens   []Token
	computed int
	cut      int         // from here on the tokens are not what was computed
	tier     blocks.Tier // of what it generates now
}

func newPair(cfg Config) (*pair, error) {
	t, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &pair{
		t: t, m: model{held: map[Seq][]cell{}, tiers: map[int]blocks.Tier{}}, cfg: t.cfg, runs: map[Seq]*run{},
		waiting: map[uint64]*run{},
		marked:  map[uint64][2]int{}, saved: map[uint64][]byte{},
		e: fake.New(fake.Config{Options: runtime.Options{ContextTokens: cfg.Cells, Sequences: cfg.Sequences,
			Batch: cfg.Cells}, NoRanges: cfg.Seals}),
	}, nil
}

func (p *pair) do(actions []Action) error {
	for _, a := range actions {
		switch a.Kind {
		case Copy:
			p.e.SeqCopy(a.Src, a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
		case Remove:
			if !p.e.SeqRemove(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To)) {
				return fmt.Errorf("the engine refuses %+v", a)
			}
		case Shift:
			if err := p.e.SeqAdd(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To), runtime.Pos(a.Delta)); err != nil {
				return err
			}
		}
	}
	for _, a := range actions {
		// a thought goes, what stands behind it stays
		if a.Kind == Remove && a.To >= 0 && p.t.seqs[a.Dst].state == cached {
			for i := a.From; i < a.To; i++ {
				p.m.held[a.Dst][i].number = 0
			}
			continue
		}
		if err := p.m.do([]Action{a}); err != nil {
			return err
		}
	}
	return nil
}

// offload marks the thought of a parked request as copied out.
func (p *pair) offload(req uint64) error {
	s := p.t.Parked(req)
	if s == NoSeq || p.cfg.Scratch == 0 || p.cfg.Seals {
		return nil
	}
	from, to := p.t.Thought(s)
	if _, _, away := p.t.Away(req); to == 0 || away {
		return nil
	}
	size, err := p.e.SnapshotSize(s, runtime.Pos(from), runtime.Pos(to))
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if _, err := p.e.Snapshot(b, s, p.t.ScratchSeq(0), runtime.Pos(from), runtime.Pos(to)); err != nil {
		return err
	}
	if p.t.Offloadable(req, from, to) {
		p.marked[req], p.saved[req] = [2]int{from, to}, b
	}
	return nil
}

// ingest copies the thought of a parked request back.
func (p *pair) ingest(req uint64) error {
	from, to, away := p.t.Away(req)
	if !away {
		return nil
	}
	s := p.t.Parked(req)
	before := p.t.length(s)
	p.t.SetIngesting(req, true)
	if n := to - from - p.t.Cells().Free; n > 0 {
		if err := p.evict(n); err != nil {
			return err
		}
	}
	if p.t.length(s) != before || p.t.Parked(req) != s {
		return fmt.Errorf("making room for a thought took cells behind it\n%s", p.t.Dump())
	}
	if p.t.Cells().Free >= to-from {
		scratch := p.t.ScratchSeq(0)
		if err := p.e.Restore(p.saved[req], scratch, NoSeq); err != nil {
			return err
		}
		in := make([]cell, to)
		for i := from; i < to; i++ {
			p.m.next++
			p.m.tiers[p.m.next] = blocks.ThinkComplete
			in[i] = cell{p.m.next, p.t.seqs[s].tokens[i]}
		}
		p.m.held[scratch] = in
		actions, ok := p.t.Ingest(req, scratch)
		if !ok {
			return fmt.Errorf("the thought [%d, %d) is not taken back\n%s", from, to, p.t.Dump())
		}
		if err := p.do(actions); err != nil {
			return err
		}
		p.e.SeqRemove(scratch, 0, -1)
		delete(p.m.held, scratch)
	}
	p.t.SetIngesting(req, false)
	return nil
}

// checkSpans holds the map of the pool against the counts, and each span against the sequence that it names.
func (p *pair) checkSpans(want blocks.Cells) error {
	var got blocks.Cells
	for _, s := range p.t.Spans(nil) {
		*map[blocks.State]*int{blocks.Own: &got.Own, blocks.Shared: &got.Shared, blocks.Cached: &got.Cached,
			blocks.Pinned: &got.Pinned}[s.State] += s.Cells
		held := false
		for i := range p.t.seqs {
			q := &p.t.seqs[i]
			held = held || q.state != free && q.ns == s.NS && q.req == s.Req && (q.state == running) == s.Running &&
				p.t.length(Seq(i)) >= s.Cells
		}
		if !held || s.Cells <= 0 || s.Holders.All < 1 {
			return fmt.Errorf("span %+v is held by no such sequence\n%s", s, p.t.Dump())
		}
	}
	if got.Free = want.Free; got != want {
		return fmt.Errorf("the spans hold %+v, there are %+v\n%s", got, want, p.t.Dump())
	}
	return nil
}

// check compares the tree's counts with the model's and the engine's.
func (p *pair) check() error {
	if err := p.t.Check(); err != nil {
		return fmt.Errorf("%w\n%s", err, p.t.Dump())
	}
	by := map[int]*blocks.Holders{}
	for s, cells := range p.m.held {
		q := &p.t.seqs[s]
		if q.state == free {
			return fmt.Errorf("sequence %d holds %d cells and is said to be free", s, len(cells))
		}
		for _, c := range cells {
			h := by[c.number]
			if c.number == 0 {
				continue
			}
			if h == nil {
				h = &blocks.Holders{}
				by[c.number] = h
			}
			h.All++
			if q.state == running {
				h.Running++
			}
			if q.pinned {
				h.Pinned++
			}
			if q.parked {
				h.Parked++
			}
		}
	}
	var want blocks.Cells
	for _, h := range by {
		switch {
		case h.Running == 1 && h.All == 1:
			want.Own++
		case h.Running > 0:
			want.Shared++
		case h.Pinned > 0:
			want.Pinned++
		default:
			want.Cached++
		}
	}
	want.Free = p.cfg.Cells - len(by)
	if got := p.t.Cells(); got != want {
		return fmt.Errorf("the tree counts %+v, there are %+v\n%s", got, want, p.t.Dump())
	}
	if err := p.checkSpans(want); err != nil {
		return err
	}
	p.demote()
	p.full = p.full || len(p.t.spare) < 4
	for s, cells := range p.m.held {
		for pos, c := range cells {
			got, want := p.t.nodes[p.t.nodeAt(s, pos+1)].span.Tier(), p.m.tiers[c.number]
			if c.number == 0 {
				want = blocks.ThinkComplete
			}
			if got != want && !(p.full && want.Before(got)) {
				return fmt.Errorf("position %d of sequence %d is %v, want %v\n%s", pos, s, got, want, p.t.Dump())
			}
		}
	}
	if p.e.Used() != len(by) {
		return fmt.Errorf("the engine uses %d cells, the model %d", p.e.Used(), len(by))
	}
	for s := range p.t.seqs {
		q := &p.t.seqs[s]
		if q.state == free {
			continue
		}
		n := p.t.length(Seq(s))
		held := p.e.Tokens(Seq(s))
		var here []Token
		for i, c := range p.m.held[Seq(s)] {
			if c.number > 0 {
				here = append(here, q.tokens[i])
			}
		}
		if len(held) != len(here) || len(p.m.held[Seq(s)]) != n {
			return fmt.Errorf("sequence %d: the tree says %d positions, the engine has %d cells, the model %d of %d", s,
				n, len(held), len(here), len(p.m.held[Seq(s)]))
		}
		if !slices.Equal(held, here) {
			return fmt.Errorf("sequence %d holds %v and is said to hold %v", s, held, here)
		}
		own := 0
		for _, c := range p.m.held[Seq(s)] {
			if c.number > 0 && by[c.number].All == 1 {
				own++
			}
		}
		if own != p.t.own(Seq(s)) || q.state == running && own != p.t.Own(Seq(s)) {
			return fmt.Errorf("sequence %d is said to hold %d cells alone, it holds %d", s, p.t.own(Seq(s)), own)
		}
	}
	return nil
}

// best is the longest match, by comparison with every sequence.
func (p *pair) best(q *Prompt) (most int) {
	if q.Apart {
		return 0
	}
	for s := range p.t.seqs {
		o := &p.t.seqs[s]
		if o.state == free {
			continue
		}
		n := p.t.length(Seq(s))
		see := min(n, p.t.visible(Seq(s), q))
		got := 0
		for got < min(see, len(q.Tokens)-1) && o.tokens[got] == q.Tokens[got] && p.m.held[Seq(s)][got].number > 0 {
			got++
		}
		if p.cfg.Seals && got < n {
			continue
		}
		most = max(most, got)
	}
	return most
}

func (p *pair) start(pr Prompt) (Acquired, error) {
	p.now++
	look := p.t.Lookup(&pr)
	if want := p.best(&pr); look.Len != want {
		return Acquired{}, fmt.Errorf("lookup of %v finds %d tokens, %d are there\n%s", pr.Tokens, look.Len, want,
			p.t.Dump())
	}
	running := len(p.runs)
	needed := p.needed()
	var st Acquired
	var err error
	switch pr.Req % 3 {
	case 0:
		st, err = p.t.Acquire(p.now, &pr)
	case 1: // with the match just made
		st, err = p.t.AcquireMatch(p.now, &pr, &look)
	case 2: // with a match that is out of date
		if p.between != nil {
			p.between()
			needed = p.needed()
			p.demote()
		}
		old := look
		look = p.t.Lookup(&Prompt{NS: pr.NS, Tokens: pr.Tokens, Shareable: pr.Shareable, Apart: pr.Apart})
		p.t.Lookup(&Prompt{NS: pr.NS, Tokens: pr.Tokens[:1]})
		st, err = p.t.AcquireMatch(p.now, &pr, &old)
	}
	if err != nil {
		if !errors.Is(err, ErrNoSequence) || running+p.pinned() < len(p.t.seqs) {
			return st, fmt.Errorf("start: %w with %d running of %d ids", err, running, len(p.t.seqs))
		}
		return st, err
	}
	if st.Waiting {
		p.waiting[pr.Req] = &run{p: pr}
		if st.Until <= look.Len || pr.NoWait {
			return st, fmt.Errorf("waits for %d tokens with %d cached", st.Until, look.Len)
		}
		return st, nil
	}
	// a parked prefix that gave up its id needs its cells no more, even if others share them then
	for _, v := range st.Evicted {
		delete(needed, v.Seq)
	}
	p.freed(st.Evicted, needed)
	if err := p.do(st.Actions); err != nil {
		return st, err
	}
	if st.Cached != look.Len {
		return st, fmt.Errorf("%d tokens acquired, Lookup said %d", st.Cached, look.Len)
	}
	r := &run{p: pr, seq: st.Seq, tokens: pr.Tokens, computed: st.Cached, cut: noLimit, tier: blocks.OutputCritical}
	if pr.Apart {
		r.cut = 0
	}
	p.runs[st.Seq] = r
	return st, nil
}

// needed is the cells that running requests and parked prefixes hold, by sequence.
func (p *pair) needed() map[Seq][]cell {
	dst := map[Seq][]cell{}
	for s, cells := range p.m.held {
		if q := &p.t.seqs[s]; q.state == running || q.parked {
			dst[s] = cells
		}
	}
	return dst
}

// demote makes prefixes of the cells that no running request and no parked prefix holds.
func (p *pair) demote() {
	still := map[int]bool{}
	for _, cells := range p.needed() {
		for _, c := range cells {
			still[c.number] = true
		}
	}
	for _, cells := range p.m.held {
		for _, c := range cells {
			if !still[c.number] {
				p.m.tiers[c.number] = blocks.Prefix
			}
		}
	}
}

func (p *pair) pinned() (n int) {
	for s := range p.t.seqs {
		if p.t.seqs[s].pinned {
			n++
		}
	}
	return n
}

// progress computes n tokens more of r, or up to its next stop, sampling new ones when its tokens are used up.
func (p *pair) progress(r *run, n int, sample func() Token) ([]uint64, error) {
	n = min(n, p.t.Cells().Free)
	for _, stop := range p.t.seqs[r.seq].stops {
		if stop > r.computed {
			n = min(n, stop-r.computed)
			break
		}
	}
	if n == 0 {
		return nil, nil
	}
	for len(r.tokens) < r.computed+n {
		r.tokens = append(r.tokens, sample())
	}
	b := p.e.Batch()
	b.Reset()
	for i := range n {
		b.Add(r.tokens[r.computed+i], runtime.Pos(r.computed+i), r.seq, false)
	}
	if err := p.e.Decode(); err != nil {
		return nil, err
	}
	r.computed += n
	tier := r.tier
	if r.computed <= len(r.p.Tokens) {
		tier = blocks.Prefix
	}
	p.m.compute(r.seq, r.tokens, r.computed, tier)
	woken, err := p.wake(p.t.Progress(r.seq, r.tokens, r.computed, tier))
	if err == nil && p.t.Stopped(r.seq) {
		err = p.seal(r)
	}
	return woken, err
}

// seal follows each progress to a stop.
func (p *pair) seal(r *run) error {
	p.now++
	needed := p.needed()
	sealed := p.t.Seal(p.now, r.seq)
	for _, v := range sealed.Evicted {
		delete(needed, v.Seq)
	}
	p.freed(sealed.Evicted, needed)
	if err := p.do(sealed.Actions); err != nil {
		return err
	}
	if sealed.Entry == 0 {
		return nil
	}
	tokens, err := p.t.Tokens(sealed.Entry)
	if errors.Is(err, ErrNoEntry) {
		return nil // thinned out
	}
	if err == nil && !slices.Equal(tokens, r.tokens[:r.computed]) {
		err = fmt.Errorf("seal %d holds %v, want %v", sealed.Entry, tokens, r.tokens[:r.computed])
	}
	return err
}

// freed gives the cells that victims lost, and no needed sequence holds, the tier of all that is cached.
func (p *pair) freed(victims []Victim, needed map[Seq][]cell) {
	still := map[int]bool{}
	for _, cells := range needed {
		for _, c := range cells {
			still[c.number] = true
		}
	}
	for _, v := range victims {
		for _, c := range p.m.held[v.Seq] {
			if !still[c.number] {
				p.m.tiers[c.number] = blocks.Prefix
			}
		}
	}
}

func (p *pair) wake(reqs []uint64) ([]uint64, error) {
	for _, id := range reqs {
		if p.waiting[id] == nil {
			return nil, fmt.Errorf("request %d is woken and did not wait", id)
		}
		delete(p.waiting, id)
	}
	return reqs, nil
}

func (p *pair) end(r *run, keep bool, history []Token) (Released, error) {
	p.now++
	var e Released
	if keep {
		e = p.t.Retain(p.now, r.seq, history)
		want := min(CommonPrefix(r.tokens[:r.computed], history), r.cut)
		if want < p.cfg.KeepMin || p.cfg.Seals && want < r.computed {
			want = 0
		}
		if e.Kept != want || (e.Entry == 0) != (want == 0) {
			return e, fmt.Errorf("%d tokens kept in entry %d, want %d", e.Kept, e.Entry, want)
		}
		if want > 0 {
			if got, err := p.t.Tokens(e.Entry); err != nil || !slices.Equal(got[:want], history[:want]) {
				return e, fmt.Errorf("entry %d holds %v (%v), want %v", e.Entry, got, err, history[:want])
			}
		}
	} else {
		e = p.t.Release(r.seq)
	}
	delete(p.runs, r.seq)
	if _, err := p.wake(e.Wake); err != nil {
		return e, err
	}
	return e, p.do(e.Actions)
}

func (p *pair) evict(n int) error {
	c, first, before := p.t.Cells(), p.firstOut(), p.t.Ledger().Evictions().Cells
	freed, victims, actions := p.t.EvictCells(n)
	if after := p.t.Ledger().Evictions().Cells; n == 1 && freed > 0 && !p.full {
		for t := range blocks.NumTiers {
			if d := after[t][blocks.Pressure] - before[t][blocks.Pressure]; (d > 0) != (t == first) || d > 0 &&
				int(d) != freed {
				return fmt.Errorf("%d of %d evicted cells are %v, ends of %v are there\n%s", d, freed, t, first,
					p.t.Dump())
			}
		}
	}
	if want := min(n, c.Cached); freed < want {
		return fmt.Errorf("%d cells freed of %d wanted, %d could be", freed, n, c.Cached)
	}
	sum := 0
	for _, a := range actions {
		if a.To >= 0 {
			sum += a.To - a.From // a thought
		}
	}
	for _, v := range victims {
		sum += v.Freed
		if v.From < 0 || v.From >= v.To || v.To != len(v.Tokens) {
			return fmt.Errorf("victim %+v", v)
		}
	}
	if sum != freed || p.t.Cells().Free != c.Free+freed {
		return fmt.Errorf("%d cells freed, the victims say %d, the ledger %d", freed, sum, p.t.Cells().Free-c.Free)
	}
	return p.do(actions)
}

// endThought ends the thought of r.
func (p *pair) endThought(r *run) {
	p.t.EndThought(r.seq)
	r.tier = blocks.OutputCritical
	for _, c := range p.m.held[r.seq] {
		others := 0
		for _, o := range p.runs {
			if o != r && slices.Contains(p.m.held[o.seq], c) {
				others++
			}
		}
		if p.m.tiers[c.number] == blocks.ThinkActive && others == 0 {
			p.m.tiers[c.number] = blocks.ThinkComplete
		}
	}
}

// park preempts r, and returns the prompt with which it continues.
func (p *pair) park(r *run) (Prompt, error) {
	p.now++
	e := p.t.Park(p.now, r.seq)
	delete(p.runs, r.seq)
	if _, err := p.wake(e.Wake); err != nil {
		return Prompt{}, err
	}
	pr := r.p
	pr.Tokens = r.tokens
	return pr, p.do(e.Actions)
}

// holders counts the sequences that hold a cell.
func (p *pair) holders(c cell) (n int) {
	for _, cells := range p.m.held {
		if slices.Contains(cells, c) {
			n++
		}
	}
	return n
}

// firstOut is the tier of the cells that must go first: the lowest one at the end of a branch, or in a thought that
// may go alone, that only cached and unpinned prefixes hold.
func (p *pair) firstOut() blocks.Tier {
	tiers := map[int]blocks.Tier{}
	alone := map[int]bool{}
	for req, span := range p.marked {
		if s := p.t.Parked(req); s != NoSeq && len(p.m.held[s]) > span[1] && p.t.seqs[s].awayTo == span[1] {
			if c := p.m.held[s][span[0]]; c.number > 0 && p.holders(c) == 1 {
				tiers[c.number], alone[c.number] = p.m.tiers[c.number], true
			}
		}
	}
	for s, cells := range p.m.held {
		if q := &p.t.seqs[s]; q.state == cached && len(cells) > 0 {
			last := cells[len(cells)-1].number
			tiers[last] = p.m.tiers[last]
		}
	}
	for s, cells := range p.m.held {
		for i, c := range cells {
			if q := &p.t.seqs[s]; i < len(cells)-1 && !alone[c.number] || q.state == running || q.pinned ||
				q.ingesting {
				delete(tiers, c.number)
			}
		}
	}
	first := blocks.OutputCritical
	for _, t := range tiers {
		if t.Before(first) {
			first = t
		}
	}
	return first
}

// TestModel: after any operations, the tree's counts agree with a list of cells and with the engine, a lookup finds
// what a comparison with every sequence finds, and a cached prefix holds the tokens it claims. With rapid's default
// of 100 checks it makes more than 10,000 operations.
func TestModel(t *testing.T) {
	if f := flag.Lookup("rapid.steps"); f != nil && f.Value.String() == f.DefValue {
		defer f.Value.Set(f.DefValue)
		if err := f.Value.Set("150"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Cells: rapid.IntRange(20, 300).Draw(t, "cells"), CellBytes: 2,
			Sequences:   rapid.IntRange(1, 9).Draw(t, "sequences"),
			Seals:       rapid.IntRange(0, 2).Draw(t, "seals") == 0,
			SealEvery:   rapid.IntRange(1, 60).Draw(t, "every"),
			ShareSystem: rapid.Bool().Draw(t, "share"),
			JoinMin:     rapid.IntRange(1, 8).Draw(t, "join"), KeepMin: rapid.IntRange(1, 20).Draw(t, "keep"),
			DoubleAt: 100,
		}
		if cfg.Sequences > 1 {
			cfg.Scratch = rapid.IntRange(0, 1).Draw(t, "scratch")
		}
		p, err := newPair(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.between = func() {
			if err := p.evict(rapid.IntRange(0, 20).Draw(t, "between")); err != nil {
				t.Fatal(err)
			}
		}
		// A small alphabet and texts grown from each other, so that prefixes meet, nest and repeat.
		texts := [][]Token{{100, 101, 102}}
		sampled := 0
		var parked []Prompt
		token := func() Token { sampled++; return Token(100 + sampled%5%3) }
		anyRun := func() *run {
			var seqs []Seq
			for s := range p.runs {
				seqs = append(seqs, s)
			}
			if len(seqs) == 0 {
				t.Skip("nothing runs")
			}
			slices.Sort(seqs)
			return p.runs[rapid.SampledFrom(seqs).Draw(t, "run")]
		}
		anyEntry := func() uint64 {
			var ids []uint64
			for _, e := range p.t.Entries(nil) {
				if !e.Running {
					ids = append(ids, e.ID)
				}
			}
			if len(ids) == 0 {
				t.Skip("nothing is cached")
			}
			return rapid.SampledFrom(ids).Draw(t, "entry")
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		grown := func() []Token {
			base := rapid.SampledFrom(texts).Draw(t, "text")
			text := slices.Clone(base[:rapid.IntRange(0, len(base)).Draw(t, "cut")])
			more, x := rapid.IntRange(0, 60).Draw(t, "more"), rapid.Uint64Range(0, 7).Draw(t, "what")
			for range more {
				x = x*6364136223846793005 + 1442695040888963407
				text = append(text, Token(100+x>>60%3))
			}
			if len(text) == 0 {
				text = append(text, token())
			}
			return text
		}
		start := func(t *rapid.T) {
			text := grown()
			texts = append(texts, text)
			p.nextID++
			_, err := p.start(Prompt{
				Req: p.nextID, NS: uint64(rapid.IntRange(0, 2).Draw(t, "uid")), Tokens: text,
				Shareable: rapid.IntRange(0, len(text)+3).Draw(t, "shareable"),
				NoWait:    rapid.IntRange(0, 3).Draw(t, "alone") == 0,
				Apart:     rapid.IntRange(0, 7).Draw(t, "apart") == 7,
			})
			if !errors.Is(err, ErrNoSequence) {
				must(err)
			}
		}
		progress := func(t *rapid.T) {
			r := anyRun()
			_, err := p.progress(r, rapid.IntRange(0, 40).Draw(t, "computed"), token)
			must(err)
		}
		retain := func(t *rapid.T) {
			r := anyRun()
			history := slices.Clone(r.tokens)
			if rapid.Bool().Draw(t, "shorter") {
				history = history[:rapid.IntRange(0, len(history)).Draw(t, "history")]
			}
			if rapid.Bool().Draw(t, "other") {
				history = append(history, token())
			}
			if len(history) > 0 && rapid.IntRange(0, 8).Draw(t, "different") == 0 {
				history[rapid.IntRange(0, len(history)-1).Draw(t, "where")] = 120
			}
			if len(r.tokens[:r.computed]) > 0 {
				texts = append(texts, slices.Clone(r.tokens[:r.computed]))
			}
			_, err := p.end(r, true, history)
			must(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":          func(t *rapid.T) { must(p.check()) },
			"start":     start,
			"start2":    start,
			"progress":  progress,
			"progress2": progress,
			"retain":    retain,
			"retain2":   retain,
			"release": func(t *rapid.T) {
				_, err := p.end(anyRun(), false, nil)
				must(err)
			},
			"evict": func(t *rapid.T) { must(p.evict(rapid.IntRange(0, 80).Draw(t, "cells"))) },
			"pin": func(t *rapid.T) {
				if err := p.t.Pin(anyEntry()); errors.Is(err, ErrNoEntry) {
					t.Fatal(err)
				}
			},
			"unpin": func(t *rapid.T) { must(p.t.Unpin(anyEntry())) },
			"drop": func(t *rapid.T) {
				e, err := p.t.Drop(anyEntry())
				must(err)
				must(p.do(e.Actions))
			},
			"stall": func(t *rapid.T) {
				_, err := p.wake(p.t.Stall(anyRun().seq, rapid.Bool().Draw(t, "stalled")))
				must(err)
			},
			"evict1": func(t *rapid.T) { must(p.evict(1)) },
			"think":  func(t *rapid.T) { anyRun().tier = blocks.ThinkActive },
			"think2": func(t *rapid.T) { p.endThought(anyRun()) },
			"park": func(t *rapid.T) {
				pr, err := p.park(anyRun())
				must(err)
				parked = append(parked, pr)
			},
			"resume": func(t *rapid.T) {
				if len(parked) == 0 {
					t.Skip("nothing is parked")
				}
				pr := parked[0]
				parked = parked[1:]
				pr.NoWait = true
				if len(pr.Tokens) == 0 { // all of it was cut
					must(p.do(p.t.Cancel(pr.Req)))
				} else if _, err := p.start(pr); errors.Is(err, ErrNoSequence) {
					must(p.do(p.t.Cancel(pr.Req)))
				} else {
					must(err)
				}
			},
			"preempted answer": func(t *rapid.T) {
				text := grown()
				p.nextID++
				st, err := p.start(Prompt{Req: p.nextID, NS: 1, Tokens: text, NoWait: true})
				if errors.Is(err, ErrNoSequence) {
					return
				}
				must(err)
				r := p.runs[st.Seq]
				for _, part := range []struct {
					most int
					tier blocks.Tier
				}{{len(text) - r.computed, blocks.Prefix}, {30, blocks.ThinkActive}, {20, blocks.OutputCritical}} {
					n := part.most
					if part.tier != blocks.Prefix {
						n = rapid.IntRange(1, n).Draw(t, "tokens")
					}
					if r.tier == blocks.ThinkActive {
						p.endThought(r)
					}
					r.tier = part.tier
					_, err := p.progress(r, n, token)
					must(err)
				}
				pr, err := p.park(r)
				must(err)
				parked = append(parked, pr)
				must(p.offload(pr.Req))
			},
			"offload": func(t *rapid.T) {
				for _, pr := range parked {
					must(p.offload(pr.Req))
				}
			},
			"ingest": func(t *rapid.T) {
				if len(parked) > 0 {
					must(p.ingest(rapid.SampledFrom(parked).Draw(t, "whose").Req))
				}
			},
			"end parked": func(t *rapid.T) {
				if len(parked) == 0 {
					t.Skip("nothing is parked")
				}
				must(p.do(p.t.Cancel(parked[0].Req)))
				parked = parked[1:]
			},
			"cancel": func(t *rapid.T) {
				for id := range p.nextID + 1 { // the first that waits
					if p.waiting[id] != nil {
						must(p.do(p.t.Cancel(id)))
						delete(p.waiting, id)
						return
					}
				}
			},
			"cut": func(t *rapid.T) {
				r := anyRun()
				if r.computed == 0 {
					t.Skip("it holds nothing")
				}
				from := rapid.IntRange(0, r.computed-1).Draw(t, "from")
				n := rapid.IntRange(1, r.computed-from).Draw(t, "n")
				tokens := slices.Delete(slices.Clone(r.tokens), from, from+n)
				e, err := p.t.Cut(r.seq, tokens, from, n)
				if err != nil {
					return
				}
				r.tokens, r.computed, r.cut = tokens, r.computed-n, min(r.cut, from)
				must(p.do(e.Actions))
				_, err = p.wake(e.Wake)
				must(err)
			},
		})
		// In the end no cell is used and no request waits.
		for _, r := range p.runs {
			_, err := p.end(r, false, nil)
			must(err)
		}
		if len(p.waiting) > 0 {
			t.Fatalf("%d requests still wait", len(p.waiting))
		}
		for _, e := range p.t.Entries(nil) {
			d, err := p.t.Drop(e.ID)
			must(err)
			must(p.do(d.Actions))
		}
		must(p.check())
		if c := p.t.Cells(); c.Free != cfg.Cells || p.e.Used() != 0 {
			t.Fatalf("%+v at the end, the engine uses %d", c, p.e.Used())
		}
	})
}
