package sched

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/guess"
)

// ClassLimits bound one priority class. 0 = only the bounds of Config hold.
type ClassLimits struct {
	MaxRunning int `words:"max_running"` // requests that hold a sequence
	MaxQueue   int `words:"max_queue"`   // requests that wait for their first one
	// StepTokens are the prompt tokens of the class in one step. A text or an image that cannot be cut may exceed it,
	// as the first of its class in the step.
	StepTokens int `words:"step_tokens"`
}

// Config holds the limits and targets of a Scheduler. Fields without a default must be set; Validate reports the first
// that is out of range.
type Config struct {
	// Policy names the rule by which a step is filled; Policies lists the names.
	Policy string `words:"policy,always"`
	// Prefix: the caller shares and restores cached prefixes and answers each start (Plan.Start). False: requests start
	// at once, and every history is computed from index 0.
	Prefix bool `words:"prefix,pair"`
	// MaxRunning is the limit on requests that hold a sequence at once, 1…4096. Sequence ids are 0…MaxRunning-1.
	MaxRunning int `words:"max_running"`
	// Cells is the size of the KV pool (n_ctx) in tokens, ≥ 2. Too large a value shows as StepKVFull.
	Cells int `words:"cells"`
	// MaxBatch is the most tokens of one Decode (n_batch), ≥ 1, and ≥ 2 if MaxRunning is: a prompt must progress beside
	// an answer.
	MaxBatch int `words:"max_batch"`
	// EveryRows is the most rows in a step of prompts whose every row has an output (Spec.EveryRow): the engine has
	// memory for so many. 0 = MaxBatch.
	EveryRows int `words:"every_rows"`
	// Forks is the most slices of kind SliceProbe in a step, 0…4096: the caller's scratch sequences. 0 = no limit but
	// MaxBatch and Cells.
	Forks int `words:"forks"`
	// MaxQueue is the limit on requests that wait for their first sequence after a Step. 0 = none: what cannot start at
	// once is rejected. Preempted requests do not count. When more wait, the newest one of the owner with the most
	// waiting requests is rejected (package queue), even if it was accepted before.
	MaxQueue int `words:"max_queue"`
	// Limits bound each class, indexed by Class.
	Limits [NumClasses]ClassLimits `words:"interactive_,background_"`

	// TickBudget is the time that a step with prompt work aims at while answers run. Smaller = smoother answers, slower
	// prompts. 0 = DefaultTickBudget.
	TickBudget time.Duration `words:"tick_budget"`
	// SoloBudget is the time that a step aims at while no answer runs: cancels, arrivals and progress reports wait for
	// its end, and larger chunks are cheaper per token. 0 = 8 × TickBudget. `stock` and `meridian_static` ignore it.
	SoloBudget time.Duration `words:"solo_budget"`
	// SoloLimit is the time up to which such a step computes 512 tokens even when these take longer than SoloBudget,
	// because small chunks are slower per token. It is meant for engines that break off a step when its request is
	// cancelled. 0 = none.
	SoloLimit time.Duration `words:"solo_limit"`
	// StartBudget bounds a step with prompt work, in tokens, until the cost model has measured larger ones.
	// 0 = DefaultStartBudget. It is cut to MaxBatch.
	StartBudget int `words:"start_budget"`
	// FirstPrefill is the prompt tokens of the very first step with prompt work that no answer waits for: on a machine
	// of unknown speed more of them could take seconds. 0 = StartBudget; it is cut to that, and at least MinPrefill.
	// `stock` and `meridian_static` ignore it.
	FirstPrefill int `words:"first_prefill"`
	// MinPrefill is the fewest prompt tokens that a step offers when the guard does not hold prompts, whatever its time
	// budget. With MaxHeld it bounds how slow a prompt can get (under meridian, behind a long context, one token in
	// MaxHeld+1 steps). 0 = DefaultMinPrefill.
	MinPrefill int `words:"min_prefill"`
	// Guard is, under uma, the ITL above which prompts are kept out of the next step, for interactive answers that set
	// no ITL target (Spec.TargetITL). 0 = no guard.
	Guard time.Duration `words:"guard"`
	// MaxHeld is the limit on consecutive steps without prompt tokens while the guard holds prompts. 0 =
	// DefaultMaxHeld.
	MaxHeld int `words:"max_held"`

	// DecodeReserve is the number of cells that each running answer keeps to grow into when another request starts.
	// Smaller = more requests at once, more preemptions. 0 = DefaultDecodeReserve, -1 = none.
	DecodeReserve int `words:"decode_reserve,min=-1"`
	// BackgroundEvery is the longest time that background requests wait behind interactive ones; then one of them
	// starts first. 0 = DefaultBackgroundEvery.
	BackgroundEvery time.Duration `words:"background_every"`
	// PauseGrace is the time for which a request whose client does not read keeps its sequence and cells while another
	// request waits for them. 0 = DefaultPauseGrace.
	PauseGrace time.Duration `words:"pause_grace"`

	// ShareGrace is the time that a request waits for a sequence while its user runs fewer than its share; then a
	// request of a user that runs more is preempted (see share.go). 0 = 1 s.
	ShareGrace time.Duration `words:"share_grace"`

	// ITLTarget is the default ITL target of interactive answers (Spec.TargetITL sets another), under meridian:
	// 95 of 100 gaps stay below it. 0 = DefaultITLTarget.
	ITLTarget time.Duration `words:"itl_target"`
	// ThinkFloor is, under meridian, the longest gap between two tokens of a thinking request that yields to answers,
	// and of a background answer that yields to interactive ones. 0 = DefaultThinkFloor.
	ThinkFloor time.Duration `words:"think_floor"`
	// ThinkMultiplier is the number of thinking requests that get a token per answer in a step: under meridian_static,
	// and under meridian until its cost model has learned. ≥ 1; 0 = DefaultThinkMultiplier.
	ThinkMultiplier float64 `words:"think_multiplier"`
	// OutputSlots is the limit on answers that get a token in a step of meridian_static. 0 = the fewest with which
	// OutputSlots × (1 + ThinkMultiplier) reaches MaxRunning.
	OutputSlots int `words:"output_slots"`
	// Cost is the initial state of the cost model: Scheduler.Cost of an earlier run with the same model on the same
	// machine. The zero value and an inconsistent one mean that nothing is known.
	Cost CostState `words:"cost"`

	// Rereads: the engine's memory cannot drop a wrong guess, so the tokens of its slice are computed once more
	// (EvToken.Again). Tokens are guessed only for a request that is alone in its step.
	Rereads bool `words:"rereads"`
	// DraftBatch is the most tokens of one Decode of the draft model; 0 = there is none.
	DraftBatch int `words:"draft_batch"`
	// DraftCost is the duration of a draft model's step relative to the model's, assumed until the first ones are
	// measured. 0 = DefaultDraftCost.
	DraftCost float64 `words:"draft_cost"`
	GuessConfig
}

