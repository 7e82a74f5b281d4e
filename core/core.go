package core

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/price"
	"github.com/uma-serve/uma-serve/spec"
)

// Sequences returns the number of sequence ids to open an engine with: with cached prefixes all, because each prefix
// occupies one, else one for each request that may run.
func Sequences(running int, cached bool) int {
	if cached {
		return MaxSequences
	}
	return min(MaxSequences, running+scratchSequences)
}

// MaxRunning returns the limit on running requests for an engine with so many sequence ids.
func MaxRunning(sequences int) int { return sequences - scratchSequences }

// Core decides for one server. It belongs to one goroutine.
type Core struct {
	cfg    Config
	sched  *sched.Scheduler
	tree   *kvsnap.Tree
	ledger *blocks.Ledger // the tree's: every count of cells comes from it

	requests  map[ID]*Request // those that have not ended
	slots     []*Request      // by the scheduler's sequence number; an ended request stays until its Release
	lingering []*Request      // ended chats whose history is being rendered
	events    sched.Events    // for the next scheduler step
	plan      sched.Plan      // the newest

	room      int    // what EvCells said last
	evictable int    // evictable cells that go before answers, when the scheduler decided
	avoidable uint64 // blocks of preempted answers that lower tiers could have spared
	forks     int    // in the current batch

	stored

	verified []*Request // those with guesses in the newest batch
	drafts   drafts
	// indexes of ended requests, to reuse, and the bytes of all
	spare      []*spec.Index
	indexBytes int

	checks      int   // calls of check
	step, other *Step // step is being filled
	marks       []Token

	callEvents []toolcall.Event // of the last Said
	callText   []byte           // and their text
}

// stored is the work between the pool and the stores: restores, copies out, and their prices.
type stored struct {
	restores    []*restore
	queued      []*Request // not started yet, oldest first, and some that have started or ended; with Stores only
	lookAhead   bool       // readAhead may have something to do
	lastRestore RestoreID
	copies      []uint64   // cached prefixes to copy out while there is time, oldest first
	thoughts    []*Request // requests whose finished thoughts are to be copied out
	ingesting   *restore   // the thought whose cells are in ingestSeq; nil: none
	left        time.Duration
	copyCost    float64 // nanoseconds a token, moving average
	prices      price.Prices
}

// New makes an idle server.
func New(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Core{cfg: cfg, requests: map[ID]*Request{}, slots: make([]*Request, cfg.Sched.MaxRunning), step: &Step{},
		other: &Step{}}
	s := SchedConfig(cfg.Sched)
	s.AllGuesses = len(cfg.Synthetic) > 0
	s.DraftBatch, s.DraftCost, s.Rereads = cfg.Draft.Batch, cfg.Draft.Cost, cfg.Seals
	s.DraftStates, s.DraftBlock = cfg.Draft.States > 0, cfg.Draft.Block
	c.drafts.slots = make([]draftSlot, cfg.Draft.Sequences)
	c.drafts.rows = make([]*draftSlot, 0, cfg.Draft.Sequences)
	if cfg.Draft.States > 0 {
		c.drafts.behind = make([]Behind, 0, cfg.Draft.Batch)
	}
	var err error
	if c.sched, err = sched.New(s); err != nil {
		return nil, err
	}
	tree := kvsnap.Config{
		Cells: s.Cells, CellBytes: cfg.CellBytes, BlockCells: cfg.BlockCells, Sequences: cfg.Sequences,
		Scratch: scratchSequences, Seals: cfg.Seals, ShareSystem: cfg.ShareSystem,
	}
	if cfg.NoPrefixCache {
		tree.KeepMin = 1 << 30 // nothing is long enough to be kept
	}
	if c.tree, err = kvsnap.New(tree); err != nil {
		return nil, err
	}
	c.ledger = c.tree.Ledger()
	c.room = c.ledger.Room()
	c.copyCost = float64(cfg.CopyPerToken)
	if c.copyCost <= 0 {
		c.copyCost = float64(time.Millisecond) / float64(max(1, cfg.PartTokens))
	}
	c.left = copyIdleTime
	cfg.Trace.config(&c.cfg)
	if cfg.Trace != nil && cfg.Stores != nil {
		c.cfg.Stores = tracedStores{cfg.Stores, cfg.Trace}
	}
	return c, nil
}

// Scheduler, Tree and Ledger are for reports: the caller only reads.
func (c *Core) Scheduler() *sched.Scheduler { return c.sched }
func (c *Core) Tree() *kvsnap.Tree          { return c.tree }
func (c *Core) Ledger() *blocks.Ledger      { return c.ledger }

