package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/toolcall"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sampler"
)

// request is one generation, from the parsed frame to its eos. The poller makes it, intake fills everything above
// the line; from cmdArrive on the decode loop owns it, except for the atomics.
type request struct {
	core.Request // what the decode loop computes; the rest is how it is told to the client

	conn     *ipc.Conn
	wireID   string
	lines    bool // newline protocol: raw bytes instead of events
	stream   bool
	progress bool // gets progress events
	noisy    bool // asked for them: from the first step on, not only when the prompt takes long
	metadata []byte
	logprobs bool
	arrived  time.Time

	ctl         *meridian.Control // Request.Control
	chain       *sampler.Chain
	failure     *wire.Error    // why the loop cancelled it; nil: it was not cancelled, or by its client
	form        *form          // what its answer is held to; nil: to nothing
	callGrammar *compiled      // what a call that it begins by itself is held to; nil: to nothing
	refused     bool           // the call at hand did not begin as callGrammar has it
	fillOnly    bool           // computes its prompt and samples nothing
	stopTokens  []core.Token   // end its answer
	continued   bool           // its prompt ends within the last of messages
	chat        bool           // made of messages: its answer is kept, for the history that its next turn begins with
	messages    []wire.Message // of a chat
	with        rendering      // and what its template was told
	callForm    *toolcall.Spec // how its answer writes calls of tools; nil without tools

	// cancelled is set by the client's side, read by the loop. abortable says that a cancel breaks off the running
	// decode (see abortFrom), set by the loop, read by the cancel.
	cancelled   atomic.Bool
	endThink    atomic.Bool  // the client asked for it
	cancelledAt atomic.Int64 // unix ns
	abortable   atomic.Bool

	// ---- owned by the decode loop ----

	paused       bool      // the client does not read: pending holds what its ring had no room for
	pausedAt     time.Time // valid while paused
	finished     bool      // finalised; kept only while pending is not empty
	pending      []byte    // whole frames not yet accepted by conn, in order
	answer       []byte    // when not streaming, and of chats
	thinking     []byte    // when not streaming, and of chats
	calls        []wire.ToolCall
	callText     []byte // the arguments of the call that is being read
	malformed    []malformedCall
	started      time.Time // first slice in a batch; zero while queued
	first, last  time.Time // token times
	lastProgress time.Time
	answered     time.Time // first visible token
	gaps         gapSum    // since the last live sample

	// Set when it is first given a sequence.
	cached int            // prompt tokens that need not be computed
	tier   wire.CacheTier // where they were
	miss   string         // why it was not more

	countsOnly bool // its signals cannot be had, and that was logged
}

// usage and timings of the request as it stands, for its eos.
func (r *request) usage() wire.Usage {
	return wire.Usage{
		PromptTokens: r.Prompt, CompletionTokens: r.Generated(), ThinkTokens: r.ctl.ThinkTokens(),
		CachedTokens: r.cached, CacheTier: r.tier, CacheMiss: r.miss,
	}
}

func (r *request) timings() wire.Timings {
	var t wire.Timings
	if r.started.IsZero() {
		return t
	}
	t.Queue = r.started.Sub(r.arrived)
	if r.first.IsZero() {
		return t
	}
	t.TTFT = r.first.Sub(r.arrived)
	t.Prefill = r.first.Sub(r.started)
	t.Decode = r.last.Sub(r.first)
	return t
}
