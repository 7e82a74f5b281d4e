package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// machine carries out steps on a model of an engine's memory that keeps the token of every cell, and fails when a row
// is computed behind other tokens than its request's, when a copy holds other tokens than it says, and when the pool's
// books differ from the cells that are there.
type machine struct {
	c                  *Core
	cfg                Config
	now                Instant
	cells              map[Seq]map[int]cell // by position
	refs               map[int]int          // sequences that hold a cell
	lastID             int
	store              *shelf
	batch              runtime.Batch
	step               *Step
	result             Result
	stepTime, copyTook time.Duration      // of a step, and of copying a token
	eng                runtime.Engine     // nil, or an engine that carries out everything too
	decodes            int                // calls of decode
	want               map[ID]*Request    // live, by what the machine was told
	ended              map[ID]int         // how often each was said to have ended
	forced             func(*Request) int // tokens that follow a drawn one without a row; nil: none
	says               map[ID][]Token     // of a script: what a request's model says; then tokens that never repeat

	// the draft model: tokens by sequence, its batch, what it guesses behind tokens, and whether it fails now
	drafts     map[Seq][]Token
	draftBatch runtime.Batch
	guess      func(tokens []Token) Token
	draftFails func() bool
	draftEng   runtime.Engine // nil, or an engine that guesses
	head       runtime.Head   // draftEng, if it is a head
	// of the rows of the newest batch of a head that reads the model's cells
	sharedTexts [][]Token
	draftFull   func() bool               // whether such a head finds no room for a batch; nil: it does
	states      map[*Request]map[int]kept // of each request's newest rows, by position modulo DraftConfig.States
}

// kept is the state of a row: where it was, for which token, and on an engine what it was.
type kept struct {
	pos   int
	tok   Token
	state []float32
}

type cell struct {
	id  int
	tok Token
}

// A machine's steps take so long, and copies of a token.
const (
	stepTime = 10 * time.Millisecond
	copyTook = 10 * time.Microsecond
)

func newMachine(cfg Config) (*machine, error) {
	m := &machine{cfg: cfg, cells: map[Seq]map[int]cell{}, refs: map[int]int{}, want: map[ID]*Request{},
		ended: map[ID]int{}, says: map[ID][]Token{}, states: map[*Request]map[int]kept{},
		stepTime: stepTime, copyTook: copyTook}
	if cfg.PartTokens > 0 {
		m.store = &shelf{part: cfg.PartTokens, parts: map[string]bool{}, bytes: map[string][]byte{},
			thoughts: map[ID]bool{},
			fetches:  map[RestoreID]*fetched{}}
		m.cfg.Stores, m.cfg.Durable = m.store, cfg.Durable
	}
	n := cfg.Sched.MaxBatch
	m.batch = runtime.Batch{Token: make([]Token, n), Pos: make([]runtime.Pos, n), Seq: make([]Seq, n),
		Logits: make([]int8, n)}
	m.batch.Reset()
	n = cfg.Draft.Batch
	m.draftBatch = runtime.Batch{Token: make([]Token, n), Pos: make([]runtime.Pos, n), Seq: make([]Seq, n),
		Logits: make([]int8, n)}
	m.drafts = map[Seq][]Token{}
	var err error
	m.c, err = New(m.cfg)
	return m, err
}

func testConfig(cells, running, batch int, policy string) Config {
	return Config{
		Sched: sched.Config{Policy: policy, MaxRunning: running, Cells: cells, MaxBatch: batch, MaxQueue: 1 << 16,
			Guard: sched.DefaultGuard},
		Sequences: Sequences(running+8, false), CellBytes: 1, CanShift: true,
	}
}

// shelf is a store: which parts there are, by namespace and tokens.
type shelf struct {
	part     int
	parts    map[string]bool
	bytes    map[string][]byte // snapshots, with an engine
	fetches  map[RestoreID]*fetched
	thoughts map[ID]bool // whole ones, by request
	full     bool        // takes nothing
	slow     bool        // parts come to hand when the test says so
}

type fetched struct {
	ns     uint64
	tokens []Token
	next   int // position of the next part
	req    ID  // whose thought it is, 0 = a prefix
	cut    int // where the thought ends
	broken bool
}

