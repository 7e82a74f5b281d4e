package daemon

import (
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// request is one generation, from the parsed frame to its eos. The poller makes it, intake fills everything above
// the line; from cmdArrive on the decode loop owns it, except for the atomics.
type request struct {
	conn       *ipc.Conn
	wireID     string
	owner      uint32 // peer uid: the fairness key
	lines      bool   // newline protocol: raw bytes instead of events
	stream     bool
	progress   bool
	class      sched.Class
	targetTTFT time.Duration
	targetTBT  time.Duration
	metadata   []byte
	logprobs   bool
	arrived    time.Time

	// tokens is the sequence's whole history, the prompt and then what was sampled; capacity for all of it.
	tokens     []runtime.Token
	nPrompt    int
	maxTokens  int // Invariant: nPrompt + maxTokens ≤ n_ctx
	ctl        *meridian.Control
	chain      *sampler.Chain
	text       sampler.TextStream // the visible answer: stop strings apply
	thought    sampler.TextStream // the thinking: none do
	fillOnly   bool               // computes its prompt and samples nothing
	stopTokens []runtime.Token    // end its answer
	continued  bool               // its prompt ends within the last of messages
	chat       bool               // made of messages: its next turn will begin with its history
	messages   []wire.Message     // of a chat
	vars       map[string]any     // and what its template was told
	shareable  int                // leading tokens that are the system prompt

	// cancelled is set by the client's side, read by the loop. prefilling is how many tokens of this request the
	// running decode computes, set by the loop, read by a cancel that wonders whether to abort it.
	cancelled   atomic.Bool
	endThink    atomic.Bool  // the client asked for it
	cancelledAt atomic.Int64 // unix ns
	prefilling  atomic.Int32

	// ---- owned by the decode loop ----

	id           sched.ReqID
	paused       bool      // the client does not read: pending holds what its ring had no room for
	pausedAt     time.Time // valid while paused
	finished     bool      // finalised; kept only while pending is not empty
	pending      []byte    // whole frames not yet accepted by conn, in order
	answer       []byte    // when not streaming, and of chats
	thinking     []byte    // when not streaming, and of chats
	started      time.Time // first slice in a batch; zero while queued
	first, last  time.Time // token times
	lastProgress time.Time
	answered     time.Time // first visible token

	thinkFrom, thinkTo int // its finished think block is tokens[thinkFrom:thinkTo]; thinkTo 0: it has none, or no more
	cut                int // tokens taken out of its history by shorten
	keep               int // leading tokens that a context shift leaves alone

	seq      runtime.Seq // while it has one of the scheduler's slots, and while it lingers
	computed int         // tokens of its history in seq
	own      int         // of them: counted by the scheduler as its own
	lingers  int         // computed, when it ended
	had      int         // computed, when it was preempted; 0 once it runs again
	held     bool        // waits for another request's prompt
	joined   bool        // has done so

	restoring *restore       // that it waits for
	noRestore bool           // the stores were asked
	restored  wire.CacheTier // what they gave

	counted bool           // the next three are set: at its first start
	cached  int            // prompt tokens that need not be computed
	tier    wire.CacheTier // where they were
	miss    string         // why it was not more

	fork       runtime.Seq     // its scratch sequence in a step that has a fork of it
	forkTokens []runtime.Token // the rows of the probe it asked for last; the control's memory
	countsOnly bool            // its signals cannot be had, and that was told
}

func (r *request) generated() int { return len(r.tokens) + r.cut - r.nPrompt }

// usage and timings of the request as it stands, for its eos.
func (r *request) usage() wire.Usage {
	return wire.Usage{
		PromptTokens: r.nPrompt, CompletionTokens: r.generated(), ThinkTokens: r.ctl.ThinkTokens(),
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
