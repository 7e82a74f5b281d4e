package sched

import "time"

// Events lists, in order, what happened between two Steps. There is a slice for each kind, so that an event has the
// fields of its kind alone and costs no allocation. A recorded list of (now, events) replays to the same plans.
type Events struct {
	order []Entry

	Arrivals []EvArrive
	Cancels  []EvCancel
	Steps    []EvStep
	Tokens   []EvToken
	Finishes []EvFinish
	Pauses   []EvPause
	Resumes  []EvResume
	Drains   []EvDrain
	Limits   []EvLimit
	Counts   []EvThreads
	Starts   []EvStarted
	Defers   []EvDefer
	Readies  []EvReady
	Rooms    []EvCells
}

// EventKind names a kind of event, and with it a slice of Events.
type EventKind uint8

const (
	KindArrive EventKind = iota
	KindCancel
	KindStep
	KindToken
	KindFinish
	KindPause
	KindResume
	KindDrain
	KindLimit
	KindThreads
	KindStarted
	KindDefer
	KindReady
	KindCells
)

// Entry is an event's place: the kind's slice, and the index in it.
type Entry struct {
	Kind EventKind
	N    int32
}

// EvArrive: a request arrived.
type EvArrive struct {
	Req ReqID `words:"request id,first"`
	*Spec

	// QueuedFor is the time since the request reached the caller. Targets count from there; from a
	// recorded trace a simulation takes the true time of arrival, which can lie within a step.
	QueuedFor time.Duration `words:"queued"`
	Shared    int           `words:"shared"` // as EvReady has it
	// Cached is the number of leading tokens of its prompt that it need not compute, because the pool or a store has
	// them; 0 = not known. Restore is the time that restoring the part takes which only a store has.
	Cached   int           `words:"cached"`
	Restore  time.Duration `words:"restore"`
	Thinking bool          `words:"think"`   // the prompt opens a think block
	Guesses  bool          `words:"guesses"` // the caller guesses what follows its history (EvToken.Offer)
}

// EvCancel: the client cancelled or disconnected. Unknown and finished requests are ignored. Cells is EvFinish's.
type EvCancel struct {
	Req   ReqID `words:"request id,first"`
	Cells int   `words:"cells"`
}

// EvStep: the outcome of the previous plan. Exactly one follows every plan with a batch, before the EvToken and
// EvFinish events of that plan's rows.
type EvStep struct {
	Outcome Outcome       `words:",always"`
	Took    time.Duration `words:"took,always"` // how long Decode took
	// Resident is the number of cells in use while Decode ran, those of cached prefixes and of the batch included; 0 =
	// not known. It decides nothing; a cost model is fitted to it from a recorded trace.
	Resident int `words:"resident"`
	// Drafting is the time that the draft model took before Decode; 0 where it has computed nothing, or has failed.
	Drafting time.Duration `words:"drafting"`
}

// EvToken: a token was sampled from this request's logits row and is computed next.
type EvToken struct {
	Req      ReqID `words:"request id,first"`
	Thinking bool  `words:"think"` // the state after this token
	// Probe is the number of rows of a fork to decode beside this request's next row (SliceProbe); 0 = none.
	Probe int `words:"probe"`
	// Cut is the number of tokens that were taken out of its computed history (a context shift, or a dropped thought);
	// 0 = none. No other sequence may hold their cells.
	Cut int `words:"cut"`
	// Forced is the number of tokens behind the sampled one that need no row, because a grammar leaves no other. They
	// are computed with it, in one slice where there is room. 0 = none.
	Forced int `words:"forced"`
	// Accepted: of the tokens that the previous batch guessed for it (Slice.Guessed), those that came true and whose
	// cells are kept. They were sampled before the token of this event.
	Accepted int `words:"accepted"`
	// Again is the number of tokens of its history, Accepted ones included, that were computed and are to be computed
	// once more, because a guess behind them was wrong (Config.Rereads); 0 = none. They go with the next token.
	Again int `words:"again"`
	// The outcome of its newest Offer, whether or not its tokens were in the batch. Right is the number of those that
	// came true, from the first on; Wrong: the next one was compared, and was another.
	Right int  `words:"right"`
	Wrong bool `words:"wrong"`
	// Offer is the number of tokens behind this one that the caller can guess, and Grade says how sure it is, see
	// guess.NumGrades. A step may compute them with this one (Slice.Guessed).
	Offer int `words:"offer"`
	Grade int `words:"grade"`
	// Draft is the number of tokens behind this one that the draft model can guess, 0 = none. Lag is the number of
	// tokens of the history, this one included, that it has to compute before it can, ≥ 1 with Draft.
	Draft int `words:"draft"`
	Lag   int `words:"lag"`
	// The outcome of the draft model's guesses in the previous batch (Slice.Drafted), as Right and Wrong are of an
	// Offer.
	DraftRight int  `words:"draft_right"`
	DraftWrong bool `words:"draft_wrong"`
}