func shelfKey(ns uint64, tokens []Token, p0 int) string { return fmt.Sprint(ns, p0, tokens) }

func (s *shelf) end(p0, n int) int { return min(p0/s.part*s.part+s.part, n) }

// lost reports whether a fetch's next part has left the store.
func (s *shelf) lost(f *fetched) bool {
	return f.req == 0 && f.next < len(f.tokens) && !s.parts[shelfKey(f.ns, f.tokens[:s.endOf(f)], f.next)]
}

// endOf is the end of a fetch's next part. Those of a thought are cut from its beginning on.
func (s *shelf) endOf(f *fetched) int {
	switch {
	case f.req == 0:
		return s.end(f.next, len(f.tokens))
	case f.next < f.cut:
		return min(f.next+s.part, f.cut, len(f.tokens))
	}
	return min(f.next+s.part, len(f.tokens))
}

func (s *shelf) Find(ns uint64, tokens []Token, least int) (int, Tier, bool) {
	n := s.Missing(ns, tokens)
	return n, Host, n >= least && n > 0
}

func (s *shelf) Missing(ns uint64, tokens []Token) int {
	p0 := 0
	for p0 < len(tokens) {
		p1 := s.end(p0, len(tokens))
		if !s.parts[shelfKey(ns, tokens[:p1], p0)] {
			break
		}
		p0 = p1
	}
	return p0
}

func (m *machine) at(seq Seq, pos int) (cell, bool) {
	c, ok := m.cells[seq][pos]
	return c, ok
}

func (m *machine) put(seq Seq, pos int, c cell) {
	if m.cells[seq] == nil {
		m.cells[seq] = map[int]cell{}
	}
	if _, taken := m.cells[seq][pos]; taken {
		panic(fmt.Sprintf("position %d of sequence %d is filled twice", pos, seq))
	}
	m.cells[seq][pos] = c
	m.refs[c.id]++
}

func (m *machine) fresh(seq Seq, pos int, tok Token) {
	m.lastID++
	m.put(seq, pos, cell{m.lastID, tok})
	if len(m.refs) > m.cfg.Sched.Cells {
		panic(fmt.Sprintf("%d cells are held, the pool has %d", len(m.refs), m.cfg.Sched.Cells))
	}
}

func (m *machine) remove(seq Seq, from, to int) {
	for p, c := range m.cells[seq] {
		if p >= from && (to < 0 || p < to) {
			delete(m.cells[seq], p)
			if m.refs[c.id]--; m.refs[c.id] == 0 {
				delete(m.refs, c.id)
			}
		}
	}
}

// holds panics unless seq holds exactly tokens, from position 0 on.
func (m *machine) holds(what string, seq Seq, tokens []Token) {
	if len(m.cells[seq]) < len(tokens) {
		panic(fmt.Sprintf("%s: sequence %d holds %d cells, %d are counted on", what, seq, len(m.cells[seq]),
			len(tokens)))
	}
	for p, t := range tokens {
		if c, ok := m.at(seq, p); !ok || c.tok != t {
			panic(fmt.Sprintf("%s: sequence %d holds token %d at position %d, not %d", what, seq, c.tok, p, t))
		}
	}
}

