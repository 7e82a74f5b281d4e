package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/daemon/drafts"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/said"
	"github.com/uma-serve/uma-serve/daemon/seat"
	"github.com/uma-serve/uma-serve/daemon/stage"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/telemetry"
)

// request is one generation, from the parsed frame to its eos. The poller creates it and intake fills the fields above
// the line; from cmdArrive on the decode loop owns it, except the atomics. Package stage says where it is, cancel.go
// how it ends early.
type request struct {
	prepare.Prepared // the computation; the other fields serve the connection

	conn   ipc.Client
	wireID string
	wishes
	metadata []byte
	parent   string // its traceparent; "" = none
	tokenEvents
	// prompt_logprobs: the most probable tokens to report for each prompt token; 0: no events of the prompt
	echo    int
	echoed  int // prompt tokens that were sent
	arrived time.Time

	embed      *embedding            // nil: it asks for an answer
	input      *input                // of a request for embeddings: one of its texts; nil: it is a client's request
	failure    *wire.Error           // error with which the loop cancelled it; nil: not cancelled, or by its client
	constraint *constrain.Constraint // of its answer; nil: none
	deviceWait seat.Waits            // of its steps, for other models
	priced     report.Price          // of its cells outside the pool
	waiter     constrain.Waiter      // for the compilation of its grammars
	chat       bool                  // its answer is kept to render the prefix of the next turn

	life     stage.Life
	endThink atomic.Bool // the client has sent end_think
	// abortable: a cancel aborts the running decode (see abortFrom); set by the loop, read by the cancel.
	abortable atomic.Bool

	// ---- owned by the decode loop ----

	said         said.Answer
	at           account.Moments
	lastProgress time.Time // newest progress event
	found

	backlog
	atEnd         atEnd
	trace         *telemetry.Request // nil: it is not traced
	missingLogged bool               // the missing-signals message was logged
	states        drafts.States      // of its newest rows, for the head of the model's file
}

// Conn returns the client's connection.
func (r *request) Conn() ipc.Client { return r.conn }

// WireID returns the client's id of the request.
func (r *request) WireID() string { return r.wireID }

// wishes say which events the client gets.
type wishes struct {
	lines    bool // newline protocol: raw bytes instead of events
	stream   bool
	progress bool // send progress events
	noisy    bool // the client asked for them: send one each step, not only for slow prompts
}

// backlog holds the events that a client which does not read has yet to get.
type backlog struct {
	paused   bool        // the client does not read and its send ring is full
	pausedAt time.Time   // valid while paused
	pending  wire.Events // that wait for room on conn, in order
	unsent   int         // outputs that wait for the next submitted batch (overlap.go)
}

// found is the part of the prompt that the cache had at the first start.
type found struct {
	cached int            // tokens
	tier   wire.CacheTier // slowest tier that they came from
	miss   string         // reason why no more were found
}

// Generated returns how many tokens the request has generated.
func (r *request) Generated() int {
	if r.embed != nil {
		return 0
	}
	return r.Request.Generated()
}

// Computed returns the number of its tokens whose cells are computed; of one that has ended, those of then.
func (r *request) Computed() int {
	if r.atEnd.known {
		return r.atEnd.computed
	}
	return r.Request.Computed()
}

// usage returns the token counts so far.
func (r *request) usage() wire.Usage {
	if r.atEnd.known {
		return r.atEnd.usage
	}
	u := wire.Usage{
		PromptTokens: r.Prompt, CompletionTokens: r.Generated(), ThinkTokens: r.Phases.ThinkTokens(),
		CachedTokens: r.cached, CacheTier: r.tier, CacheMiss: r.miss,
	}
	account.Guesses(&u, r.Guesses())
	return u
}

// tokenEvents says which tokens without text have events.
type tokenEvents struct {
	logprobs bool // all of them, with log-probabilities
	every    bool // all of them (return_token_ids)
}