// EvFinish: the request ended by its last sampled token: an end of generation, a stop string, or its limit. Every row
// is answered by one EvToken, EvFinish or EvCancel.
type EvFinish struct {
	Req    ReqID  `words:"request id,first"`
	Reason Reason `words:",always"`
	// Cells, with Config.Prefix, are those that only this request holds, which others can have once it has ended. Those
	// that another sequence shares by now are not among them.
	Cells    int `words:"cells"`
	Accepted int `words:"accepted"` // as EvToken has it
}

// EvPause: the client does not read; compute nothing for this request until EvResume.
type EvPause struct {
	Req ReqID `words:"request id,first"`
}

// EvResume: the client reads again.
type EvResume struct {
	Req ReqID `words:"request id,first"`
}

// EvDrain: reject what arrives from now on.
type EvDrain struct{}

// EvLimit: other engines compute on the same device, one at a time. From this Step on a batch should take Limit at
// most, so that their answers are in time; 0 = no limit. Answers get their tokens in any case, and a prompt gets its
// smallest chunk when there are none. Waited is how long the caller has waited for the device before this Step.
type EvLimit struct {
	Limit  time.Duration `words:"step,always"`
	Waited time.Duration `words:"waited"`
}

// EvThreads: steps are computed by Threads compute threads, 1…MaxThreads, from now on. The first says how many there
// are at the start, for which Config.Cost is. Disturbed: other processes kept the threads from running, so that the
// cost model forgets the slow steps of the last second.
type EvThreads struct {
	Threads   int  `words:"n,min=1"`
	Disturbed bool `words:"disturbed"`
}

// MaxThreads is the most compute threads that the scheduler is told of.
const MaxThreads = 1 << 16

// The others exist with Config.Prefix only.

// EvStarted answers a Plan.Start: the request has its sequence.
type EvStarted struct {
	Req ReqID `words:"request id,first"`
	// Cached is the number of tokens of its history that are in its sequence already; fewer than its history has.
	Cached int `words:"cached"`
	// Shared: of Cached, those whose cells other sequences hold too: a preemption of this request does not free them.
	Shared int `words:"shared"`
	// Stops are positions of its history behind Cached, in ascending order, at which a slice must end: the caller keeps
	// what is computed up to there. They stay the caller's and do not change while the request runs.
	Stops []int `words:"stops"`
}

// EvDefer answers a Plan.Start: a prefix that the request needs is not there yet. It waits without a sequence until
// EvReady. Reason is reason.Joining or reason.Restoring.
type EvDefer struct {
	Req    ReqID  `words:"request id,first"`
	Reason Reason `words:",always"`
}

// EvReady: what the deferred request waited for is there, or will not come. Shared is the number of tokens of its
// history that running requests hold, as far as is known (0 = not known). It needs no cells for these.
type EvReady struct {
	Req    ReqID `words:"request id,first"`
	Shared int   `words:"shared"`
}

// EvCells: how many cells requests can have, by the caller's ledger: free ones, and cached ones that it can evict. It
// is due before a Step whenever the number differs from the one told last; Config.Cells is assumed before the first.
// Cells of requests whose EvFinish or EvCancel is in the same list are not in it: the scheduler adds those that the
// event names.
type EvCells struct {
	Cells int `words:"room,always"`
}