// next asks for a step and carries out what comes before its batch.
func (m *machine) next() *Step {
	m.step = m.c.Next(m.now)
	m.result = Result{}
	failed := false
	for i := range m.step.Ops {
		op := &m.step.Ops[i]
		if m.eng != nil {
			m.engine(op)
		}
		switch op.Kind {
		case SeqCopy:
			for p := op.From; p < op.To; p++ {
				c, ok := m.at(op.Src, p)
				if !ok {
					panic(fmt.Sprintf("copy of position %d of sequence %d, which is empty", p, op.Src))
				}
				m.put(op.Dst, p, c)
			}
		case SeqRemove:
			if m.cfg.Seals && (op.From > 0 || op.To >= 0) {
				panic(fmt.Sprintf("a part of a state is to be removed: %+v", *op))
			}
			m.remove(op.Dst, op.From, op.To)
		case SeqShift:
			moved := map[int]cell{}
			for p, c := range m.cells[op.Dst] {
				if p >= op.From && (op.To < 0 || p < op.To) {
					p += op.Delta
				}
				moved[p] = c
			}
			m.cells[op.Dst] = moved
		case Compute:
			for p := op.From; p < op.To; p++ {
				m.fresh(op.Dst, p, op.Tokens[p])
			}
		case CopyOut:
			if failed = op.Follows && failed || m.store.full; failed {
				m.result.CopyFailed = true
				continue
			}
			m.holds("copy out", op.Src, op.Tokens)
			key := shelfKey(op.NS, op.Tokens, op.From)
			m.store.parts[key] = true
			if m.eng != nil {
				m.store.bytes[key] = m.snapshot(op)
			}
			m.result.CopyTokens += op.To - op.From
		case OffloadBlock:
			m.offload(op)
		case Fetch:
			f := &fetched{ns: op.NS, tokens: slices.Clone(op.Tokens), req: op.Req, cut: op.First, next: op.From}
			if op.Req == 0 {
				f.next = 0
			}
			m.store.fetches[op.Restore] = f
			if !m.store.slow {
				m.atHand(op.Restore)
			}
		case SkipPart:
			f := m.store.fetches[op.Restore]
			f.next = m.store.endOf(f)
			if !m.store.slow {
				m.atHand(op.Restore)
			}
		case CopyIn:
			m.result.Copies = append(m.result.Copies, m.copyIn(op))
		case DraftRemove:
			if op.To != -1 || op.From > len(m.drafts[op.Dst]) {
				panic(fmt.Sprintf("%+v: sequence %d of the draft model has %d tokens", *op, op.Dst,
					len(m.drafts[op.Dst])))
			}
			m.drafts[op.Dst] = m.drafts[op.Dst][:op.From]
			if m.draftEng != nil && !m.draftEng.SeqRemove(op.Dst, runtime.Pos(op.From), -1) {
				panic("the draft model refuses to remove cells")
			}
		case CloseFetch:
			delete(m.store.fetches, op.Restore)
		case Flush:
		default:
			panic(fmt.Sprintf("op kind %d", op.Kind))
		}
	}
	m.result.CopyTook = time.Duration(m.result.CopyTokens) * m.copyTook
	for i := range m.step.Ends {
		m.endOf(m.step.Ends[i].Request.ID)
	}
	if used := m.cfg.Sched.Cells - m.c.tree.Cells().Free; len(m.step.Plan.Batch) == 0 && m.c.ledger.Reserved() == 0 &&
		len(m.refs) != used {
		panic(fmt.Sprintf("%d cells are held, the books say %d", len(m.refs), used))
	}
	return m.step
}

func thoughtKey(req ID, p0 int) string { return fmt.Sprint("thought ", req, p0) }

// offload carries out an OffloadBlock. A store that is full takes the part and never says that it has all.
func (m *machine) offload(op *Op) {
	for p := op.From; p < op.To; p++ {
		if c, ok := m.at(op.Src, p); !ok || c.tok != op.Tokens[p] {
			panic(fmt.Sprintf("offload of request %d: sequence %d holds token %d at position %d, not %d", op.Req,
				op.Src, c.tok, p, op.Tokens[p]))
		}
	}
	if m.eng != nil {
		m.store.bytes[thoughtKey(op.Req, op.From)] = m.snapshot(op)
	}
	m.result.CopyTokens += op.To - op.From
	if op.Last && !m.store.full {
		m.store.thoughts[op.Req] = true
		m.c.Handle(m.now, Input{Kind: Offloaded, Req: op.Req, Tier: Host})
	}
}

// atHand tells of the next part of a restore.
func (m *machine) atHand(id RestoreID) {
	f := m.store.fetches[id]
	in := Input{Kind: Part, Restore: id, P0: f.next, P1: m.store.endOf(f)}
	if f.next >= len(f.tokens) || f.broken || m.store.lost(f) || f.req != 0 && !m.store.thoughts[f.req] {
		in.Kind = PartsEnd
	}
	m.c.Handle(m.now, in)
}