// GuessConfig is the part of Config about heads, and about steps that are measured.
type GuessConfig struct {
	// DraftStates: the draft model is a head, and reads the states of rows that the caller keeps (Plan.States).
	DraftStates bool `words:"draft_states"`
	// DraftBlock is the number of tokens that the draft model guesses for a request in one Decode; 0 = one.
	DraftBlock int `words:"draft_block"`
	// AllGuesses: every guess that is offered is computed where the step has room, whatever it costs: for measuring.
	AllGuesses bool `words:"all_guesses"`
}

// Policies are the names Config.Policy takes, in the order a help text should list them.
func Policies() []string { return slices.Clone(policyNames) }

var policyNames = []string{"uma", "stock", "meridian", "meridian_static"}

// withDefaults fills the fields that are 0.
func (c Config) withDefaults() Config {
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.TickBudget, DefaultTickBudget)
	or(&c.SoloBudget, 8*c.TickBudget)
	or(&c.BackgroundEvery, DefaultBackgroundEvery)
	or(&c.PauseGrace, DefaultPauseGrace)
	or(&c.ShareGrace, DefaultShareGrace)
	orInt(&c.StartBudget, DefaultStartBudget)
	orInt(&c.MinPrefill, DefaultMinPrefill)
	orInt(&c.MaxHeld, DefaultMaxHeld)
	orInt(&c.DecodeReserve, DefaultDecodeReserve)
	or(&c.ITLTarget, DefaultITLTarget)
	or(&c.ThinkFloor, DefaultThinkFloor)
	if c.ThinkMultiplier == 0 {
		c.ThinkMultiplier = DefaultThinkMultiplier
	}
	if c.DraftBatch > 0 && c.DraftCost == 0 {
		c.DraftCost = DefaultDraftCost
	}
	orInt(&c.EveryRows, c.MaxBatch)
	c.StartBudget = min(c.StartBudget, c.MaxBatch)
	orInt(&c.FirstPrefill, c.StartBudget)
	c.FirstPrefill = min(c.FirstPrefill, c.StartBudget)
	c.MinPrefill = min(c.MinPrefill, c.MaxBatch)
	return c
}

