// Package meridian follows each request through its phases: prefill, thinking, the visible answer.
//
// It is pure: token ids in, phases and events out, no clock, no goroutine. One Router belongs to one request and
// is owned by the decode loop.
package meridian

// Phase of a request's decoding.
type Phase uint8

const (
	Prefill Phase = iota
	ThinkDecode
	OutputDecode
	Complete
)

// String is the phase's name in metrics and traces.
func (p Phase) String() string {
	return [...]string{"prefill", "think_decode", "output_decode", "complete"}[p]
}

// Event is what a token meant for its request's phase.
type Event uint8

const (
	None       Event = iota
	EnterThink       // the token opens a think block
	ExitThink        // the token closes it; Router.ThinkTokens says how long it was
	Completed        // the token ends the generation
)

// Tags are the vocabulary's boundary tokens. They come from the loaded model, never from a table: published
// tables of ids have been wrong. A negative id means that the model has no such single token.
type Tags struct {
	Open, Close int32
}

// Known reports whether the model marks thinking with single tokens.
func (t Tags) Known() bool { return t.Open >= 0 && t.Close >= 0 }

// Router is one request's phase, followed token by token: O(1) a token, no allocation. Phases only move forward;
// a think block that is re-opened in the answer is text of the answer.
type Router struct {
	tags  Tags
	phase Phase
	think int
}

// NewRouter starts a request whose rendered prompt is given: templates may open the think block in the prompt,
// so the last boundary token of the prompt decides whether decoding begins inside one. A block opened earlier
// and never closed within the prompt's last turn counts as open.
func NewRouter(tags Tags, prompt []int32) Router {
	r := Router{tags: tags, phase: Prefill}
	if !tags.Known() {
		return r
	}
	for i := len(prompt) - 1; i >= 0; i-- {
		switch prompt[i] {
		case tags.Open:
			r.phase = ThinkDecode
			return r
		case tags.Close:
			return r
		}
	}
	return r
}

// Phase is where the request is.
func (r *Router) Phase() Phase { return r.phase }

// ThinkTokens is how many tokens the think block has so far, without its tags.
func (r *Router) ThinkTokens() int { return r.think }

// OnToken moves the request by one decoded token. eog says that the token ends the generation, space that its
// text is only white space: models put a line break before their opening tag.
func (r *Router) OnToken(token int32, eog, space bool) Event {
	if r.phase == Complete {
		return None
	}
	if eog {
		r.phase = Complete
		return Completed
	}
	switch r.phase {
	case Prefill:
		if token == r.tags.Open && r.tags.Known() {
			r.phase = ThinkDecode
			return EnterThink
		}
		if !space || !r.tags.Known() {
			r.phase = OutputDecode
		}
	case ThinkDecode:
		if token == r.tags.Close {
			r.phase = OutputDecode
			return ExitThink
		}
		r.think++
	}
	return None
}
