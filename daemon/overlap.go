package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// Where the engine computes beside the host (runtime.Submitter), the steps overlap: the output of a step is sent, and
// its numbers are reported, while the next one is computed. What decides the next step stays before it: sampling,
// probes, grammars, text, ends. The core hears nothing while a batch is computed, so it decides the same in both
// orders. On a processor nothing waits: the loop would take a core from the compute threads.

// overlap is the work that waits for the next submitted batch. Without a Submitter it stays empty.
type overlap struct {
	sub      runtime.Submitter // nil: the engine computes on the host
	flying   bool              // a submitted batch is computed
	settling bool              // settle is at work: what it sends waits for no batch
	outputs  []output
	text     []byte                 // of outputs
	top      []sampler.TokenLogprob // of outputs
	inputs   []core.Input           // for the core, once the batch is computed
}

// output is a token that was drawn, an end or a history that waits to be sent.
type output struct {
	kind outputKind
	r    *request
	at   time.Time // of the token

	// a token; the slices of choice and said are spans of overlap.text and overlap.top
	choice             sampler.Choice
	said               core.Said
	text, answer, tops int // where the thought, the answer and the probable tokens begin
	textEnd, topsEnd   int

	// an end
	reason   wire.Reason
	stopText string
}

// atEnd holds the core's numbers of a request at its end: the next plan releases its cells and its guesses.
type atEnd struct {
	known    bool
	computed int
	usage    wire.Usage
	drafts   *reports.WhyDrafts
}

type outputKind uint8

const (
	outToken outputKind = iota
	outEnd
	outHistory
)

// stepReport holds the numbers of a step that are published behind its tokens.
type stepReport struct {
	due  bool
	step metrics.Step
	done time.Time
}

// waits reports whether what r's client gets now must wait for the next batch.
func (o *overlap) waits() bool { return o.sub != nil && !o.settling }

// emitLater is emit behind the next Submit, if steps overlap.
func (l *loop) emitLater(r *request, c *sampler.Choice, said *core.Said, now time.Time) {
	o := &l.overlap
	if !o.waits() {
		l.emit(r, c, said)
		return
	}
	if len(said.Calls) > 0 || said.Repeated { // they are rare, and their text is the parser's
		l.settleFor(r)
		l.emit(r, c, said)
		return
	}
	out := output{kind: outToken, r: r, at: now, choice: *c, said: *said, text: len(o.text), tops: len(o.top)}
	o.text = append(o.text, said.Think...)
	out.answer = len(o.text)
	o.text = append(o.text, said.Answer...)
	o.top = append(o.top, c.Top...)
	out.textEnd, out.topsEnd = len(o.text), len(o.top)
	out.choice.Top, out.said.Think, out.said.Answer, out.said.Released, out.said.Calls = nil, nil, nil, nil, nil
	r.unsent++
	o.outputs = append(o.outputs, out)
}

// endLater is endRequest behind the next Submit, if steps overlap.
func (l *loop) endLater(r *request, reason wire.Reason, stopText string, now time.Time) {
	if !l.overlap.waits() {
		l.endRequest(r, reason, stopText, now)
		return
	}
	r.atEnd = atEnd{known: true, computed: r.Computed(), usage: r.usage(), drafts: l.whyGuesses(r)}
	r.unsent++
	l.overlap.outputs = append(l.overlap.outputs,
		output{kind: outEnd, r: r, at: now, reason: reason, stopText: stopText})
}

// historyLater hands an ended chat to intake, behind the output of it that waits: intake reads its answer.
func (l *loop) historyLater(r *request, now time.Time) {
	if r.unsent > 0 && l.overlap.waits() {
		r.unsent++
		l.overlap.outputs = append(l.overlap.outputs, output{kind: outHistory, r: r, at: now})
		return
	}
	select {
	case l.histories <- r:
	default: // intake is behind: without its tokens the core keeps the whole conversation
		l.tell(core.Input{Kind: core.History, Req: r.ID}, now)
	}
}

// settleFor settles if output of r waits: the next output of r must come behind it.
func (l *loop) settleFor(r *request) {
	if r.unsent > 0 {
		l.settle()
	}
}

// settle does what waits.
func (l *loop) settle() {
	o := &l.overlap
	if o.sub == nil || o.settling {
		return
	}
	o.settling = true
	for i := range o.outputs {
		out := &o.outputs[i]
		out.r.unsent--
		switch out.kind {
		case outToken:
			out.said.Think, out.said.Answer = o.text[out.text:out.answer], o.text[out.answer:out.textEnd]
			out.choice.Top = o.top[out.tops:out.topsEnd]
			l.emit(out.r, &out.choice, &out.said)
		case outEnd:
			l.endRequest(out.r, out.reason, out.stopText, out.at)
		case outHistory:
			l.historyLater(out.r, out.at)
		}
	}
	clear(o.outputs)
	o.outputs, o.text, o.top = o.outputs[:0], o.text[:0], o.top[:0]
	o.settling = false
	l.flushAll()
	l.reportStep()
}

// tell gives the core an input, behind the batch that is computed if one is.
func (l *loop) tell(in core.Input, now time.Time) {
	if l.overlap.flying {
		l.overlap.inputs = append(l.overlap.inputs, in)
		return
	}
	l.handle(in, now)
}

// toldLate gives the core the inputs that came while the batch was computed.
func (l *loop) toldLate(now time.Time) {
	o := &l.overlap
	for _, in := range o.inputs {
		l.handle(in, now)
	}
	o.inputs = o.inputs[:0]
}

// beside reports whether the filled batch is computed beside the host. An image that is being encoded is given time
// before the step (giveWay), for which no token waits.
func (l *loop) beside() bool {
	return l.overlap.sub != nil && l.overlap.sub.Beside() && (l.model.viewer == nil || !l.model.viewer.Encoding())
}

// submit computes the batch, and does meanwhile what waits. The caller holds l.aside.
func (l *loop) submit() (begin, done time.Time, err error) {
	o := &l.overlap
	begin = time.Now()
	if err = o.sub.Submit(); err != nil {
		return begin, time.Now(), err
	}
	o.flying = true
	from := time.Now()
	l.settle()
	l.m.Overlapped.Observe(time.Since(from))
	l.masks.Begin() // after settle, which closes constraints
	l.aside.Unlock()
	err = o.sub.Wait()
	done = time.Now()
	l.aside.Lock()
	l.masks.End()
	o.flying = false
	return begin, done, err
}
