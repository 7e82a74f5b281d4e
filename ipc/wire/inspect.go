package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// The questions that look inside the server, and the types of their answers. They are asked by people, not per
// token, so their answers are written by encoding/json; both sides share these types.

// MaxLast is the most requests one why question gets, and as many as the server remembers after their end.
const MaxLast = 64

// WhyQuestion asks for the decisions behind requests. Request, when it is not "", names those with this id of the
// asker's (a client's id may have been used again: all that are remembered), or, as "#17", the one with this number of
// the server's. Otherwise the Last newest are meant, running ones included.
type WhyQuestion struct {
	Request string
	Last    int // 1…MaxLast; 0 with Request
}

// KVOp is an operation on cached prefixes.
type KVOp uint8

const (
	KVShow KVOp = iota
	KVDrop
	KVPin
	KVUnpin
	KVSave
)

var kvOps = []string{"show", "drop", "pin", "unpin", "save"}

// String returns the word of the protocol.
func (o KVOp) String() string { return kvOps[o] }

// MaxTargetBytes bounds kv's target.
const MaxTargetBytes = 128

// KVQuestion asks for the contents of the KV cache (KVShow), or for an operation on Target: the name of an entry, or
// "all".
type KVQuestion struct {
	Tree   bool // with KVShow: the tree as text too
	Op     KVOp
	Target string // "" with KVShow
}

// Ms returns a duration as reports have it: in milliseconds, rounded to the microsecond.
func Ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// WhyReport answers a why question: newest request first.
type WhyReport struct {
	Requests []WhyRequest `json:"requests"`
}

