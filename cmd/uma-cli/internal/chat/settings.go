package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/sampler"
)

// Settings are the parameters that a chat sends with its messages. The zero value is not useful; see DefaultSettings.
type Settings struct {
	Sampling     sampler.Params
	MaxTokens    int // 0 = the server's limit
	Stop         []string
	System       string
	Priority     wire.Priority
	HideThinking bool
	Think        wire.Think
}

// DefaultSettings are llama-server's.
func DefaultSettings() Settings {
	return Settings{Sampling: wire.DefaultRequest().Sampling}
}

// setting is one name that /set knows.
type setting struct {
	name string
	help string
	get  func(*Settings) string
	set  func(*Settings, string) error
}

// settings are listed in this order by /set.
var settings = []setting{
	floatSetting("temperature", "0 = greedy; higher = more random",
		func(s *Settings) *float32 { return &s.Sampling.Temperature }),
	{"top_k", "keep the K most probable tokens; 0 = off",
		func(s *Settings) string { return strconv.Itoa(s.Sampling.TopK) },
		func(s *Settings, v string) (err error) { s.Sampling.TopK, err = parseInt(v, 0); return }},
	floatSetting("top_p", "keep the most probable tokens up to this cumulative probability; 1 = off",
		func(s *Settings) *float32 { return &s.Sampling.TopP }),
	floatSetting("min_p", "keep tokens at least this many times as probable as the best; 0 = off",
		func(s *Settings) *float32 { return &s.Sampling.MinP }),
	floatSetting("repeat_penalty", "penalise repeated tokens by this factor; 1 = off",
		func(s *Settings) *float32 { return &s.Sampling.RepeatPenalty }),
	floatSetting("presence_penalty", "penalise tokens that have occurred; 0 = off",
		func(s *Settings) *float32 { return &s.Sampling.PresencePenalty }),
	floatSetting("frequency_penalty", "penalise tokens per occurrence; 0 = off",
		func(s *Settings) *float32 { return &s.Sampling.FrequencyPenalty }),
	{"seed", "the same seed gives the same answer; random = a new seed for each answer", getSeed, setSeed},
	{"max_tokens", "maximum tokens of an answer; 0 = as many as fit in the context",
		func(s *Settings) string { return strconv.Itoa(s.MaxTokens) },
		func(s *Settings, v string) (err error) { s.MaxTokens, err = parseInt(v, 0); return }},
	{"stop", `strings that end an answer: word "two words"; none = off`, getStop, setStop},
	{"system", "system prompt; none = no system prompt",
		func(s *Settings) string { return orNone(s.System) },
		func(s *Settings, v string) error { s.System = noneIsEmpty(v); return nil }},
	{"priority", "priority class: interactive or background", getPriority, setPriority},
	{"thinking", "show or hide the model's thinking", getThinking, setThinking},
	{"think", "thinking: auto, off, on, or effort minimal … xhigh; server = the daemon's default", getThink,
		func(s *Settings, v string) error { return SetThink(&s.Think, v) }},
	{"think_budget", "maximum thinking tokens; 0 = no thinking, -1 = the daemon's limit",
		func(s *Settings) string { return ThinkBudget(&s.Think) },
		func(s *Settings, v string) error { return SetThinkBudget(&s.Think, v) }},
	{"early_exit", "end thinking early: eat, rpdi, both, off; server = the daemon's default",
		func(s *Settings) string { return orServer(s.Think.EarlyExit.String()) },
		func(s *Settings, v string) error { return SetEarlyExit(&s.Think, v) }},
}

func floatSetting(name, help string, field func(*Settings) *float32) setting {
	return setting{name, help,
		func(s *Settings) string { return strconv.FormatFloat(float64(*field(s)), 'g', -1, 32) },
		func(s *Settings, v string) error {
			f, err := strconv.ParseFloat(v, 32)
			if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
				return errors.New("needs a number")
			}
			*field(s) = float32(f)
			return nil
		}}
}

