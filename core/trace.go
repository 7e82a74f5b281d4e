package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched/trace"
)

// A recording is text, a line for each call: what the core was told, what the stores answered, and each Step that it
// decided. Every line begins with tracePrefix, so that it can share a file with the scheduler's own trace
// (trace.Read takes such lines for comments):
//
//	#core config {"Sched":…}
//	#core arrive 1500 {"id":1,"owner":1000,"prompt":12,"max":32,"tokens":[…]}
//	#core next 2000
//	#core > copy seq=3 to=5 from=0 end=128
//	#core > prefill 1 seq=0 at=0 n=12 row=11 reason=prefill_rest
//	#core done 31000000 ok took=29000000 copied=0,0
//	#core token 31000000 1 4711 event=0 phase=2 probe=0 end=0
//
// Times are nanoseconds. Tokens are the model's ids: a recording holds what users wrote. (Masking them would change the
// hashes by which the prefix tree estimates how often a prefix is used, and so what it evicts.)
const tracePrefix = "#core "

// Trace records a Core.
type Trace struct {
	// Write takes whole lines; it must not keep them.
	Write func(lines []byte)

	buf []byte
}

// line begins a line; end writes it.
func (t *Trace) line(words string) {
	t.buf = append(append(t.buf[:0], tracePrefix...), words...)
}

func (t *Trace) num(v int64) {
	t.buf = strconv.AppendInt(append(t.buf, ' '), v, 10)
}

func (t *Trace) end() {
	t.buf = append(t.buf, '\n')
	t.Write(t.buf)
}

// numbers writes a whole line of a word and numbers.
func (t *Trace) numbers(word string, v ...int64) {
	if t == nil {
		return
	}
	t.line(word)
	for _, n := range v {
		t.num(n)
	}
	t.end()
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// tracedConfig is the part of Config that a recording needs.
type tracedConfig struct {
	*Config
	Stored bool // it has Stores
}

func (t *Trace) config(c *Config) {
	if t != nil {
		t.json("config ", tracedConfig{c, c.Stores != nil})
	}
}

// tracedRequest is the part of an arriving Request that core reads.
type tracedRequest struct {
	ID ID `json:"id"`
	*Spec
	Arrived Instant        `json:"arrived"`
	Phase   meridian.Phase `json:"phase,omitempty"`
	Tokens  []Token        `json:"tokens"`
}

func (t *Trace) arrive(now Instant, r *Request) {
	if t != nil {
		t.json("arrive "+strconv.FormatInt(int64(now), 10)+" ",
			tracedRequest{r.ID, r.Spec, r.Arrived, r.Control.Phase(), r.Tokens})
	}
}

// json writes a line of words and a value.
func (t *Trace) json(words string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("core: trace: " + err.Error())
	}
	t.line(words)
	t.buf = append(t.buf, b...)
	t.end()
}

var inputNames = map[InputKind]string{
	Cancel: "cancel", EndThink: "end_think", Pause: "pause", Resume: "resume", History: "history", Part: "part",
	PartsEnd: "parts_end", Drain: "drain",
	Offloaded: "offloaded", Limit: "limit", Threads: "threads",
}

func (t *Trace) input(now Instant, in *Input) {
	switch {
	case t == nil:
		return
	case in.Kind == Arrive:
		t.arrive(now, in.Request)
		return
	}
	t.line(inputNames[in.Kind])
	t.num(int64(now))
	t.num(int64(in.Req))
	switch in.Kind {
	case Part, PartsEnd:
		t.num(int64(in.Restore))
		t.num(int64(in.P0))
		t.num(int64(in.P1))
	case Offloaded:
		t.num(int64(in.Tier))
	case Limit:
		t.num(int64(in.Limit))
		t.num(int64(in.Waited))
	case Threads:
		t.num(int64(in.N))
		t.num(bit(in.Disturbed))
	case History:
		t.num(bit(in.Tokens != nil))
		for _, tok := range in.Tokens {
			t.num(int64(tok))
		}
	}
	t.end()
}

func (t *Trace) step(call string, now Instant, s *Step) {
	if t == nil {
		return
	}
	t.numbers(call, int64(now))
	for line := range bytes.Lines(s.Append(nil)) {
		t.line("> ")
		t.buf = append(t.buf, bytes.TrimSuffix(line, []byte("\n"))...)
		t.end()
	}
}

func (t *Trace) done(now Instant, r *Result) {
	if t == nil {
		return
	}
	t.line("done")
	for _, n := range []int64{int64(now), int64(r.Outcome), int64(r.Took), int64(r.CopyTook), int64(r.CopyTokens),
		bit(r.CopyFailed)} {
		t.num(n)
	}
	for i := range r.Copies {
		d := &r.Copies[i]
		for _, n := range []int64{int64(d.Restore), int64(d.To), int64(d.State), int64(d.P0), int64(d.P1)} {
			t.num(n)
		}
	}
	t.end()
}