// WhyRequest is the life of one request so far.
type WhyRequest struct {
	Model   string   `json:"model,omitempty"` // behind a front with several models
	Request string   `json:"request"`         // the client's id; "" on the newline protocol
	Number  uint64   `json:"number"`          // the server's own, unique since it started; 0 while it is compiling
	UID     uint32   `json:"uid"`
	Owner   string   `json:"owner,omitempty"` // of an API key, where UID is its number
	Class   string   `json:"class"`           // interactive, background
	State   string   `json:"state"`           // compiling, queued, prefill, think, output, parked, done
	Ended   string   `json:"ended,omitempty"`
	AgeMs   float64  `json:"age_ms"`  // since it arrived
	TookMs  float64  `json:"took_ms"` // from its arrival to its end; 0 while it lives
	TTFTMs  float64  `json:"ttft_ms"` // 0 before the first token
	Usage   WhyUsage `json:"usage"`
	Form    *WhyForm `json:"form,omitempty"` // the constraint on its answer; nil: none
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

// WhyForm is the cost of constraining an answer so far, and the rows that forced tokens saved.
type WhyForm struct {
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
	Tier      CacheTier `json:"tier"`
	Off       string    `json:"off,omitempty"` // reason why there is no such tier; "" = there is
	Entries   int       `json:"entries"`
	Tokens    int64     `json:"tokens"`
	Bytes     int64     `json:"bytes"`
	CapBytes  int64     `json:"cap_bytes"` // 0 = no limit of this tier
	Hits      uint64    `json:"hits"`
	HitTokens uint64    `json:"hit_tokens"`
	Evictions uint64    `json:"evictions"`
	PagesIn   uint64    `json:"pages_in"`             // tokens restored from here
	PagesOut  uint64    `json:"pages_out"`            // tokens stored here
	RestoreMs float64   `json:"restore_ms"`           // mean of restores from here
	Errors    uint64    `json:"errors"`               // operations that failed
	Damaged   uint64    `json:"damaged"`              // copies that failed verification and are not used
	LastError string    `json:"last_error,omitempty"` // the newest of both
	Paused    bool      `json:"paused,omitempty"`     // it failed too often and is left alone for a while
}

// ShownUID are the bits of a namespace that reports show: all that a number in JavaScript holds. User ids have 32.
const ShownUID = 1<<53 - 1

// KVEntry is a running sequence or a cached prefix.
type KVEntry struct {
	Name     string    `json:"name"` // argument of drop, pin, unpin and save
	Kind     string    `json:"kind"` // request, prefix
	Tier     CacheTier `json:"tier"`
	Class    string    `json:"class"`             // think_complete, think_active, output_critical, prefix
	Request  string    `json:"request,omitempty"` // the client's id of a running request
	Number   uint64    `json:"number,omitempty"`  // the server's number of the request that runs or left the prefix
	UID      uint64    `json:"uid"`               // the user, or the ShownUID bits of a namespace of his prompts
	Owner    string    `json:"owner,omitempty"`   // of an API key, where UID is its number
	Seq      int       `json:"seq"`               // -1: not on the device
	From     int       `json:"from,omitempty"`    // position of its first token, where it is a part of a prefix
	Tokens   int       `json:"tokens"`
	OwnTok   int       `json:"own_tokens"` // not shared with another entry
	Bytes    int64     `json:"bytes"`
	OwnBytes int64     `json:"own_bytes"`
	AgeMs    float64   `json:"age_ms"`
	IdleMs   float64   `json:"idle_ms"` // since a request last used it
	Hits     int       `json:"hits"`
	Turns    int       `json:"turns"`
	Pinned   bool      `json:"pinned"`
	Worth    float64   `json:"worth"` // the entry with the lowest value is evicted first
	Hash     string    `json:"hash,omitempty"`
	Why      string    `json:"why"`
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

// WhyEvent returns the answer to a why question; id is the question's.
func WhyEvent(id string, r *WhyReport) *Event { return reportEvent(KindWhy, id, r) }

// KVEvent returns the answer to a kv question that asked for the contents.
func KVEvent(id string, r *KVReport) *Event { return reportEvent(KindKV, id, r) }

// KVDoneEvent returns the answer to a kv question that asked for an operation.
func KVDoneEvent(id string, r *KVDone) *Event { return reportEvent(KindKV, id, r) }

func reportEvent(k Kind, id string, report any) *Event {
	body, err := json.Marshal(report)
	if err != nil {
		// Only a number that is not finite makes encoding/json fail here.
		panic(fmt.Sprintf("wire: %s report %+v: %v", k, report, err))
	}
	return ReportEvent(k, id, body)
}

// AppendEndThink appends a frame that ends the thinking of the request id of the same connection.
func AppendEndThink(dst []byte, id string) []byte {
	dst, start := BeginFrame(dst)
	return EndFrame(append(jsontext.AppendHead(dst, `{"event":"end_think","id":`, id), '}'), start)
}

// AppendWhyQuestion appends a why question; id may be "".
func AppendWhyQuestion(dst []byte, id string, q *WhyQuestion) []byte {
	dst, start := beginQuestion(dst, KindWhy, id)
	if q.Request != "" {
		dst = jsontext.AppendHead(dst, `,"request":`, q.Request)
	} else {
		dst = jsontext.AppendInt(dst, `,"last":`, q.Last)
	}
	return EndFrame(append(dst, '}'), start)
}

// AppendKVQuestion appends a kv question; id may be "".
func AppendKVQuestion(dst []byte, id string, q *KVQuestion) []byte {
	dst, start := beginQuestion(dst, KindKV, id)
	if q.Tree {
		dst = append(dst, `,"tree":true`...)
	}
	if q.Op != KVShow {
		dst = jsontext.AppendHead(dst, `,"op":`, q.Op.String())
		dst = jsontext.AppendHead(dst, `,"target":`, q.Target)
	}
	return EndFrame(append(dst, '}'), start)
}

func beginQuestion(dst []byte, k Kind, id string) (frame []byte, start int) {
	dst, start = BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":`, k.String())
	if id != "" {
		dst = jsontext.AppendHead(dst, `,"id":`, id)
	}
	return dst, start
}

// question reads the fields of a why or a kv question; others have no meaning there.
func (d *decoder) question(key string, v *fastjson.Value) (err error) {
	switch {
	case d.kind == KindWhy && key == "request":
		d.why.Request, err = d.name(key, v, MaxIDBytes)
	case d.kind == KindWhy && key == "last":
		var n int64
		n, err = d.integer(key, v, 1, MaxLast)
		d.why.Last = int(n)
	case d.kind == KindKV && key == "tree":
		err = d.boolean(key, v, &d.kv.Tree)
	case d.kind == KindKV && key == "op":
		var i int
		i, err = d.word(key, v, kvOps)
		d.kv.Op = KVOp(i)
	case d.kind == KindKV && key == "target":
		d.kv.Target, err = d.name(key, v, MaxTargetBytes)
	default:
		return nil
	}
	for _, s := range d.asked {
		if err == nil && s == key {
			return fmt.Errorf("field %q is given twice", key)
		}
	}
	d.asked = append(d.asked, key)
	return err
}

// name reads an id or a name: a string or an integer, as clients write ids.
func (d *decoder) name(key string, v *fastjson.Value, limit int) (string, error) {
	must := fmt.Sprintf("a string of 1…%d bytes without control characters, or an integer", limit)
	switch v.Type() {
	case fastjson.TypeNumber:
		if s := []byte(d.number(v)); isInteger(s) && validID(s) {
			return string(s), nil
		}
		return "", outOfRange(key, d.number(v), must)
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		if !validID(s) {
			return "", fmt.Errorf("field %q has %d bytes, %s; it must be %s", key, len(s), quoted(s), must)
		}
		return string(s), nil
	}
	return "", wrongType(key, v, must)
}

// finishQuestion checks the constraints between the fields of a question.
func (d *decoder) finishQuestion() error {
	switch w, k := &d.why, &d.kv; {
	case w.Request != "" && w.Last != 0:
		return fmt.Errorf("fields %q and %q are both given; a why question has one of them", "request", "last")
	case d.kind == KindWhy && w.Request == "" && w.Last == 0:
		w.Last = 1
	case k.Op == KVShow && k.Target != "":
		return fmt.Errorf("field %q is given without an op; it goes with op: %q", "target", kvOps[1:])
	case k.Op != KVShow && k.Target == "":
		return fmt.Errorf(`field %q is missing; op %s needs the name of an entry, or "all"`, "target", k.Op)
	case k.Op != KVShow && k.Tree:
		return fmt.Errorf("field %q is given with op %s; it goes with a question that shows", "tree", k.Op)
	}
	return nil
}
