package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/sched"
)

// StaticBudget is the baseline static-budget's limit of thought, tokens.
const StaticBudget = 2048

// Side is one configuration of uma-serve under test.
type Side struct {
	Name        string
	Args        []string // uma-serve's
	Policy      string   // "" = the server's own
	TargetMs    float64  // between two tokens of an answer; 0 = the server's own
	ThinkBudget int      // 0 = none
}

// SidesHelp says what ParseSide reads.
const SidesHelp = "default, stock, static-budget[=TOKENS], a policy (uma, meridian, pascal, meridian_static) with @MS for an inter-token target, budget=TOKENS, eat=THRESHOLD, rpdi=THRESHOLD"

// ParseSide reads a side's name. stock is first come, first served and never ends a thought; static-budget the same
// with a fixed limit of thought.
func ParseSide(name string) (Side, error) {
	s := Side{Name: name}
	word, value, has := strings.Cut(name, "=")
	number := func(least float64) (float64, error) {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= least) || f > 1e9 {
			return 0, fmt.Errorf("side %q: what follows = must be a number of at least %g", name, least)
		}
		return f, nil
	}
	switch word {
	case "default":
		if has {
			return s, fmt.Errorf("side %q: default takes no value", name)
		}
		return s, nil
	case "static-budget", "budget":
		n := float64(StaticBudget)
		if has || word == "budget" {
			var err error
			if n, err = number(1); err != nil {
				return s, err
			}
		}
		s.ThinkBudget = int(n)
		s.Args = []string{"--early-exit", "off", "--think-budget", strconv.Itoa(int(n))}
		if word == "static-budget" {
			s.Policy = "stock"
			s.Args = append(s.Args, "--policy", "stock")
		}
		return s, nil
	case "eat", "rpdi":
		f, err := number(0)
		if err != nil {
			return s, err
		}
		key := map[string]string{"eat": "eat_ema_variance_threshold", "rpdi": "rpdi_threshold"}[word]
		s.Args = []string{"--early-exit", word, "--meridian", key + "=" + strconv.FormatFloat(f, 'g', -1, 64)}
		return s, nil
	}
	policy, target, has := strings.Cut(name, "@")
	if !slices.Contains(sched.Policies(), policy) {
		return s, fmt.Errorf("side %q is none of %s", name, SidesHelp)
	}
	s.Policy, s.Args = policy, []string{"--policy", policy}
	if policy == "stock" {
		s.Args = append(s.Args, "--early-exit", "off")
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
