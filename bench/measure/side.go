package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
)

// StaticBudget is the thinking budget of the baseline static-budget, in tokens.
const StaticBudget = 2048

// Side is one configuration under test: the options of uma-serve and of its requests.
type Side struct {
	Name        string
	Args        []string // uma-serve's
	Policy      string   // "" = the server's own
	TargetMs    float64  // between two tokens of an answer; 0 = the server's own
	ThinkBudget int      // think.budget_tokens of its reasoning requests; 0 = the server's
	EarlyExit   string   // their think.early_exit; "" = the server's
	Flags       []string // options of uma-serve that the side names as such; they are in Args too
}

// SidesHelp describes the syntax of ParseSide.
const SidesHelp = "default, stock, static-budget[=TOKENS], a policy (uma, meridian, meridian_static)\n" +
	"with @MS for an inter-token target, budget=TOKENS, eat=VARIANCE, rpdi=RATIO. Each may have options behind it:\n" +
	":early-exit=WORD, :think-budget=TOKENS (sent with every reasoning request), any key of uma-serve's\n" +
	"[meridian] table, as in eat=0.01:eat_warmup_probes=1:ema_alpha=0.5, and last options of uma-serve, as in\n" +
	"default:--speculate=off:--single"

// ParseSide reads a side. stock is first come, first served and never ends a thought; static-budget the same with a
// fixed limit of thought.
func ParseSide(name string) (Side, error) {
	text, flags, hasFlags := strings.Cut(name, ":--")
	head, options, hasOptions := strings.Cut(text, ":")
	s, err := parseHead(head)
	if s.Name = name; err != nil {
		return s, err
	}
	if hasOptions {
		if err := s.options(options); err != nil {
			return s, err
		}
	}
	if !hasFlags {
		return s, nil
	}
	for flag := range strings.SplitSeq(flags, ":--") {
		key, _, _ := strings.Cut(flag, "=")
		if key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return s, fmt.Errorf("side %q: --%s is not --NAME or --NAME=VALUE", name, flag)
		}
		s.Flags = append(s.Flags, "--"+flag)
	}
	s.Args = append(s.Args, s.Flags...)
	return s, nil
}

// options reads KEY=VALUE:KEY=VALUE….
func (s *Side) options(text string) error {
	for option := range strings.SplitSeq(text, ":") {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case key == "early-exit":
			var e wire.EarlyExit
			if err := e.UnmarshalText([]byte(value)); err != nil {
				return fmt.Errorf("side %q: early-exit %w", s.Name, err)
			}
			s.EarlyExit = value
		case key == "think-budget":
			n, err := number(value, 1)
			if err != nil {
				return fmt.Errorf("side %q: think-budget %w", s.Name, err)
			}
			s.ThinkBudget = int(n)
		case value == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "":
			return fmt.Errorf("side %q: option %q is not KEY=VALUE", s.Name, option)
		default:
			s.meridian(key, value)
		}
	}
	return nil
}

// meridian sets a key of the server's [meridian] table.
func (s *Side) meridian(key, value string) { s.Args = append(s.Args, "--meridian", key+"="+value) }

func number(text string, least float64) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= least) || f > 1e9 {
		return 0, fmt.Errorf("%q is not a number of at least %g", text, least)
	}
	return f, nil
}

// thresholds are the keys of [meridian] that eat=… and rpdi=… set.
var thresholds = map[string]string{"eat": "eat_ema_variance_threshold", "rpdi": "rpdi_threshold"}

func parseHead(name string) (s Side, err error) {
	word, value, has := strings.Cut(name, "=")
	switch word {
	case "default":
		if has {
			return s, fmt.Errorf("side %q: default takes no value", name)
		}
		return s, nil
	case "static-budget", "budget":
		n := float64(StaticBudget)
		if has || word == "budget" {
			if n, err = number(value, 1); err != nil {
				return s, fmt.Errorf("side %q: %w", name, err)
			}
		}
		s.ThinkBudget, s.EarlyExit = int(n), "off"
		if word == "static-budget" {
			s.Policy, s.Args = "stock", []string{"--policy", "stock"}
		}
		return s, nil
	case "eat", "rpdi":
		f, err := number(value, 0)
		if err != nil {
			return s, fmt.Errorf("side %q: %w", name, err)
		}
		s.EarlyExit = word
		s.meridian(thresholds[word], strconv.FormatFloat(f, 'g', -1, 64))
		return s, nil
	}
	policy, target, has := strings.Cut(name, "@")
	if !slices.Contains(sched.Policies(), policy) {
		return s, fmt.Errorf("side %q is none of %s", name, SidesHelp)
	}
	s.Policy, s.Args = policy, []string{"--policy", policy}
	if policy == "stock" {
		s.EarlyExit = "off"
	}
	if has {
		ms, err := strconv.ParseFloat(target, 64)
		if err != nil || !(ms >= 1 && ms <= 60_000) {
			return s, fmt.Errorf("side %q: the target must be 1…60000 ms", name)
		}
		s.TargetMs, s.Args = ms, append(s.Args, "--itl-target-ms", target)
	}
	return s, nil
}
