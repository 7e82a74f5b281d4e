package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Kinds of requests.
const (
	Chat      = "chat"
	Reasoning = "reasoning"
)

// Endless is the Output of a stream that continues until its Until.
const Endless = 1 << 20

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Request is one request of a plan.
type Request struct {
	ID   string `json:"id"`
	Kind string `json:"kind"` // Chat or Reasoning
	// a group that it is counted in, beside its kind: "prompt", "editor", "prefix-1024", …
	Group string `json:"group,omitempty"`
	// Measured is false for requests that only make load: they are counted separately and left out of the percentiles.
	Measured bool `json:"measured"`

	Prompt   string    `json:"prompt,omitempty"`   // raw text; exclusive with Messages
	Messages []Message `json:"messages,omitempty"` // a conversation
	// Grow: the messages continue the conversation of After, behind its messages and its answer.
	Grow bool `json:"grow,omitempty"`

	Think  int  `json:"think,omitempty"` // tokens; 0 = the request is not meant to think
	Output int  `json:"output"`          // tokens of the answer
	Exact  bool `json:"exact,omitempty"` // the answer has exactly that length: the end of generation is ignored

	At    time.Duration `json:"at_ns"` // open loop: time of sending, since the start
	After int           `json:"after"` // index of the request that must have ended before; -1 = none
	Pause time.Duration `json:"pause_ns,omitempty"`
	// Until: it is not started later than that, and cancelled when it still runs then; 0 = no limit.
	Until time.Duration `json:"until_ns,omitempty"`

	Background bool   `json:"background,omitempty"` // may wait for others
	Model      string `json:"model,omitempty"`      // "" = the target's
	Schema     string `json:"schema,omitempty"`     // JSON schema of the answer; "" = it is free
	Via        string `json:"via,omitempty"`        // protocol, see Protocols; "" = the target's own
	X          int    `json:"x,omitempty"`          // the abscissa of its group: tokens of prefix, of context
	Answer     string `json:"answer,omitempty"`     // the right answer, "" = not known
	Grader     string `json:"grader,omitempty"`     // comparison with Answer: "exact" or "math"
}

// Protocols are the protocols of uma-serve that the workload ipc compares. The ones that begin with "admin" request the
// metrics, which all three protocols support.
var Protocols = []string{"framed", "newline", "http", "admin-framed", "admin-newline", "admin-http"}

// Plan is a workload.
type Plan struct {
	Name     string
	Requests []Request
	Rate     float64       // requests a second of the open loop; 0 = it has none
	Workers  int           // > 0: closed loop
	Mark     time.Duration // start of the disturbance whose effect the workload measures; 0 = none
	Prompts  []int         // sizes the prompts were made with, tokens; for the record
}

// Options are the parameters of New. A zero field means zero: defaults come from DefaultOptions alone.
type Options struct {
	Seed           uint64
	Rate           float64       // requests a second
	Duration       time.Duration // requests = Rate · Duration, unless Requests
	Requests       int           // 0 = by Duration
	ReasoningRatio float64       // of synthetic and mix
	// BackgroundRatio is the share of the requests of synthetic, sharegpt, math500 and mix that may wait for others.
	BackgroundRatio float64
	Closed          int     // > 0: so many clients in a closed loop instead of arrivals
	Scale           float64 // factor on every length of synthetic, sharegpt and math500
	Exact           bool    // answers have exactly the length that was drawn

	File, MathFile string    // sharegpt's, math500's
	Problems       []Problem // heldout's

	Streams int           // decode-sweep, schemas, edit: answers at once; storm: chats
	Clients int           // storm: clients that submit prompts
	Prompt  int           // storm: tokens of each of these
	Tokens  int           // decode-sweep, schemas, long-context, shared-prefix, ipc: tokens of an answer
	Solo    time.Duration // storm: the chats alone
	Storm   time.Duration // storm: with the prompts
	// Background marks the prompts of storm as work that may wait.
	Background bool
	// PromptModel is the model of storm's prompts; "" = that of its chats.
	PromptModel string
	Context     int // long-context, shared-prefix: the longest, tokens
	Turns       int // agent-chain: turns of each
	Rounds      int // shared-prefix, long-context, ipc: repetitions within one run

	TokensPerWord float64 // by the model's tokenizer; 0 = 1.3
	// Salt makes the texts of two plans of one seed different, so that a server's cache from the first does not help
	// the second. It changes neither lengths nor times, and no data set.
	Salt string
}