func (m *machine) copyIn(op *Op) Copied {
	f := m.store.fetches[op.Restore]
	d := Copied{Restore: op.Restore, To: op.From, State: PartsOver}
	for f.next < len(f.tokens) && !f.broken && !m.store.lost(f) {
		p1 := m.store.endOf(f)
		if f.next != d.To || p1 > op.To {
			d.State, d.P0, d.P1 = PartAtHand, f.next, p1
			return d
		}
		for p := f.next; p < p1; p++ {
			m.fresh(op.Dst, p, f.tokens[p])
		}
		if m.eng != nil {
			key := shelfKey(f.ns, f.tokens[:p1], f.next)
			if f.req != 0 {
				key = thoughtKey(f.req, f.next)
			}
			if err := m.eng.Restore(m.store.bytes[key], op.Dst, m.c.tree.ScratchSeq(0)); err != nil {
				panic("restore: " + err.Error())
			}
		}
		m.result.CopyTokens += p1 - f.next
		f.next, d.To = p1, p1
		if m.store.slow {
			d.State = PartAwaited
			return d
		}
	}
	return d
}

// engine carries a sequence operation out on the engine.
func (m *machine) engine(op *Op) {
	ok := true
	switch op.Kind {
	case SeqCopy:
		m.eng.SeqCopy(op.Src, op.Dst, runtime.Pos(op.From), runtime.Pos(op.To))
	case SeqRemove:
		ok = m.eng.SeqRemove(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To))
	case SeqShift:
		ok = m.eng.SeqAdd(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To), runtime.Pos(op.Delta)) == nil
	}
	if !ok {
		panic(fmt.Sprintf("the engine refuses %+v", *op))
	}
}

func (m *machine) snapshot(op *Op) []byte {
	size, err := m.eng.SnapshotSize(op.Src, runtime.Pos(op.From), runtime.Pos(op.To))
	if err != nil {
		panic(err)
	}
	b := make([]byte, size)
	n, err := m.eng.Snapshot(b, op.Src, m.c.tree.ScratchSeq(0), runtime.Pos(op.From), runtime.Pos(op.To))
	if err != nil {
		panic(err)
	}
	return b[:n]
}

// answer decides what follows a row: a token, and whether the generation ends with it.
type answer func(r *Request, row int) (tok Token, eog bool)

// done carries out the batch with the given outcome and answers its rows.
func (m *machine) done(outcome sched.Outcome, a answer) {
	plan := m.step.Plan
	if len(plan.Batch) > 0 {
		m.draft()
		m.c.FillBatch(&m.batch)
		if len(m.refs)+m.batch.Len() > m.cfg.Sched.Cells {
			panic(fmt.Sprintf("a batch of %d tokens beside %d cells of %d: the scheduler counts on cells that are "+
				"not there",
				m.batch.Len(), len(m.refs), m.cfg.Sched.Cells))
		}
		for i := range plan.Batch {
			if s := &plan.Batch[i]; s.Kind != sched.SliceProbe {
				r := m.c.requests[s.Req]
				m.holds(fmt.Sprintf("request %d", r.ID), r.seq, r.Tokens[:s.Start])
			}
		}
		if m.eng != nil && outcome == sched.StepOK {
			m.c.FillBatch(m.eng.Batch())
			if m.head != nil {
				m.eng.(runtime.Headed).KeepStates(m.c.KeepsStates())
			}
			m.decode()
		}
		if outcome == sched.StepOK {
			m.keepStates(&plan)
		}
		if outcome != sched.StepKVFull {
			for i, t := range m.batch.Token {
				m.fresh(m.batch.Seq[i], int(m.batch.Pos[i]), t)
			}
			for i := range plan.Batch { // the first row of a probe is the newest token's
				if s := &plan.Batch[i]; s.Kind == sched.SliceProbe {
					r := m.c.requests[s.Req]
					m.holds(fmt.Sprintf("the fork of request %d", r.ID), r.fork, r.Tokens[:len(r.Tokens)-1])
				}
			}
		}
	}
	m.now = m.now.Add(m.stepTime)
	m.result.Outcome, m.result.Took = outcome, m.stepTime
	m.c.Done(m.now, &m.result)
	if outcome != sched.StepOK {
		return
	}
	for i := range plan.Batch {
		s := &plan.Batch[i]
		r := m.c.requests[s.Req]
		switch {
		case r == nil:
		case r.Kind == Embed:
			m.texts(r, s)
		case s.Kind == sched.SliceProbe:
			m.c.Probed(r, 1, true)
		case s.Row >= 0:
			for next, row := 0, s.Row; next >= 0; row = s.Row + next {
				next = m.token(r, row, a)
			}
		}
	}
}