// Avoidable counts blocks of answers that were preempted although a lower tier had cells. It stays 0 unless the
// client of the answer does not read, or the engine has fewer cells than the ledger.
func (c *Core) Avoidable() uint64 { return c.avoidable }

// Request returns a live request, nil when it has ended.
func (c *Core) Request(id ID) *Request { return c.requests[id] }

// Live returns the number of requests that have not ended.
func (c *Core) Live() int { return len(c.requests) }

// Handle takes one input. Inputs for requests that have ended are normal and are ignored.
func (c *Core) Handle(now Instant, in Input) {
	if in.Kind == Arrive {
		in.Request.thoughtless()
	}
	c.cfg.Trace.input(now, &in)
	switch in.Kind {
	case Arrive:
		c.arrive(in.Request)
		return
	case Drain:
		c.events.Drain(sched.EvDrain{})
		return
	case Limit:
		c.events.Limit(sched.EvLimit{Limit: in.Limit, Waited: in.Waited})
		return
	case Threads:
		c.events.Threads(sched.EvThreads{Threads: in.N, Disturbed: in.Disturbed})
		return
	case Part, PartsEnd:
		c.partAtHand(now, &in)
		return
	case History:
		c.historyReady(now, in.Req, in.Tokens)
		return
	}
	r := c.requests[in.Req]
	if r == nil {
		return
	}
	switch in.Kind {
	case Cancel:
		if !r.cancelled {
			r.cancelled, r.guess.next = true, 0
			c.events.Cancel(sched.EvCancel{Req: r.ID})
		}
	case EndThink:
		r.Control.EndThink(int64(now))
	case Pause, Resume:
		if in.Kind == Pause {
			c.events.Pause(sched.EvPause{Req: r.ID})
		} else {
			c.events.Resume(sched.EvResume{Req: r.ID})
		}
		// No other request may wait for the prompt of one whose client does not read.
		if r.seq != NoSeq {
			c.wake(c.tree.Stall(r.seq, in.Kind == Pause))
		}
	case Offloaded:
		c.offloaded(r, in.Tier)
	default:
		panic(fmt.Sprintf("core: input kind %d is unknown", in.Kind))
	}
}

func (c *Core) arrive(r *Request) {
	if r.Control == nil || r.Prompt < 1 || r.Kind == Embed && r.MaxTokens != 1 {
		panic(fmt.Sprintf("core: request %d arrives without a Control, with a prompt of %d tokens, or as a text with "+
			"MaxTokens %d", r.ID, r.Prompt, r.MaxTokens))
	}
	r.seq = NoSeq
	if r.Kind != Embed {
		r.guess.most, r.guess.head = min(r.Speculate, MaxGuess), c.cfg.Draft.States > 0
		if n := len(c.cfg.Synthetic); n > 0 {
			r.guess.most = min(r.guess.most, n)
		}
	}
	if c.requests[r.ID] = r; r.Control.Phase() == meridian.ThinkDecode {
		r.thinkFrom = r.Prompt // the prompt opens the block
	}
	var cached int
	var restore time.Duration
	// Only the forecast for a strict request needs them.
	if r.Strict {
		cached, restore = c.residency(r)
	}
	c.events.Arrive(sched.EvArrive{Req: r.ID, Spec: &r.Spec.Spec, Guesses: r.guess.most > 0,
		Thinking: r.Control.Phase() == meridian.ThinkDecode, Cached: cached, Restore: restore})
	if c.cfg.Stores != nil {
		c.queued, c.lookAhead = append(c.queued, r), true
	}
}

// fillQueuedFor sets in each EvArrive the time that its request has waited for this Step.
func (c *Core) fillQueuedFor(now Instant) {
	for i := range c.events.Arrivals {
		e := &c.events.Arrivals[i]
		if r := c.requests[e.Req]; r != nil {
			e.QueuedFor = max(0, now.Sub(r.Arrived))
		}
	}
}

// fillGivenUp sets in each EvFinish and EvCancel the number of cells that only its request holds now. Others may have
// begun to share some since the event was made.
func (c *Core) fillGivenUp() {
	for i := range c.events.Finishes {
		e := &c.events.Finishes[i]
		e.Cells = c.own(e.Req, e.Cells)
	}
	for i := range c.events.Cancels {
		e := &c.events.Cancels[i]
		e.Cells = c.own(e.Req, e.Cells)
	}
}

// own returns the number of cells that only a running request holds, otherwise if it does not run.
func (c *Core) own(id ID, otherwise int) int {
	for _, r := range c.slots {
		if r != nil && r.ID == id && r.seq != NoSeq {
			return c.tree.Own(r.seq)
		}
	}
	return otherwise
}

