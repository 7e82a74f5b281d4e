package meridian

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mode is whether a request thinks.
type Mode uint8

const (
	ModeAuto Mode = iota // as the model decides
	ModeOff              // not at all: a block that opens is closed at once
	ModeOn               // a block the model does not open is opened for it
)

// EarlyExit is which signals may close a block before its budget.
type EarlyExit uint8

const (
	ExitOff EarlyExit = iota
	ExitEAT
	ExitRPDI
	ExitBoth
)

// RPDIForm is which index of path deviation closes a block.
type RPDIForm uint8

const (
	RPDIEntropy   RPDIForm = iota // windowed mean entropy over mean entropy (RPDI)
	RPDIIndicator                 // rate of high-entropy tokens, local over global (Indicator)
)

var (
	modeNames = []string{"auto", "off", "on"}
	exitNames = []string{"off", "eat", "rpdi", "both"}
	formNames = []string{"entropy", "indicator"}
)

func (m Mode) String() string      { return modeNames[m] }
func (e EarlyExit) String() string { return exitNames[e] }
func (f RPDIForm) String() string  { return formNames[f] }

// MarshalText and UnmarshalText make the three enums words in TOML and JSON. An unknown word is an error that
// lists the known ones.
func (m Mode) MarshalText() ([]byte, error)      { return []byte(m.String()), nil }
func (e EarlyExit) MarshalText() ([]byte, error) { return []byte(e.String()), nil }
func (f RPDIForm) MarshalText() ([]byte, error)  { return []byte(f.String()), nil }

func (m *Mode) UnmarshalText(b []byte) error {
	return oneOf((*uint8)(m), b, modeNames)
}

func (e *EarlyExit) UnmarshalText(b []byte) error {
	return oneOf((*uint8)(e), b, exitNames)
}

func (f *RPDIForm) UnmarshalText(b []byte) error {
	return oneOf((*uint8)(f), b, formNames)
}

func oneOf(v *uint8, word []byte, names []string) error {
	i := slices.Index(names, string(word))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", word, strings.Join(names, ", "))
	}
	*v = uint8(i)
	return nil
}

// Unset is a budget that a request does not name.
const Unset = -1

// Options are one request's wishes about its thinking (the "think" object). Config.Options is what a request that
// says nothing gets.
type Options struct {
	Mode             Mode
	BudgetTokens     int // hard cap in think tokens, 0 = none at all; Unset: Config.MaxThinkTokens
	SoftBudgetTokens int // soft cap in think tokens; Unset: Config.SoftThinkTokens, 0: none
	EarlyExit        EarlyExit

	// AnswerCue is text that begins the answer after a forced close, and that probes append after their close tag,
	// so that they look where the answer would begin. "" is none.
	AnswerCue string
}

// Options are those of a request that says nothing.
func (c *Config) Options() Options {
	return Options{Mode: c.ThinkMode, BudgetTokens: Unset, SoftBudgetTokens: Unset, EarlyExit: c.EarlyExit}
}

// Validate names what is wrong as the client spells it.
func (o *Options) Validate() error {
	if o.BudgetTokens < Unset || o.BudgetTokens > maxThinkTokensLimit {
		return fmt.Errorf("think.budget_tokens is %d; it must be 0…%d, or %d for the server's own", o.BudgetTokens, maxThinkTokensLimit, Unset)
	}
	if o.SoftBudgetTokens < Unset || o.SoftBudgetTokens > maxThinkTokensLimit {
		return fmt.Errorf("think.soft_budget_tokens is %d; it must be 0…%d, or %d for the server's own", o.SoftBudgetTokens, maxThinkTokensLimit, Unset)
	}
	if o.BudgetTokens > 0 && o.SoftBudgetTokens > o.BudgetTokens {
		return fmt.Errorf("think.soft_budget_tokens is %d; it must not be above budget_tokens (%d)", o.SoftBudgetTokens, o.BudgetTokens)
	}
	if len(o.AnswerCue) > maxCueBytes {
		return fmt.Errorf("think.answer_cue has %d bytes; it may have up to %d", len(o.AnswerCue), maxCueBytes)
	}
	if !utf8.ValidString(o.AnswerCue) {
		return errors.New("think.answer_cue is not UTF-8")
	}
	return nil
}

const maxCueBytes = 256