// Validate names the first field that is out of its limits, with the limit.
func (c *Config) Validate() error {
	if !slices.Contains(policyNames, c.Policy) {
		return fmt.Errorf("sched: Policy is %q; it must be one of %q", c.Policy, policyNames)
	}
	ints := []struct {
		name      string
		v, lo, hi int
	}{
		{"MaxRunning", c.MaxRunning, 1, 4096},
		{"Cells", c.Cells, 2, 1 << 30},
		{"MaxBatch", c.MaxBatch, min(c.MaxRunning, 2), 1 << 24},
		{"EveryRows", c.EveryRows, 0, 1 << 24},
		{"Forks", c.Forks, 0, 4096},
		{"MaxQueue", c.MaxQueue, 0, 1 << 24},
		{"Limits[Interactive].MaxRunning", c.Limits[Interactive].MaxRunning, 0, 4096},
		{"Limits[Interactive].MaxQueue", c.Limits[Interactive].MaxQueue, 0, 1 << 24},
		{"Limits[Interactive].StepTokens", c.Limits[Interactive].StepTokens, 0, 1 << 24},
		{"Limits[Background].MaxRunning", c.Limits[Background].MaxRunning, 0, 4096},
		{"Limits[Background].MaxQueue", c.Limits[Background].MaxQueue, 0, 1 << 24},
		{"Limits[Background].StepTokens", c.Limits[Background].StepTokens, 0, 1 << 24},
		{"StartBudget", c.StartBudget, 0, 1 << 24},
		{"FirstPrefill", c.FirstPrefill, 0, 1 << 24},
		{"MinPrefill", c.MinPrefill, 0, 1 << 24},
		{"MaxHeld", c.MaxHeld, 0, 1 << 16},
		{"DecodeReserve", c.DecodeReserve, -1, 1 << 24},
		{"OutputSlots", c.OutputSlots, 0, 4096},
		{"DraftBatch", c.DraftBatch, 0, 1 << 24},
		{"DraftBlock", c.DraftBlock, 0, guess.MaxRows},
	}
	for _, f := range ints {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("sched: %s is %d; it must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	times := []struct {
		name string
		v    time.Duration
	}{
		{"TickBudget", c.TickBudget}, {"SoloBudget", c.SoloBudget}, {"SoloLimit", c.SoloLimit}, {"Guard", c.Guard},
		{"BackgroundEvery", c.BackgroundEvery}, {"PauseGrace", c.PauseGrace},
		{"ShareGrace", c.ShareGrace}, {"ITLTarget", c.ITLTarget}, {"ThinkFloor", c.ThinkFloor},
	}
	for _, f := range times {
		if f.v < 0 || f.v > time.Hour {
			return fmt.Errorf("sched: %s is %v; it must be 0…1h", f.name, f.v)
		}
	}
	if m := c.ThinkMultiplier; m != 0 && !(m >= 1 && m <= 4096) {
		return fmt.Errorf("sched: ThinkMultiplier is %v; it must be 1…4096", m)
	}
	if d := c.DraftCost; d != 0 && !(d >= 1e-6 && d <= 1e3) {
		return fmt.Errorf("sched: DraftCost is %v; it must be 0.000001…1000", d)
	}
	if l := c.Limits[Background]; (c.Policy == "stock" || c.Policy == "meridian_static") && l != (ClassLimits{}) {
		return fmt.Errorf("sched: Limits[Background] is %+v; policy %s knows no classes and could not keep it", l,
			c.Policy)
	}
	return nil
}

// leastPrefill returns the fewest prompt tokens that a step with room for prompts offers.
func (c *Config) leastPrefill() int { return min(c.MinPrefill, max(1, c.MaxBatch/2)) }

// Room returns how many tokens a request with this prompt may generate at most: ≤ 0 when the prompt does not fit.
// The scheduler cuts Spec.MaxTokens to it; the caller finishes the request with reason.Length there.
func (c *Config) Room(prompt int) int { return c.Cells - prompt }