// drafted records a round of the draft model.
func (t *Trace) drafted(took time.Duration, tokens []Token) {
	if t == nil {
		return
	}
	t.line("drafted")
	t.num(int64(took))
	for _, tok := range tokens {
		t.num(int64(tok))
	}
	t.end()
}

// token records what a token meant, so that a replay needs neither the vocabulary nor the text.
func (t *Trace) token(now Instant, r *Request, tok Token, s *Said, probe int) {
	if t == nil {
		return
	}
	t.numbers("token", int64(now), int64(r.ID), int64(tok), int64(s.Event), int64(r.Control.Phase()), int64(probe),
		int64(s.End), bit(r.More))
}

// tracedStores records what the stores answer.
type tracedStores struct {
	Stores
	t *Trace
}

func (s tracedStores) Find(ns uint64, tokens []Token, least int) (int, Tier, bool) {
	n, tier, ok := s.Stores.Find(ns, tokens, least)
	s.t.numbers("find", int64(n), int64(tier), bit(ok))
	return n, tier, ok
}

func (s tracedStores) Missing(ns uint64, tokens []Token) int {
	n := s.Stores.Missing(ns, tokens)
	s.t.numbers("missing", int64(n))
	return n
}

// Append adds the step to dst as text, a line for each thing to do, in order.
func (s *Step) Append(dst []byte) []byte {
	for i := range s.Ops {
		dst = s.Ops[i].append(dst)
	}
	for i := range s.Notes {
		n := &s.Notes[i]
		id := ID(0)
		if n.Request != nil {
			id = n.Request.ID
		}
		if n.Kind == Priced {
			dst = fmt.Appendf(dst, "priced %d n=%d tier=%v way=%v\n", id, n.N, n.Tier, n.Price.Way)
			continue
		}
		if n.Kind == Verified {
			dst = fmt.Appendf(dst, "verified %d n=%d accepted=%d source=%v thinking=%t\n", id, n.N, n.Accepted,
				n.Source, n.Thinking)
			continue
		}
		dst = fmt.Appendf(dst, "%s %d n=%d tier=%v\n", noteNames[n.Kind], id, n.N, n.Tier)
	}
	for i := range s.Ends {
		e := &s.Ends[i]
		dst = fmt.Appendf(dst, "end %d %s reason=%v retry=%v\n", e.Request.ID, endNames[e.Kind], e.Reason, e.RetryAfter)
	}
	for _, r := range s.Histories {
		dst = fmt.Appendf(dst, "render %d\n", r.ID)
	}
	dst = trace.AppendPlan(dst, "", &s.Plan)
	if s.Idle {
		dst = append(dst, "idle\n"...)
	}
	return dst
}

var (
	noteNames = [...]string{"", "started", "preempted", "parked", "recomputed", "shifted", "thought_dropped",
		"unpinned", "restored", "read_ahead", "ingested", "priced", "verified"}
	endNames = [...]string{"not_ended", "stopped", "length", "cancelled", "rejected", "failed"}
)

func (o *Op) append(dst []byte) []byte {
	switch o.Kind {
	case SeqCopy:
		return fmt.Appendf(dst, "copy seq=%d to=%d from=%d end=%d\n", o.Src, o.Dst, o.From, o.To)
	case SeqRemove:
		return fmt.Appendf(dst, "remove seq=%d from=%d end=%d\n", o.Dst, o.From, o.To)
	case SeqShift:
		return fmt.Appendf(dst, "shift seq=%d from=%d end=%d by=%d\n", o.Dst, o.From, o.To, o.Delta)
	case CopyOut:
		return fmt.Appendf(dst, "copy_out seq=%d from=%d end=%d owner=%d follows=%t\n", o.Src, o.From, o.To, o.NS,
			o.Follows)
	case Fetch:
		dst = fmt.Appendf(dst, "fetch %d tokens=%d from=%d tier=%v owner=%d", o.Restore, len(o.Tokens), o.From, o.Tier,
			o.NS)
		if o.Req != 0 {
			dst = fmt.Appendf(dst, " request=%d", o.Req)
		}
		return append(dst, '\n')
	case OffloadBlock:
		return fmt.Appendf(dst, "offload_block request=%d seq=%d from=%d end=%d last=%t\n", o.Req, o.Src, o.From, o.To,
			o.Last)
	case SkipPart:
		return fmt.Appendf(dst, "skip_part %d\n", o.Restore)
	case CopyIn:
		return fmt.Appendf(dst, "copy_in %d seq=%d from=%d end=%d limit=%d\n", o.Restore, o.Dst, o.From, o.To, o.Limit)
	case CloseFetch:
		return fmt.Appendf(dst, "close_fetch %d\n", o.Restore)
	case Flush:
		return append(dst, "flush\n"...)
	case DraftRemove:
		return fmt.Appendf(dst, "draft_remove seq=%d from=%d end=%d\n", o.Dst, o.From, o.To)
	case Compute:
		return fmt.Appendf(dst, "compute seq=%d from=%d end=%d\n", o.Dst, o.From, o.To)
	}
	panic(fmt.Sprintf("core: operation %d has no name", o.Kind))
}
