package reports

import "github.com/uma-serve/uma-serve/ipc/wire"

// WhyReport answers a why question: newest request first.
type WhyReport struct {
	Requests []WhyRequest `json:"requests"`
}

// WhyRequest is the life of one request so far.
type WhyRequest struct {
	Model   string         `json:"model,omitempty"` // behind a front with several models
	Request string         `json:"request"`         // the client's id; "" on the newline protocol
	Number  uint64         `json:"number"`          // the server's, unique since its start; 0 while it is compiling
	UID     uint32         `json:"uid"`
	Owner   string         `json:"owner,omitempty"` // of an API key, where UID is its number
	Class   string         `json:"class"`           // interactive, background
	State   string         `json:"state"`           // compiling, queued, prefill, think, output, parked, done
	Ended   string         `json:"ended,omitempty"`
	AgeMs   float64        `json:"age_ms"`  // since it arrived
	TookMs  float64        `json:"took_ms"` // from its arrival to its end; 0 while it lives
	TTFTMs  float64        `json:"ttft_ms"` // 0 before the first token
	Usage   WhyUsage       `json:"usage"`
	Form    *WhyConstraint `json:"form,omitempty"` // the constraint on its answer; nil: none
	// the early-exit signals of its thinking; nil: none was measured
	Signals *WhySignals `json:"signals,omitempty"`
	// Drafts are the guesses for it (speculation); nil: none are made
	Drafts    *WhyDrafts `json:"drafts,omitempty"`
	Decisions []Decision `json:"decisions"`         // oldest first
	Dropped   int        `json:"dropped_decisions"` // older ones that are not remembered
}

// WhyUsage counts a request's tokens so far.
type WhyUsage struct {
	PromptTokens     int    `json:"prompt_tokens"`
	CachedTokens     int    `json:"cached_tokens"`
	CacheTier        string `json:"cache_tier"`
	CacheMiss        string `json:"cache_miss,omitempty"`
	CompletionTokens int    `json:"completion_tokens"`
	ThinkTokens      int    `json:"think_tokens"`
}

// WhySignals are the newest values of the early-exit signals of a thought, and the think tokens at which each of them
// first asked for its end (0 = never), whether it might act or not.
type WhySignals struct {
	Probes       int     `json:"probes"`     // EAT probes
	Entropy      float64 `json:"entropy"`    // of the newest, nats
	Mean         float64 `json:"mean"`       // running, nats
	Variance     float64 `json:"variance"`   // running, nats²
	Index        float64 `json:"rpdi_index"` // RPDI's ratio
	Converged    int     `json:"converged_at"`
	Stalled      int     `json:"stalled_at"`
	Overthinking int     `json:"overthinking_at"`
}

// WhyConstraint is the cost of constraining an answer so far, and the rows that forced tokens saved.
type WhyConstraint struct {
	Form         string  `json:"form"`          // json_object, json, regex, choice, grammar
	CompileMs    float64 `json:"compile_ms"`    // 0 = it was compiled for an earlier request
	Masks        int     `json:"masks"`         // masks that were computed; the others were known
	MaskMs       float64 `json:"mask_ms"`       // all of them together, beside the decodes
	ForcedTokens int     `json:"forced_tokens"` // taken without a row, because there was no choice
}

// WhyDrafts describes the guesses for a request (speculation): the newest decision, and the counts so far.
type WhyDrafts struct {
	Most    int             `json:"most"`               // for a step
	Reason  string          `json:"reason,omitempty"`   // of the newest decision; "" = there was none yet
	Text    string          `json:"text,omitempty"`     // a sentence
	SinceMs float64         `json:"since_ms,omitempty"` // start of the decisions for that reason, since the arrival
	Chance  float64         `json:"chance,omitempty"`   // probability that the next guess is accepted
	Counts  []WhyDraftCount `json:"counts"`
}

// WhyDraftCount counts the guesses of one phase and source.
type WhyDraftCount struct {
	Phase    string `json:"phase"`    // think, output
	Source   string `json:"source"`   // own: the request's text; other: another text of its user
	Drafted  int    `json:"drafted"`  // computed
	Accepted int    `json:"accepted"` // of Drafted: the sampled token was the guess
}

// Decision is a decision about a request. The same decision in consecutive steps is one entry, with a count.
type Decision struct {
	AtMs   float64 `json:"at_ms"`            // since the request arrived
	LastMs float64 `json:"last_ms"`          // of the newest of Times; AtMs when there is one
	Times  int     `json:"times"`            // ≥ 1
	Reason string  `json:"reason"`           // short and stable, the label of the metrics
	Text   string  `json:"text"`             // a sentence
	Tokens int     `json:"tokens"`           // computed for it, by all of Times together
	Latest int     `json:"latest,omitempty"` // by the newest
}