// Next decides what happens next. It looks up requests that start in the prefix tree, so it may call the scheduler
// more than once.
func (c *Core) Next(now Instant) *Step {
	c.rollBack()
	c.move(now)
	c.fillQueuedFor(now)
	for {
		c.tellCells(now)
		c.fillGivenUp()
		c.plan = c.sched.Step(now, &c.events)
		if c.cfg.Planned != nil {
			c.cfg.Planned(now, &c.events, &c.plan)
		}
		c.events.Reset()
		c.apply(now)
		// Without a batch the caller may sleep after this Next, so events that apply has made must be told now.
		if !c.plan.Again && (len(c.plan.Batch) > 0 || c.events.Len() == 0) {
			break
		}
	}
	if invariants.Enabled {
		c.check()
	}
	out := c.step
	if len(c.plan.Batch) > 0 {
		c.makeRoom(now, c.plan.Tokens)
		c.addForks()
		c.addGuard()
		c.placeDrafts()
		c.wantStates()
	}
	if c.lookAhead {
		c.readAhead(now)
	}
	if len(c.plan.Batch) == 0 {
		// The scheduler must learn of cells that a release freed before the caller sleeps: a request that waits for
		// them would sleep until an unrelated input came.
		c.tellCells(now)
		out.Idle = len(out.Ops) == 0 && c.events.Len() == 0 && !c.moving()
		out.WakeAt = c.plan.WakeAt
	}
	out.Plan = c.plan
	c.cfg.Trace.step("next", now, out)
	c.step, c.other = c.other, out
	c.step.reset()
	return out
}

// apply carries out the part of a plan that comes before its batch.
func (c *Core) apply(now Instant) {
	for i := range c.plan.Release {
		rel := &c.plan.Release[i]
		if rel.Seq >= 0 {
			c.release(now, rel)
		}
		r := c.requests[rel.Req]
		switch {
		case r == nil: // ended by its own token, in Token or NoToken
		case !rel.Final:
			c.note(Note{Kind: Preempted, Request: r})
		case r.cancelled:
			c.end(r, End{Kind: Cancelled, Reason: rel.Reason})
		default:
			c.end(r, End{Kind: Failed, Reason: rel.Reason})
		}
	}
	for i := range c.plan.Reject {
		rej := &c.plan.Reject[i]
		if r := c.requests[rej.Req]; r != nil {
			c.end(r, End{Kind: Rejected, Reason: rej.Reason, RetryAfter: rej.RetryAfter, Target: rej.Target,
				Predicted: rej.Predicted})
		}
	}
	if c.plan.Reclaim > 0 {
		c.reclaim(now, c.plan.Reclaim)
	}
	for i := range c.plan.Start {
		c.start(now, c.plan.Start[i])
	}
}

// end reports an end that no token caused.
func (c *Core) end(r *Request, e End) {
	e.Request = r
	c.step.Ends = append(c.step.Ends, e)
	c.forget(r)
}

// forget removes a request that has ended from every list but slots; its Release removes it there.
func (c *Core) forget(r *Request) {
	r.ended = true
	r.guess.next = 0
	c.dropIndex(r)
	c.dropDraft(r)
	delete(c.requests, r.ID)
	if r.waiting || r.had > 0 { // it waits, or what it had computed is parked
		r.waiting, r.had = false, 0
		c.do(c.tree.Cancel(uint64(r.ID)))
	}
	if re := r.restoring; re != nil {
		re.leave(r)
	}
}

func (c *Core) note(n Note) { c.step.Notes = append(c.step.Notes, n) }