// decode computes the engine's batch. One that computes beside the host does so every second time; the core is not
// asked meanwhile, so that the recording is the same.
func (m *machine) decode() {
	compute := m.eng.Decode
	sub, _ := m.eng.(runtime.Submitter)
	if m.decodes++; m.decodes%2 == 0 && sub != nil && sub.Beside() {
		if err := sub.Submit(); err != nil {
			panic("submit: " + err.Error())
		}
		compute = sub.Wait
	}
	if err := compute(); err != nil {
		panic("decode: " + err.Error())
	}
}

// keepStates keeps the states of the newest batch, as many of each request as the core was told.
func (m *machine) keepStates(plan *sched.Plan) {
	row := 0
	for i := range plan.Batch {
		s := &plan.Batch[i]
		first := row
		row += s.N
		if !m.c.KeepsStates() || s.Kind == sched.SliceProbe {
			continue
		}
		r := m.c.requests[s.Req]
		if m.states[r] == nil {
			m.states[r] = map[int]kept{}
		}
		for j := range s.N {
			k := kept{pos: s.Start + j, tok: m.batch.Token[first+j]}
			if m.head != nil {
				k.state = slices.Clone(m.eng.(runtime.Headed).State(first + j))
			}
			m.states[r][k.pos%m.cfg.Draft.States] = k
		}
	}
}

// follow gives the rows of the head's batch the states that they follow, which were kept of the request's own history.
func (m *machine) follow() {
	for _, b := range m.c.Behind() {
		if r := b.Request; r != nil {
			if k := m.states[r][b.At%m.cfg.Draft.States]; k.pos != b.At || k.tok != r.Tokens[b.At] {
				panic(fmt.Sprintf("the head follows position %d of request %d, token %d; the state kept there is that "+
					"of position %d, token %d", b.At, r.ID, r.Tokens[b.At], k.pos, k.tok))
			}
		}
	}
	if m.head == nil {
		return
	}
	own := map[int][]float32{}
	for _, b := range m.c.Behind() {
		if b.Request == nil && b.At >= 0 {
			own[b.At] = slices.Clone(m.head.State(b.At))
		}
	}
	for i, b := range m.c.Behind() {
		switch {
		case b.Request != nil:
			m.head.Follow(i, m.states[b.Request][b.At%m.cfg.Draft.States].state)
		case b.At >= 0:
			m.head.Follow(i, own[b.At])
		}
	}
}

// draft carries out the draft model's part of a step. Its sequences hold what they are said to hold, from position 0
// on.
func (m *machine) draft() {
	for m.c.FillDraft(&m.draftBatch) {
		if m.draftFails != nil && m.draftFails() {
			m.c.DraftFailed()
			return
		}
		var tokens []Token
		b := &m.draftBatch
		heads := m.cfg.Draft.States > 0
		if m.draftEng != nil {
			e := m.draftEng.Batch()
			e.Reset()
			for i := range b.Token {
				e.Add(b.Token[i], b.Pos[i], b.Seq[i], b.Logits[i] != 0)
			}
		}
		m.follow()
		if m.draftEng != nil {
			if err := m.draftEng.Decode(); err != nil {
				panic("decode of the draft model: " + err.Error())
			}
		}
		for i, tok := range b.Token {
			seq := b.Seq[i]
			if m.cfg.Draft.Shared {
				continue
			}
			if heads && len(m.drafts[seq]) == 0 && m.c.Behind()[i].Request != nil { // it begins anywhere
				m.drafts[seq] = slices.Clone(m.c.Behind()[i].Request.Tokens[:b.Pos[i]])
			}
			if int(b.Pos[i]) != len(m.drafts[seq]) {
				panic(fmt.Sprintf("the draft model computes position %d of sequence %d, which has %d tokens", b.Pos[i],
					seq, len(m.drafts[seq])))
			}
			m.drafts[seq] = append(m.drafts[seq], tok)
			switch {
			case b.Logits[i] == 0:
			case m.draftEng != nil:
				tokens = append(tokens, argmax(m.draftEng.Logits(i)))
			default:
				tokens = append(tokens, m.guess(m.drafts[seq]))
			}
		}
		cells := 0
		for _, d := range m.drafts {
			cells += len(d)
		}
		if cells > m.cfg.Draft.Cells && !heads {
			panic(fmt.Sprintf("the draft model holds %d cells of %d", cells, m.cfg.Draft.Cells))
		}
		if m.cfg.Draft.Shared {
			tokens = m.sharedGuesses()
		}
		m.c.Drafted(time.Millisecond, tokens)
	}
}