// DefaultSeed is the reference workload's.
const DefaultSeed = 0xC0FFEE

// DefaultOptions returns the reference workload's options; those of the other workloads suit a laptop and one minute.
func DefaultOptions() Options {
	return Options{Seed: DefaultSeed, Rate: 8, Duration: 30 * time.Second, ReasoningRatio: 0.4, Scale: 1, Streams: 2,
		Clients: 4, Prompt: 1500,
		Tokens: 64, Solo: 10 * time.Second, Storm: 40 * time.Second, Context: 8192, Turns: 6, Rounds: 3}
}

// Names are all workloads, with a line about each.
var Names = []struct{ Name, Help string }{
	{"synthetic", "chats and reasoning, Poisson arrivals (the reference)"},
	{"chat", "the chats of synthetic alone"},
	{"reasoning", "the reasoning requests of synthetic alone"},
	{"sharegpt", "first turns of a ShareGPT file (--file)"},
	{"math500", "problems of a MATH-500 file (--file), graded"},
	{"mix", "both files (--file, --math-file), a fraction of --reasoning-ratio problems"},
	{"heldout", "the built-in model's held-out problems, graded"},
	{"storm", "chats that decode while clients submit long prompts back to back"},
	{"shared-prefix", "first and later questions about documents of 256 … --context tokens"},
	{"decode-sweep", "--streams answers at the same time, short prompts"},
	{"schemas", "decode-sweep with half of the answers held to a JSON schema"},
	{"edit", "--streams answers at the same time that repeat a program with another name in it"},
	{"long-context", "prompts of 1024, 2048, … --context tokens, one at a time"},
	{"agent-chain", "conversations that grow by one tool result per turn"},
	{"two-app", "an editor's completions next to a background batch job"},
	{"ipc", "the same request over framed JSON, newline and HTTP"},
}

// AtOnce reports whether the workload called name is Options.Streams answers at the same time, which a sweep over
// streams then sets, and not Options.Closed.
func AtOnce(name string) bool { return name == "decode-sweep" || name == "schemas" || name == "edit" }