// Len returns the number of events.
func (l *Events) Len() int { return len(l.order) }

// At returns the place of event i.
func (l *Events) At(i int) Entry { return l.order[i] }

// Reset empties the list and keeps its memory.
func (l *Events) Reset() {
	clear(l.Arrivals) // what they point to is the caller's
	clear(l.Starts)
	*l = Events{
		order: l.order[:0], Arrivals: l.Arrivals[:0], Cancels: l.Cancels[:0], Steps: l.Steps[:0], Tokens: l.Tokens[:0],
		Finishes: l.Finishes[:0], Pauses: l.Pauses[:0], Resumes: l.Resumes[:0], Drains: l.Drains[:0],
		Limits: l.Limits[:0], Counts: l.Counts[:0], Starts: l.Starts[:0], Defers: l.Defers[:0],
		Readies: l.Readies[:0], Rooms: l.Rooms[:0],
	}
}

func (l *Events) Arrive(e EvArrive)   { push(l, KindArrive, &l.Arrivals, e) }
func (l *Events) Cancel(e EvCancel)   { push(l, KindCancel, &l.Cancels, e) }
func (l *Events) Step(e EvStep)       { push(l, KindStep, &l.Steps, e) }
func (l *Events) Token(e EvToken)     { push(l, KindToken, &l.Tokens, e) }
func (l *Events) Finish(e EvFinish)   { push(l, KindFinish, &l.Finishes, e) }
func (l *Events) Pause(e EvPause)     { push(l, KindPause, &l.Pauses, e) }
func (l *Events) Resume(e EvResume)   { push(l, KindResume, &l.Resumes, e) }
func (l *Events) Drain(e EvDrain)     { push(l, KindDrain, &l.Drains, e) }
func (l *Events) Limit(e EvLimit)     { push(l, KindLimit, &l.Limits, e) }
func (l *Events) Threads(e EvThreads) { push(l, KindThreads, &l.Counts, e) }
func (l *Events) Started(e EvStarted) { push(l, KindStarted, &l.Starts, e) }
func (l *Events) Defer(e EvDefer)     { push(l, KindDefer, &l.Defers, e) }
func (l *Events) Ready(e EvReady)     { push(l, KindReady, &l.Readies, e) }
func (l *Events) Cells(e EvCells)     { push(l, KindCells, &l.Rooms, e) }

func push[E any](l *Events, kind EventKind, list *[]E, e E) {
	l.order = append(l.order, Entry{kind, int32(len(*list))})
	*list = append(*list, e)
}

// Event is one event of any kind, for lists that are written out.
type Event interface{ addTo(l *Events) }

func (e EvArrive) addTo(l *Events)  { l.Arrive(e) }
func (e EvCancel) addTo(l *Events)  { l.Cancel(e) }
func (e EvStep) addTo(l *Events)    { l.Step(e) }
func (e EvToken) addTo(l *Events)   { l.Token(e) }
func (e EvFinish) addTo(l *Events)  { l.Finish(e) }
func (e EvPause) addTo(l *Events)   { l.Pause(e) }
func (e EvResume) addTo(l *Events)  { l.Resume(e) }
func (e EvDrain) addTo(l *Events)   { l.Drain(e) }
func (e EvLimit) addTo(l *Events)   { l.Limit(e) }
func (e EvThreads) addTo(l *Events) { l.Threads(e) }
func (e EvStarted) addTo(l *Events) { l.Started(e) }
func (e EvDefer) addTo(l *Events)   { l.Defer(e) }
func (e EvReady) addTo(l *Events)   { l.Ready(e) }
func (e EvCells) addTo(l *Events)   { l.Cells(e) }

// List makes a list of events, for tests and examples: unlike the methods of Events it allocates.
func List(events ...Event) *Events {
	l := &Events{}
	for _, e := range events {
		e.addTo(l)
	}
	return l
}