// sharedGuesses returns the guesses of a head that reads the model's cells, which must be those of its requests but for
// the newest tokens'; none where draftFull says that it finds no room.
func (m *machine) sharedGuesses() (tokens []Token) {
	b := &m.draftBatch
	before := m.sharedTexts
	m.sharedTexts = nil
	for i, behind := range m.c.Behind() {
		var text []Token
		if r := behind.Request; r != nil {
			last := len(r.Tokens) - 1
			if b.Seq[i] != r.seq || int(b.Pos[i]) != last || r.computed != last {
				panic(fmt.Sprintf("the head computes position %d of sequence %d for a request with %d tokens, %d of "+
					"them in sequence %d", b.Pos[i], b.Seq[i], len(r.Tokens), r.computed, r.seq))
			}
			text = slices.Clone(r.Tokens)
		} else {
			text = append(before[behind.At], b.Token[i])
		}
		m.sharedTexts = append(m.sharedTexts, text)
		if m.draftEng != nil {
			tokens = append(tokens, argmax(m.draftEng.Logits(i)))
		} else {
			tokens = append(tokens, m.guess(text))
		}
	}
	if m.draftFull != nil && m.draftFull() {
		m.sharedTexts = nil // no row may follow
		return nil
	}
	return tokens
}

// token answers a row of r, and returns how many rows behind the first one its next one is, -1 in a later step.
func (m *machine) token(r *Request, row int, a answer) (next int) {
	tok, eog := a(r, row)
	forced := 0
	if m.forced != nil && !eog {
		forced = m.forced(r)
	}
	for ; ; forced-- {
		r.More = forced > 0
		if said := m.c.Token(m.now, r, tok, nil, eog, nil, nil); said.End != NotEnded {
			m.endOf(r.ID)
			return -1
		}
		if forced == 0 {
			break
		}
		tok, _ = a(r, row)
	}
	if next = r.NextRow(); next == 0 {
		return -1
	}
	return next
}

// texts looks at a slice of a text to embed, and ends the text at its last row.
func (m *machine) texts(r *Request, s *sched.Slice) {
	for i := range m.batch.Logits {
		if m.batch.Seq[i] != r.seq {
			continue
		}
		pos, want := int(m.batch.Pos[i]), int8(0)
		if r.EveryRow || pos == r.Prompt-1 {
			want = runtime.RowEmbedding
		}
		if m.batch.Logits[i] != want {
			panic(fmt.Sprintf("request %d: the row at position %d is computed for %b", r.ID, pos, m.batch.Logits[i]))
		}
	}
	if whole := s.Start == 0 && s.N == r.Prompt; r.Whole && !whole {
		panic(fmt.Sprintf("request %d is computed in parts", r.ID))
	}
	if s.Row >= 0 {
		m.c.Embedded(r)
		m.endOf(r.ID)
	}
}

func (m *machine) endOf(id ID) {
	if m.ended[id]++; m.ended[id] > 1 || m.want[id] == nil {
		panic(fmt.Sprintf("request %d ends a second time, or never arrived", id))
	}
	delete(m.want, id)
}

func (m *machine) arrive(r *Request) {
	if r.Control == nil && r.Kind == Generate {
		r.Control = &script{}
	}
	r.Arrived = m.now
	m.want[r.ID] = r
	m.c.Handle(m.now, Input{Kind: Arrive, Request: r})
}

// stream is n tokens that begin like every other stream of this name.
func stream(name string, n int) (out []Token) {
	h := Token(1)
	for _, c := range name {
		h = h*31 + c
	}
	for i := range n {
		out = append(out, (h*7919+Token(i)*104729)&0x7fffffff)
	}
	return out
}
