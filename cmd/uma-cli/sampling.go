package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/sampler"
)

// addSampling declares the flags that chat and run share: what an answer is made with. They take llama-server's names.
func addSampling(cmd *cobra.Command, s *chat.Settings) {
	fs := cmd.Flags()
	p := &s.Sampling
	fs.Float32Var(&p.Temperature, "temp", p.Temperature, "temperature `T`; 0 = greedy, always the most probable token")
	fs.IntVar(&p.TopK, "top-k", p.TopK, "top-k sampling: keep the `K` most probable tokens; 0 = off")
	fs.Float32Var(&p.TopP, "top-p", p.TopP, "top-p sampling: keep the best tokens up to probability mass `P`; 1 = off")
	fs.Float32Var(&p.MinP, "min-p", p.MinP, "min-p sampling: keep tokens at least `P` times as likely as the best; 0 "+
		"= off")
	fs.Float32Var(&p.RepeatPenalty, "repeat-penalty", p.RepeatPenalty, "penalise repeated tokens by factor `X`; 1 = "+
		"off")
	fs.IntVar(&p.PenaltyLastN, "repeat-last-n", p.PenaltyLastN, "the penalties look at the last `N` tokens; 0 = off, "+
		"-1 = all")
	fs.Float32Var(&p.PresencePenalty, "presence-penalty", p.PresencePenalty, "penalise tokens that have occurred by "+
		"`X`; 0 = off")
	fs.Float32Var(&p.FrequencyPenalty, "frequency-penalty", p.FrequencyPenalty,
		"penalise tokens by `X` per occurrence; 0 = off")
	fs.VarP((*seedValue)(p), "seed", "s", "random seed `N`, for reproducible answers; -1 = a new seed each time")
	fs.IntVarP(&s.MaxTokens, "predict", "n", s.MaxTokens, "maximum `TOKENS` of the answer (also --max-tokens); 0 = "+
		"as many as fit in the context")
	fs.StringArrayVar(&s.Stop, "stop", nil, "end the answer before `TEXT`; repeatable")
	fs.StringVar(&s.System, "system", "", "`TEXT` of the system prompt")
	fs.Var(settingValue{"mode", func() string { return "" },
		func(v string) error { return chat.SetThink(&s.Think, v) }}, "think",
		"thinking: auto, off, on, or an effort: minimal, low, medium, high, xhigh, max")
	fs.Var(settingValue{"tokens", func() string { return "" },
		func(v string) error { return chat.SetThinkBudget(&s.Think, v) }}, "think-budget",
		"maximum thinking `TOKENS` (also --reasoning-budget); 0 = none, -1 = the daemon's")
	fs.Var(settingValue{"signals", func() string { return s.Think.EarlyExit.String() },
		func(v string) error { return chat.SetEarlyExit(&s.Think, v) }}, "early-exit",
		"end thinking early by `SIGNALS`: off, eat (answer converged), rpdi (drift) or both")
	fs.Var((*priorityValue)(s), "priority", "priority class: interactive or background (yields to interactive)")
	completeWords(cmd, "think", chat.Words("think")...)
	completeWords(cmd, "early-exit", chat.Words("early_exit")...)
	completeWords(cmd, "priority", chat.Words("priority")...)
}

// settingValue is the flag of a setting that reads and writes itself as a word.
type settingValue struct {
	kind string
	get  func() string
	set  func(string) error
}

func (v settingValue) Type() string       { return v.kind }
func (v settingValue) Set(s string) error { return v.set(s) }
func (v settingValue) String() string {
	if v.get == nil { // pflag looks at the zero value
		return ""
	}
	return v.get()
}

// seedValue is the flag of a seed: absent and negative are "a new one each time".
type seedValue sampler.Params

func (v *seedValue) Type() string { return "int" }
func (v *seedValue) String() string {
	if !v.SeedSet {
		return "-1"
	}
	return strconv.FormatUint(v.Seed, 10)
}

func (v *seedValue) Set(text string) error {
	if strings.HasPrefix(text, "-") {
		if _, err := strconv.ParseInt(text, 10, 64); err != nil {
			return err
		}
		v.Seed, v.SeedSet = 0, false
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	v.Seed, v.SeedSet = n, err == nil
	return err
}

// priorityValue is the flag of a class.
type priorityValue chat.Settings

func (v *priorityValue) Type() string   { return "class" }
func (v *priorityValue) String() string { return chat.PriorityName(v.Priority) }
func (v *priorityValue) Set(text string) (err error) {
	v.Priority, err = chat.ParsePriority(text)
	return err
}

// checkSettings refuses what the daemon would refuse, before anything is read or sent.
func checkSettings(s *chat.Settings) error {
	if s.MaxTokens < 0 {
		s.MaxTokens = 0 // -1 is llama.cpp's "no limit"
	}
	if err := s.Check(); err != nil {
		return usageError{err}
	}
	return nil
}