// FillBatch writes the newest Step's batch: the tokens of each slice at their positions, probe forks included. The
// plan's rows are the ones that Batch.Add returns.
func (c *Core) FillBatch(b *runtime.Batch) {
	b.Reset()
	// A step that is given up leaves part of its batch in the cells: on a memory that cannot drop ranges every step
	// runs to its end.
	if late := c.plan.Bound; !c.cfg.Seals && late.Decide > 0 {
		b.Bound = runtime.Bound{Decide: late.Decide, Limit: late.Limit, Expected: c.plan.Predicted}
	}
	for i := range c.plan.Batch {
		s := &c.plan.Batch[i]
		r := c.requests[s.Req]
		if b.UseMix(r.Mix); s.Start < r.MixFrom {
			b.UseMix(0)
		}
		if s.Kind == sched.SliceProbe {
			for j := range s.N {
				what := int8(0)
				if j == s.N-1 {
					what = runtime.RowProbe
				}
				b.AddFor(r.forkTokens[j], runtime.Pos(s.Start+j), r.fork, what)
			}
			continue
		}
		if r.Kind == Embed {
			r.fillTexts(b, s)
			continue
		}
		for j := range s.N {
			tok, behind := Token(0), j-(s.N-1-s.Guessed) // behind the history's last token, if the slice ends it
			if behind > 0 {
				tok = r.guess.tokens(s.Drafted)[behind-1]
			} else {
				tok = r.Tokens[s.Start+j]
			}
			if s.Start+j == r.MixFrom {
				b.UseMix(r.Mix)
			}
			last := behind >= 0 && s.Row >= 0
			want := last || r.PromptRows && s.Kind == sched.SlicePrefill
			if runtime.IsImage(tok) {
				part, at := r.imageRow(s.Start + j)
				b.AddImage(tok, runtime.Pos(s.Start+j), r.seq, part, at)
				continue
			}
			if row := b.Add(tok, runtime.Pos(s.Start+j), r.seq, want); last && row != s.Row+behind {
				panic(fmt.Sprintf("core: the logits row of request %d is %d, the plan says %d", s.Req, row,
					s.Row+behind))
			}
		}
	}
}

// Done takes the result of the newest Step. It follows every Next, before the rows of the batch are answered.
func (c *Core) Done(now Instant, res *Result) {
	c.cfg.Trace.done(now, res)
	resident := c.Resident()
	c.copied(now, res)
	if len(c.plan.Batch) == 0 {
		return
	}
	c.events.Step(sched.EvStep{Outcome: res.Outcome, Took: res.Took, Resident: resident,
		Drafting: c.drafts.took})
	for i := range c.plan.Batch {
		s := &c.plan.Batch[i]
		r := c.requests[s.Req]
		switch {
		case s.Kind == sched.SliceProbe:
			c.op(Op{Kind: SeqRemove, Dst: r.fork, To: -1})
		case c.cfg.Seals && s.Guessed > 0 && res.Outcome == sched.StepOK:
			c.stated(r, s)
			c.guessed(r, s) // settleGuard counts its cells
		case res.Outcome == sched.StepOK:
			c.stated(r, s)
			c.grown(now, r, s.Start+s.N-s.Guessed)
			c.guessed(r, s)
		case c.cfg.Seals && s.Guessed > 0:
			c.dropGuard()
		// After StepKVFull nothing was computed.
		case res.Outcome != sched.StepKVFull:
			// Part of the batch may be in the cells: remove it. A state cannot be cut: no step of such a model is
			// aborted, and a failed one ends all of its requests. Their sequences are removed then, if the tree knows
			// that they hold something.
			if !c.cfg.Seals || s.Start == 0 {
				c.op(Op{Kind: SeqRemove, Dst: r.seq, From: s.Start, To: -1})
			}
		}
	}
}

// Resident returns the number of cells in use while the newest Step's batch is computed, those of cached prefixes
// included. It is valid until the Step's Done.
func (c *Core) Resident() int { return c.cfg.Sched.Cells - c.ledger.Free() + c.plan.Tokens }

// grown tells the tree that a step has computed r's history up to n tokens, each span in its tier: after a preemption a
// step may compute a prompt, the thought behind it and part of the answer.
func (c *Core) grown(now Instant, r *Request, n int) {
	for r.computed < n {
		tier, end := r.span(r.computed)
		r.computed = min(end, n)
		woken := c.tree.Progress(r.seq, r.Tokens, r.computed, tier)
		if c.tree.Stopped(r.seq) {
			c.seal(now, r)
		}
		c.wake(woken)
	}
}

// seal keeps what r has computed for other prompts.
func (c *Core) seal(now Instant, r *Request) {
	s := c.tree.Seal(kvsnap.Instant(now), r.seq)
	c.offload(s.Evicted)
	c.do(s.Actions)
	if s.Entry != 0 && c.cfg.Durable {
		c.copies = append(c.copies, s.Entry)
	}
}

func (c *Core) op(o Op) { c.step.Ops = append(c.step.Ops, o) }

// do adds the prefix tree's actions to the Step.
func (c *Core) do(actions []kvsnap.Action) {
	for i := range actions {
		a := &actions[i]
		o := Op{Src: a.Src, Dst: a.Dst, From: a.From, To: a.To, Delta: a.Delta}
		switch a.Kind {
		case kvsnap.Copy:
			o.Kind = SeqCopy
		case kvsnap.Remove:
			o.Kind = SeqRemove
		case kvsnap.Shift:
			o.Kind = SeqShift
		}
		c.op(o)
	}
}