func parseInt(v string, least int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		return 0, fmt.Errorf("needs a whole number of %d or more", least)
	}
	return n, nil
}

func getSeed(s *Settings) string {
	if !s.Sampling.SeedSet {
		return "random"
	}
	return strconv.FormatUint(s.Sampling.Seed, 10)
}

func setSeed(s *Settings, v string) error {
	if v == "random" || v == "-1" {
		s.Sampling.Seed, s.Sampling.SeedSet = 0, false
		return nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return errors.New("needs a whole number, or random")
	}
	s.Sampling.Seed, s.Sampling.SeedSet = n, true
	return nil
}

func getStop(s *Settings) string {
	if len(s.Stop) == 0 {
		return "none"
	}
	quoted := make([]string, len(s.Stop))
	for i, w := range s.Stop {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, " ")
}

// setStop reads words and "quoted texts" (with JSON's escapes, so that "\n" is a newline).
func setStop(s *Settings, v string) error {
	var stop []string
	if v == "none" {
		v = ""
	}
	for v = strings.TrimSpace(v); v != ""; v = strings.TrimSpace(v) {
		if v[0] != '"' {
			word, rest, _ := strings.Cut(v, " ")
			stop, v = append(stop, word), rest
			continue
		}
		dec := json.NewDecoder(strings.NewReader(v))
		var text string
		if err := dec.Decode(&text); err != nil || text == "" {
			return errors.New(`needs words or "quoted texts" that are not empty`)
		}
		stop, v = append(stop, text), v[dec.InputOffset():]
	}
	s.Stop = stop
	return nil
}

func getPriority(s *Settings) string { return PriorityName(s.Priority) }

// PriorityName returns the text that ParsePriority parses.
func PriorityName(p wire.Priority) string {
	if p == wire.PriorityBackground {
		return "background"
	}
	return "interactive"
}

func setPriority(s *Settings, v string) (err error) {
	s.Priority, err = ParsePriority(v)
	return err
}

// ParsePriority reads the name of a class.
func ParsePriority(v string) (wire.Priority, error) {
	switch v {
	case "interactive":
		return wire.PriorityInteractive, nil
	case "background":
		return wire.PriorityBackground, nil
	}
	return 0, fmt.Errorf("must be interactive or background, not %q", v)
}

func getThinking(s *Settings) string {
	if s.HideThinking {
		return "hide"
	}
	return "show"
}

func setThinking(s *Settings, v string) error {
	switch v {
	case "show", "on":
		s.HideThinking = false
	case "hide", "off":
		s.HideThinking = true
	default:
		return errors.New("needs show or hide")
	}
	return nil
}

func getThink(s *Settings) string {
	if s.Think.Effort != wire.EffortDefault {
		return s.Think.Effort.String()
	}
	return orServer(s.Think.Mode.String())
}

// Words returns the possible values of a setting.
func Words(name string) []string {
	switch name {
	case "thinking":
		return []string{"show", "hide"}
	case "think":
		return []string{"auto", "off", "on", "minimal", "low", "medium", "high", "xhigh", "server"}
	case "early_exit":
		return []string{"off", "eat", "rpdi", "both", "server"}
	case "priority":
		return []string{"interactive", "background"}
	case "seed":
		return []string{"random"}
	case "stop", "system":
		return []string{"none"}
	}
	return nil
}

// SetThink reads a mode or an effort; each replaces the other.
func SetThink(t *wire.Think, v string) error {
	if v == "none" { // OpenAI's word in reasoning_effort
		v = "off"
	}
	next := *t
	next.Mode, next.Effort = wire.ThinkDefault, wire.EffortDefault
	switch {
	case v == "server":
	case next.Mode.UnmarshalText([]byte(v)) == nil:
		if next.Mode == wire.ThinkOff {
			next.BudgetTokens = 0
		}
	case next.Effort.UnmarshalText([]byte(v)) == nil:
		next.BudgetTokens = 0
	default:
		return fmt.Errorf("must be auto, off, on, minimal, low, medium, high, xhigh, max or server, not %q", v)
	}
	*t = next
	return nil
}

