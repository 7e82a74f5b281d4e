package meridian

import (
	"fmt"
	"slices"
	"strings"
)

// Mode says whether a request thinks.
type Mode uint8

const (
	ModeAuto Mode = iota // the model decides
	ModeOff              // no: a block that the model opens is closed at once
	ModeOn               // yes: a block is opened if the model does not open one
)

// EarlyExit selects the signals that may close a block before its budget is used up.
type EarlyExit uint8

const (
	ExitOff EarlyExit = iota
	ExitEAT
	ExitRPDI
	ExitBoth
)

// eat and rpdi report whether e has each signal.
func (e EarlyExit) eat() bool  { return e == ExitEAT || e == ExitBoth }
func (e EarlyExit) rpdi() bool { return e == ExitRPDI || e == ExitBoth }

// RPDIForm selects the index of path deviation that closes a block.
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

// MarshalText and UnmarshalText encode the three enums as words in TOML and JSON. For an unknown word UnmarshalText
// returns an error that lists the known ones.
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

// Unset stands for a budget that the request does not set.
const Unset = -1

// Options is a request's "think" object.
type Options struct {
	Mode             Mode
	BudgetTokens     int // hard cap in think tokens, 0 = no thinking; Unset: Config.MaxThinkTokens
	SoftBudgetTokens int // soft cap in think tokens, 0 = none; Unset: Config.SoftThinkTokens
	EarlyExit        EarlyExit

	// AnswerCue is text with which the answer begins after a forced close. Probes append it after their close tag, so
	// that they measure where the answer would begin. "" is none.
	AnswerCue string

	// Bound says that the answer is held to a grammar. What reads like a marker in it is text then, and an end of
	// generation within a thought ends the thought only.
	Bound bool
	// CallsOnly says that the bound answer is calls of tools: a forced close does not begin text before them.
	CallsOnly bool
	// Headed says that the grammar holds the headers of messages too (Tags.Headers is not nil): a forced close only
	// ends the thought's message, and markers in the answer keep their meaning.
	Headed bool
	// Calls says that the request has tools. Where messages have headers, and the answer is neither bound nor begins
	// with a cue, a forced close leaves it to the model whether an answer or a call follows; another thought does not.
	// The answer then comes with the markers of control tokens between fences (package tags), and a message to a
	// tool with its header, for the parser of calls.
	Calls bool
	// CallsInThought says that thoughts come with the markers that a parser of calls needs, too.
	CallsInThought bool
}

// Options returns the options of a request without a "think" object.
func (c *Config) Options() Options {
	return Options{Mode: c.ThinkMode, BudgetTokens: Unset, SoftBudgetTokens: Unset, EarlyExit: c.EarlyExit}
}
