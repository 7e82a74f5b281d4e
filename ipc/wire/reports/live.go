package reports

import "github.com/uma-serve/uma-serve/ipc/wire"

// The events of GET /live, as server-sent events. Each is one JSON object of these types: a hello first, then a
// Live twice a second while anything changes.

// LiveHello is the data of the first event, "hello".
type LiveHello struct {
	UID      uint32 `json:"uid"`      // of the client
	Operator bool   `json:"operator"` // it sees the requests of all users by name: root and the server's user
	Version  string `json:"version"`
	EveryMs  int    `json:"every_ms"` // between two events
}

// Live is the data of a "live" event.
type Live struct {
	AtMs   float64    `json:"at_ms"`                  // since the model was loaded, as all times here
	Steps  []LiveStep `json:"steps,omitempty"`        // since the last event, oldest first
	Missed uint64     `json:"missed_steps,omitempty"` // steps that are not in Steps: there were too many
	State  *LiveState `json:"state,omitempty"`        // absent: unchanged since the last event
}

// LiveStep is a decode step, or as many short ones in a row as take LiveMergeMs together: end and duration in ms,
// number of steps, then the rows in their batches: prompt tokens, thinking tokens, answer tokens, tokens of EAT probes.
type LiveStep [7]float64

// Indices of LiveStep.
const (
	StepEnd = iota
	StepTook
	StepCount
	StepPrompt
	StepThink
	StepAnswer
	StepProbe
)

// LiveMergeMs: steps that take less are sent together, so that a fast model does not cost a client more than a slow
// one.
const LiveMergeMs = 8

// MaxLiveStreams is the most requests that a LiveState lists.
const MaxLiveStreams = 64

// LiveState is a snapshot of the server's load and KV pool.
type LiveState struct {
	Status   string  `json:"status"`        // as in Health: loading, ok, stalled, draining
	Progress float64 `json:"load_progress"` // of the model's load, 0…1

	Guard       string  `json:"guard"`         // effect of the ITL target on prompts: open, trim, hold
	ITLTargetMs float64 `json:"itl_target_ms"` // of answers that name none

	Cost CostModel `json:"cost"` // milliseconds of a step by its batch

	Load LiveLoad `json:"load"` // of all users
	// the client's requests, or all for an operator; oldest first, MaxLiveStreams at most
	Streams []LiveStream `json:"streams"`
	More    int          `json:"more"` // of them: not listed

	Pool  LivePool   `json:"pool"`
	Tiers []LiveTier `json:"tiers"` // host, disk and fabric
}

// LiveLoad counts live requests.
type LiveLoad struct {
	Queued   int    `json:"queued"` // waiting for their first sequence, or for another after a preemption
	Prefill  int    `json:"prefill"`
	Think    int    `json:"think"`
	Output   int    `json:"output"`
	Paused   int    `json:"paused"`            // of all these: their client does not read
	Parked   int    `json:"parked"`            // of Queued: preempted
	Waiting  string `json:"waiting,omitempty"` // reason, as in Decision, for which the first of the queue waits
	Users    int    `json:"users"`             // with live requests
	Sessions int    `json:"sessions"`          // connections
}

// LiveStream is one live request.
type LiveStream struct {
	Number    uint64  `json:"number"` // the server's own
	Request   string  `json:"request"`
	UID       uint32  `json:"uid"`
	Class     string  `json:"class"`
	State     string  `json:"state"` // queued, prefill, think, output, parked
	Reason    string  `json:"reason"`
	ArrivedMs float64 `json:"arrived_ms"`
	TTFTMs    float64 `json:"ttft_ms"` // 0 before the first token
	Prompt    int     `json:"prompt"`
	Computed  int     `json:"computed"` // tokens of its history in the pool
	Cached    int     `json:"cached"`   // of the prompt: were cached
	Tokens    int     `json:"tokens"`   // generated
	Think     int     `json:"think"`    // of them
	TargetMs  float64 `json:"target_ms"`

	// Times between two tokens since the last event.
	Gaps   int     `json:"gaps"`
	MeanMs float64 `json:"itl_mean_ms"`
	MaxMs  float64 `json:"itl_max_ms"`
	Late   int     `json:"late"` // above TargetMs; thinking and background requests have no target to miss
}

// LivePool is a map of the KV pool, in cells.
// Invariant: Free + Σ Parts.Cells == Total.
type LivePool struct {
	Total int        `json:"total"`
	Free  int        `json:"free"`
	Parts []LivePart `json:"parts"`
}

// LivePart is the number of cells that one owner holds for one request, tier and use.
type LivePart struct {
	UID     int64  `json:"uid"`              // -1: other users, together
	Request uint64 `json:"number,omitempty"` // a running request's number
	Tier    string `json:"tier"`             // prefix, think_active, think_complete, output_critical
	Use     string `json:"use"`              // own, shared (by running requests and others), cached, pinned
	Holders int    `json:"holders"`          // sequences that hold the part's cells, at most
	Cells   int    `json:"cells"`
}

// LiveTier is a store behind the pool.
type LiveTier struct {
	Tier     wire.CacheTier `json:"tier"`
	Off      string         `json:"off,omitempty"`
	Bytes    int64          `json:"bytes"`
	CapBytes int64          `json:"cap_bytes"`
	Entries  int            `json:"entries"`
}