// KVReport answers a kv question: the entries of the cache, with owner, tier and reason.
type KVReport struct {
	Cells         KVCells  `json:"cells"`
	BytesPerToken int64    `json:"bytes_per_token"` // of a cell, by the model's own KV types
	BlockTokens   int      `json:"block_tokens"`
	SeqsUsed      int      `json:"sequences_used"`
	SeqsMax       int      `json:"sequences_max"`
	Lookups       uint64   `json:"lookups"`
	Hits          uint64   `json:"hits"`          // lookups that found at least one token
	HitRatio      float64  `json:"hit_ratio"`     // Hits / Lookups
	CachedTokens  uint64   `json:"cached_tokens"` // prompt tokens not computed again
	Snapshots     uint64   `json:"snapshots"`     // taken
	Tiers         []KVTier `json:"tiers"`         // device first
	// running requests, then prefixes from the most to the least worth keeping
	Entries []KVEntry `json:"entries"`
	Tree    string    `json:"tree,omitempty"`

	// Models are the reports of a front's engine processes by name; the fields above are then those of the default
	// model, or of the only one that is loaded.
	Models map[string]*KVReport `json:"models,omitempty"`
}

// KVCells is the ledger of the pool, in cells (tokens).
// Invariant: Own + Shared + Cached + Pinned + Free == Total.
type KVCells struct {
	Total  int `json:"total"`
	Own    int `json:"own"`    // of one running request
	Shared int `json:"shared"` // of a running request and another holder
	Cached int `json:"cached"` // of cached prefixes alone: evictable
	Pinned int `json:"pinned"`
	Free   int `json:"free"`
}

// KVTier is the contents of one tier and its counters.
type KVTier struct {
	Tier      wire.CacheTier `json:"tier"`
	Off       string         `json:"off,omitempty"` // reason why there is no such tier; "" = there is
	Entries   int            `json:"entries"`
	Tokens    int64          `json:"tokens"` // whose cells are there
	Bytes     int64          `json:"bytes"`
	CapBytes  int64          `json:"cap_bytes"` // 0 = no limit of this tier
	Hits      uint64         `json:"hits"`
	HitTokens uint64         `json:"hit_tokens"`
	Evictions uint64         `json:"evictions"`
	PagesIn   uint64         `json:"pages_in"`             // tokens restored from here
	PagesOut  uint64         `json:"pages_out"`            // tokens stored here
	RestoreMs float64        `json:"restore_ms"`           // mean of restores from here
	Errors    uint64         `json:"errors"`               // operations that failed
	Damaged   uint64         `json:"damaged"`              // copies that failed verification and are not used
	LastError string         `json:"last_error,omitempty"` // the newest of both
	Paused    bool           `json:"paused,omitempty"`     // it failed too often and is left alone for a while
}

// ShownUID are the bits of a namespace that reports show: all that a number in JavaScript holds. User ids have 32.
const ShownUID = 1<<53 - 1

// KVEntry is a running sequence or a cached prefix.
type KVEntry struct {
	Name     string         `json:"name"` // argument of drop, pin, unpin and save
	Kind     string         `json:"kind"` // request, prefix, restore, snapshot, image
	Tier     wire.CacheTier `json:"tier"`
	Class    string         `json:"class"`             // think_complete, think_active, output_critical, prefix
	Request  string         `json:"request,omitempty"` // the client's id of a running request
	Number   uint64         `json:"number,omitempty"`  // the server's number of the request that runs or left it
	UID      uint64         `json:"uid"`               // the user, or the ShownUID bits of a namespace of his prompts
	Owner    string         `json:"owner,omitempty"`   // of an API key, where UID is its number
	Seq      int            `json:"seq"`               // -1: not on the device
	From     int            `json:"from,omitempty"`    // position of its first token, where it is a part of a prefix
	Tokens   int            `json:"tokens"`
	OwnTok   int            `json:"own_tokens"` // not shared with another entry
	Bytes    int64          `json:"bytes"`
	OwnBytes int64          `json:"own_bytes"`
	AgeMs    float64        `json:"age_ms"`
	IdleMs   float64        `json:"idle_ms"` // since a request last used it
	Hits     int            `json:"hits"`
	Turns    int            `json:"turns"`
	Pinned   bool           `json:"pinned"`
	Worth    float64        `json:"worth"` // the entry with the lowest value is evicted first
	Hash     string         `json:"hash,omitempty"`
	Why      string         `json:"why"`
}

// KVDone answers a kv question that asked for an operation.
type KVDone struct {
	Op     string `json:"op"`
	Target string `json:"target"`
	Done   int    `json:"done"` // number of entries
	Tokens int    `json:"tokens"`
	Bytes  int64  `json:"bytes"` // freed, kept or written
	Text   string `json:"text"`  // a sentence
}

// CostModel predicts the duration of a step. info reports it, and uma-sim's key cost_model reads it:
//
//	milliseconds = A + B·prompt tokens + C·rows of answers + D·attended cells + E·cells read
type CostModel struct {
	A       float64 `json:"a"`
	B       float64 `json:"b"`
	C       float64 `json:"c"`
	D       float64 `json:"d"`
	E       float64 `json:"e"`
	Samples uint64  `json:"samples"` // steps learned from; 0: nothing is known yet
	Error   float64 `json:"error"`   // moving average of |predicted − took| / took
}