// ThinkBudget returns the text that SetThinkBudget parses.
func ThinkBudget(t *wire.Think) string {
	switch {
	case t.Mode == wire.ThinkOff:
		return "0"
	case t.BudgetTokens == 0:
		return "-1"
	}
	return strconv.Itoa(t.BudgetTokens)
}

// SetThinkBudget reads a number of tokens: 0 turns thinking off, -1 is the server's.
func SetThinkBudget(t *wire.Think, v string) error {
	n, err := parseInt(v, -1)
	switch {
	case err != nil:
		return err
	case n == 0:
		t.Mode = wire.ThinkOff
	case t.Mode == wire.ThinkOff:
		t.Mode = wire.ThinkDefault
	}
	t.BudgetTokens, t.Effort = max(n, 0), wire.EffortDefault
	return nil
}

// SetEarlyExit reads which signals may end thinking, or server.
func SetEarlyExit(t *wire.Think, v string) error {
	if v == "server" {
		t.EarlyExit = wire.ExitDefault
		return nil
	}
	if err := t.EarlyExit.UnmarshalText([]byte(v)); err != nil {
		return fmt.Errorf("must be off, eat, rpdi, both or server, not %q", v)
	}
	return nil
}

func orServer(v string) string {
	if v == "" {
		return "server"
	}
	return v
}

func orNone(v string) string {
	if v == "" {
		return "none"
	}
	return v
}

func noneIsEmpty(v string) string {
	if v == "none" {
		return ""
	}
	return v
}

// Set gives the setting called name a value, "default" included; on an error the settings are as they were.
func (s *Settings) Set(name, value string) error {
	for _, st := range settings {
		if st.name != name {
			continue
		}
		next := *s
		if value == "default" {
			d := DefaultSettings()
			value = st.get(&d)
		}
		if err := st.set(&next, value); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		if err := next.Check(); err != nil {
			return err
		}
		*s = next
		return nil
	}
	names := make([]string, len(settings))
	for i, st := range settings {
		names[i] = st.name
	}
	if near := closest(name, names); near != "" {
		return fmt.Errorf("there is no setting %q; did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no setting %q; /set lists them", name)
}

// Request returns a request with these settings; its prompt or messages are left to the caller.
func (s *Settings) Request() wire.Request {
	r := wire.DefaultRequest()
	r.MaxTokens, r.Sampling, r.Stop, r.Priority, r.Think = s.MaxTokens, s.Sampling, s.Stop, s.Priority, s.Think
	return r
}

// Check says what the daemon would refuse about a request with these settings. It uses the daemon's parser, so that
// the limits are defined once.
func (s *Settings) Check() error {
	r := s.Request()
	r.ID, r.Prompt = "check", "x"+s.System
	return CheckRequest(&r)
}

// CheckRequest says what the daemon would refuse about r, apart from limits its operator sets.
func CheckRequest(r *wire.Request) error {
	if err := r.Sampling.Validate(); err != nil {
		return err
	}
	frame := frames.AppendRequest(nil, r, nil)
	def := wire.DefaultRequest()
	var p wire.Parser
	_, err := wire.Parse(&p, frame[4:], &def) // behind the four bytes of the length
	if refused, ok := errors.AsType[*wire.RequestError](err); ok {
		return errors.New(refused.Message)
	}
	return err
}

// closest returns the candidate with the fewest edits from word, "" when none is near. A candidate that word begins is
// always near.
func closest(word string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		d := levenshtein.ComputeDistance(word, c)
		if len(word) > 1 && strings.HasPrefix(c, word) {
			d = min(d, 1)
		}
		if d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}