// New makes the workload called name.
func New(name string, o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var p *Plan
	var err error
	switch name {
	case "synthetic":
		p = o.synthetic()
	case "chat":
		o.ReasoningRatio = 0
		p = o.synthetic()
	case "reasoning":
		o.ReasoningRatio = 1
		p = o.synthetic()
	case "sharegpt":
		p, err = o.dataset(func(n int) ([]Request, error) { return o.shareGPT(o.File, n, o.Seed) })
	case "math500":
		p, err = o.dataset(func(n int) ([]Request, error) { return o.math500(o.File, n, o.Seed) })
	case "mix":
		p, err = o.dataset(o.mix)
	case "heldout":
		p, err = o.dataset(o.heldout)
	case "storm":
		p = o.storm()
	case "shared-prefix":
		p = o.sharedPrefix()
	case "decode-sweep":
		p = o.decodeSweep()
	case "schemas":
		p = o.schemas()
	case "edit":
		p = o.edit()
	case "long-context":
		p = o.longContext()
	case "agent-chain":
		p = o.agentChain()
	case "two-app":
		p = o.twoApp()
	case "ipc":
		p = o.ipc()
	default:
		var names []string
		for _, n := range Names {
			names = append(names, n.Name)
		}
		return nil, fmt.Errorf("workload %q is none of %s", name, strings.Join(names, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", name, err)
	}
	p.Name = name
	return p, p.check()
}

func (o *Options) check() error {
	positive := func(name string, v float64) error {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%s is %g; it must be above 0", name, v)
		}
		return nil
	}
	for _, e := range []error{positive("--arrival-rate", o.Rate), positive("--duration-s", o.Duration.Seconds()),
		positive("--scale", o.Scale),
		positive("--streams", float64(o.Streams)), positive("--clients", float64(o.Clients)),
		positive("--prompt", float64(o.Prompt)),
		positive("--tokens", float64(o.Tokens)), positive("--turns", float64(o.Turns)),
		positive("--rounds", float64(o.Rounds)),
		positive("--solo", o.Solo.Seconds()), positive("--storm", o.Storm.Seconds())} {
		if e != nil {
			return e
		}
	}
	switch {
	case !(o.BackgroundRatio >= 0 && o.BackgroundRatio <= 1):
		return fmt.Errorf("--background-ratio is %g; it must be 0…1", o.BackgroundRatio)
	case !(o.ReasoningRatio >= 0 && o.ReasoningRatio <= 1):
		return fmt.Errorf("--reasoning-ratio is %g; it must be 0…1", o.ReasoningRatio)
	case o.Requests < 0 || o.Closed < 0:
		return fmt.Errorf("--requests and --concurrency must not be negative")
	case o.Requests == 0 && o.Rate*o.Duration.Seconds() < 1:
		return fmt.Errorf("--arrival-rate %g for %v is not one request", o.Rate, o.Duration)
	case o.Rate*o.Duration.Seconds() > 1e7 || o.Requests > 1e7:
		return fmt.Errorf("that is more than ten million requests")
	case o.Context < 512:
		return fmt.Errorf("--context is %d; it must be at least 512", o.Context)
	case o.Streams > 4096 || o.Clients > 4096 || o.Closed > 4096:
		return fmt.Errorf("more than 4096 clients at once are not supported")
	}
	return nil
}

// count returns the number of requests of an open-loop workload.
func (o *Options) count() int {
	if o.Requests > 0 {
		return o.Requests
	}
	return int(o.Duration.Seconds() * o.Rate)
}

// scaled returns n tokens times Scale, at least 1.
func (o *Options) scaled(n int) int { return max(1, int(math.Round(float64(n)*o.Scale))) }

// backgroundSalt keeps the draws of BackgroundRatio apart from all others.
const backgroundSalt = 0x6261636b67726f75

// arrange gives the requests their class and their arrivals, or the plan its workers. Classes and arrivals have
// separate generators, so that another mix arrives at the same times.
func (o *Options) arrange(rs []Request) *Plan {
	p := &Plan{Requests: rs}
	if o.BackgroundRatio > 0 {
		r := newRandom(o.Seed ^ backgroundSalt)
		for i := range rs {
			if r.float() < o.BackgroundRatio {
				rs[i].Background, rs[i].Group = true, rs[i].Kind+" in the background"
			}
		}
	}
	if o.Closed > 0 {
		p.Workers = o.Closed
		return p
	}
	p.Rate = o.Rate
	arrivals, at := newRandom(o.Seed), 0.0
	for i := range rs {
		rs[i].At = time.Duration(at * 1e9)
		at += arrivals.exponential(o.Rate)
	}
	return p
}

// check verifies the properties that the plan's readers rely on.
func (p *Plan) check() error {
	if len(p.Requests) == 0 {
		return fmt.Errorf("workload %s has no requests", p.Name)
	}
	if !slices.ContainsFunc(p.Requests, func(r Request) bool { return r.Measured }) {
		return fmt.Errorf("workload %s measures nothing", p.Name)
	}
	for i, r := range p.Requests {
		if r.After >= i || r.After < -1 || r.Grow && r.After < 0 {
			return fmt.Errorf("request %s comes after number %d: it must be one before it", r.ID, r.After)
		}
		if (r.Prompt == "") == (len(r.Messages) == 0) {
			return fmt.Errorf("request %s needs a prompt or messages", r.ID)
		}
	}
	return nil
}
