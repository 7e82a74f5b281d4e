package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// Request is one row of a workload. Times are microseconds, lengths are tokens.
type Request struct {
	Index   int64  // its number in the workload, from 0; the default name is request_<Index>
	Name    string // "" = the default name
	Arrival int64

	Input  int // the whole prompt, shared prefix included
	Output int // what the model will generate; only the clock of the simulation may look at it
	Budget int // the client's max_tokens; 0 = none

	Deadline int64 // absolute; 0 = none
	// TargetTTFT, TargetITL and TargetTTOT are the client's targets for uma-serve's scheduler; 0 = none.
	TargetTTFT int64
	TargetITL  int64
	TargetTTOT int64
	Strict     bool // refuse the request unless its targets will be met

	Prefix    string // prefix group; "" = none
	PrefixLen int    // leading tokens shared with the group
	Stream    uint64 // identity of the tokens behind the prefix; 0 = no other request has them

	// Of a recording (FromRecording): the first BaseLen tokens are those of another request's history; and the first
	// Resident tokens were cached when it started, for example by a snapshot on disk or an earlier run.
	Base     *Identity
	BaseLen  int
	Resident int
	Lent     bool // others have it as their Base

	// Of a recording: the request came Delay microseconds after the end of request number Follows-1, from a client that
	// asks again as soon as it is answered, or as the next turn of that conversation; 0 = its arrival depends on no
	// other request. NewChained keeps the dependency.
	Follows int64
	Delay   int64

	// Stalls are the pauses of its client, in order: it reads nothing for so long that uma-serve pauses the request.
	// Batch formation uma.
	Stalls []Stall
	// Probes are the forks that its early-exit probe asked for, in order. Batch formation uma.
	Probes []Probe

	Client, Tenant, Class, Model string
	Session                      string
	Round                        int
	Think                        int // of Output, the tokens of the thinking block, before the answer
	ReasonRatio                  float64
	// Repeat is the share of Output that continues what its text has had before, so that it can be guessed. Batch
	// formation uma.
	Repeat    float64
	Streaming bool

	// Embed: a text to embed, which shares no cells. Its one output token stands for its embedding. See core.Request
	// for the other two. Batch formation uma.
	Embed, EveryRow, Whole bool

	// A request whose prompt another server has computed (prefill-decode disaggregation): Arrival is when its KV cache
	// is there, Origin its arrival at the first server, FirstToken when its first token came out.
	Prefilled          bool
	Origin, FirstToken int64
}

// Probe is a fork of a thought, computed beside a step to see whether it might end.
type Probe struct {
	After int // tokens that were thought
	Rows  int // > 0
}

// Stall is a pause of a client that does not read.
type Stall struct {
	After int   // tokens it had been sent, > 0
	Us    int64 // how long, microseconds, > 0
}

// ID returns the request's name.
func (r *Request) ID() string {
	if r.Name != "" {
		return r.Name
	}
	return "request_" + strconv.FormatInt(r.Index, 10)
}

// Identity says which tokens the request holds.
func (r *Request) Identity() Identity {
	id := Identity{Own: r.Stream, Base: r.Base, BaseLen: r.BaseLen}
	if r.Stream == 0 {
		id.Own, id.Private = NumberedStream(r.Index), r.Base == nil && !r.Lent
	}
	if r.Prefix != "" {
		id.Prefix, id.PrefixLen = NamedStream(r.Prefix), r.PrefixLen
	}
	return id
}

// Source hands out requests in the order of their arrival.
type Source interface {
	// Next fills r and returns true, or returns false after the last request.
	Next(r *Request) bool
}

// Outcome is the kind of a request's end.
type Outcome uint8

const (
	Completed Outcome = iota
	TimedOut
	Dropped
	Moved // to another server; it ends there
)

// Reactive is a source some of whose requests depend on how others ended.
type Reactive interface {
	Source
	// Ended reports that a request ended at time now. It fills next and returns true when another one follows;
	// next.Arrival ≥ now.
	Ended(r *Request, how Outcome, now int64, next *Request) bool
}

// Fallible is a source that may stop early; Err says why, after Next returned false.
type Fallible interface {
	Source
	Err() error
}

// List is a Source over requests in memory.
type List struct {
	rows []Request
	at   int
}

// NewList makes a Source of rows, which it sorts by arrival; rows that arrive together keep their order.
func NewList(rows []Request) *List {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return &List{rows: sorted}
}

// Len returns the number of requests.
func (l *List) Len() int { return len(l.rows) }

func (l *List) Next(r *Request) bool {
	if l.at == len(l.rows) {
		return false
	}
	*r = l.rows[l.at]
	l.at++
	return true
}

// Chained is a Source and Reactive: requests that followed the end of another one (Request.Follows) arrive as long
// after it as they did, whenever that is now. The others arrive at their time.
type Chained struct {
	*List
	after map[int64]Request // by the Index of the one they follow
}

// NewChained makes a Source of rows. Of several that follow the same one, the last does and the others keep their
// times.
func NewChained(rows []Request) *Chained {
	c := &Chained{after: map[int64]Request{}}
	var free []Request
	for _, r := range rows {
		if r.Follows == 0 || r.Follows-1 == r.Index {
			free = append(free, r)
			continue
		}
		if other, taken := c.after[r.Follows-1]; taken {
			free = append(free, other)
		}
		c.after[r.Follows-1] = r
	}
	c.List = NewList(free)
	return c
}

// Len returns the number of requests, those that follow others included.
func (c *Chained) Len() int { return c.List.Len() + len(c.after) }

// Ended implements Reactive.
func (c *Chained) Ended(r *Request, _ Outcome, now int64, next *Request) bool {
	n, ok := c.after[r.Index]
	if !ok {
		return false
	}
	delete(c.after, r.Index)
	*next = n
	next.Arrival = now + n.Delay
	return true
}

// Collect reads a source to its end, or to the first max rows (max ≤ 0: all).
func Collect(s Source, max int) ([]Request, error) {
	var out []Request
	for r := (Request{}); max <= 0 || len(out) < max; {
		if !s.Next(&r) {
			break
		}
		out = append(out, r)
	}
	if f, ok := s.(Fallible); ok {
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Limits of a row, so that sums of a whole workload fit in 63 bits and a line cannot ask for the moon.
const (
	MaxTokens = 1 << 30
	MaxTime   = int64(1) << 60
)

func (r *Request) check() error {
	for _, f := range []struct {
		name string
		v    int64
		max  int64
	}{
		{"arrival", r.Arrival, MaxTime}, {"input_tokens", int64(r.Input), MaxTokens},
		{"output_tokens", int64(r.Output), MaxTokens},
		{"prefix_tokens", int64(r.PrefixLen), MaxTokens}, {"deadline", r.Deadline, MaxTime},
	} {
		if f.v < 0 || f.v > f.max {
			return fmt.Errorf("%s = %d: must be between 0 and %d", f.name, f.v, f.max)
		}
	}
	if r.Budget > MaxTokens {
		return fmt.Errorf("max_output_len = %d: must be at most %d", r.Budget, MaxTokens)
	}
	if r.PrefixLen > r.Input {
		return fmt.Errorf("prefix_tokens = %d is more than the whole prompt, input_tokens = %d", r.PrefixLen, r.Input)
	}
	return nil
}
