package sched

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// eventNames are the first words of an event's line in a trace.
var eventNames = [...]string{
	EvArrive: "arrive", EvCancel: "cancel", EvStep: "outcome", EvToken: "token", EvFinish: "finish", EvPause: "pause",
	EvResume: "resume",
	EvDrain:  "drain", EvLimit: "limit", EvStarted: "started", EvDefer: "defer", EvReady: "ready", EvCells: "cells",
	EvThreads: "threads",
}

// ofRequest reports whether events of this kind name a request.
func (k EventKind) ofRequest() bool {
	return k != EvStep && k != EvDrain && k != EvCells && k != EvLimit && k != EvThreads
}

// eventArg is one argument of an event's line.
type eventArg struct {
	kind EventKind
	key  string // of KEY=VALUE, or the word of a flag; "" = the argument is a value without a key
	flag bool
	// set takes the value of an argument that was read.
	set func(e *Event, value string) error
	// value appends the value to a line; it leaves dst as it is when the argument is left out.
	value func(dst []byte, e *Event) []byte
}

// eventArgs are the arguments of all events, in the order in which a line has them.
var eventArgs = []eventArg{
	{
		kind: EvArrive, key: "class",
		set: func(e *Event, v string) error {
			i := slices.Index(classNames[:], v)
			if i < 0 {
				return fmt.Errorf("%q is no class", v)
			}
			e.Class = Class(i)
			return nil
		},
		value: func(dst []byte, e *Event) []byte { return append(dst, e.Class.String()...) },
	},
	{
		kind: EvArrive, key: "owner",
		set: func(e *Event, v string) error {
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return fmt.Errorf("owner=%q is no user id", v)
			}
			e.Owner = uint32(n)
			return nil
		},
		value: func(dst []byte, e *Event) []byte { return strconv.AppendUint(dst, uint64(e.Owner), 10) },
	},
	numberArg(EvArrive, "prompt", 1, func(e *Event) *int { return &e.Prompt }),
	numberArg(EvArrive, "max", 1, func(e *Event) *int { return &e.MaxTokens }),
	spanArg(EvArrive, "ttft", false, func(e *Event) *time.Duration { return &e.TargetTTFT }),
	spanArg(EvArrive, "itl", false, func(e *Event) *time.Duration { return &e.TargetITL }),
	spanArg(EvArrive, "ttot", false, func(e *Event) *time.Duration { return &e.TargetTTOT }),
	spanArg(EvArrive, "queued", false, func(e *Event) *time.Duration { return &e.QueuedFor }),
	numberArg(EvArrive, "shared", 0, func(e *Event) *int { return &e.Shared }),
	numberArg(EvArrive, "cached", 0, func(e *Event) *int { return &e.Cached }),
	spanArg(EvArrive, "restore", false, func(e *Event) *time.Duration { return &e.Restore }),
	flagArg(EvArrive, "think", func(e *Event) *bool { return &e.Thinking }),
	flagArg(EvArrive, "strict", func(e *Event) *bool { return &e.Strict }),
	flagArg(EvArrive, "rows", func(e *Event) *bool { return &e.PromptRows }),
	flagArg(EvArrive, "whole", func(e *Event) *bool { return &e.Whole }),
	flagArg(EvArrive, "every_row", func(e *Event) *bool { return &e.EveryRow }),
	flagArg(EvArrive, "fill", func(e *Event) *bool { return &e.Fill }),
	flagArg(EvArrive, "guesses", func(e *Event) *bool { return &e.Guesses }),
	{
		kind: EvStep,
		set: func(e *Event, v string) error {
			i := slices.Index(outcomeNames[:], v)
			if i < 0 {
				return fmt.Errorf("%q is not understood", v)
			}
			e.Outcome = Outcome(i)
			return nil
		},
		value: func(dst []byte, e *Event) []byte { return append(dst, e.Outcome.String()...) },
	},
	spanArg(EvStep, "took", true, func(e *Event) *time.Duration { return &e.Took }),
	numberArg(EvStep, "resident", 0, func(e *Event) *int { return &e.Resident }),
	spanArg(EvStep, "drafting", false, func(e *Event) *time.Duration { return &e.Drafting }),
	flagArg(EvToken, "think", func(e *Event) *bool { return &e.Thinking }),
	numberArg(EvToken, "probe", 0, func(e *Event) *int { return &e.Probe }),
	numberArg(EvToken, "cut", 0, func(e *Event) *int { return &e.Cut }),
	numberArg(EvToken, "forced", 0, func(e *Event) *int { return &e.Forced }),
	numberArg(EvToken, "accepted", 0, func(e *Event) *int { return &e.Accepted }),
	numberArg(EvToken, "right", 0, func(e *Event) *int { return &e.Right }),
	flagArg(EvToken, "wrong", func(e *Event) *bool { return &e.Wrong }),
	numberArg(EvToken, "offer", 0, func(e *Event) *int { return &e.Offer }),
	numberArg(EvToken, "grade", 0, func(e *Event) *int { return &e.Grade }),
	numberArg(EvToken, "draft", 0, func(e *Event) *int { return &e.Draft }),
	numberArg(EvToken, "lag", 0, func(e *Event) *int { return &e.Lag }),
	numberArg(EvToken, "draft_right", 0, func(e *Event) *int { return &e.DraftRight }),
	flagArg(EvToken, "draft_wrong", func(e *Event) *bool { return &e.DraftWrong }),
	reasonArg(EvFinish, "ends no request", Reason.Final),
	numberArg(EvFinish, "cells", 0, func(e *Event) *int { return &e.Cells }),
	numberArg(EvFinish, "accepted", 0, func(e *Event) *int { return &e.Accepted }),
	numberArg(EvCancel, "cells", 0, func(e *Event) *int { return &e.Cells }),
	reasonArg(EvDefer, "defers no request", func(r Reason) bool { return r == ReasonJoining || r == ReasonRestoring }),
	numberArg(EvStarted, "cached", 0, func(e *Event) *int { return &e.Cached }),
	numberArg(EvStarted, "shared", 0, func(e *Event) *int { return &e.Shared }),
	{
		kind: EvStarted, key: "stops",
		set: func(e *Event, v string) error {
			for text := range strings.SplitSeq(v, ",") {
				n, err := parseInt("stops", text, e.after()+1, math.MaxInt32)
				if err != nil {
					return err
				}
				e.Stops = append(e.Stops, n)
			}
			return nil
		},
		value: func(dst []byte, e *Event) []byte {
			for i, n := range e.Stops {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = strconv.AppendInt(dst, int64(n), 10)
			}
			return dst
		},
	},
	numberArg(EvReady, "shared", 0, func(e *Event) *int { return &e.Shared }),
	spanArg(EvLimit, "step", true, func(e *Event) *time.Duration { return &e.Limit }),
	spanArg(EvLimit, "waited", false, func(e *Event) *time.Duration { return &e.Waited }),
	numberArg(EvThreads, "n", 1, func(e *Event) *int { return &e.Threads }),
	flagArg(EvThreads, "disturbed", func(e *Event) *bool { return &e.Disturbed }),
	{
		kind: EvCells, key: "room",
		set: func(e *Event, v string) (err error) { e.Cells, err = parseInt("room", v, 0, math.MaxInt32); return err },

		value: func(dst []byte, e *Event) []byte { return strconv.AppendInt(dst, int64(e.Cells), 10) },
	},
}

// after returns the position behind which the next of e.Stops must lie.
func (e *Event) after() int {
	if n := len(e.Stops); n > 0 {
		return e.Stops[n-1]
	}
	return 0
}

// numberArg is KEY=NUMBER from least on; 0 is left out.
func numberArg(kind EventKind, key string, least int, field func(*Event) *int) eventArg {
	return eventArg{
		kind: kind, key: key,
		set: func(e *Event, v string) (err error) {
			*field(e), err = parseInt(key, v, least, math.MaxInt32)
			return err
		},
		value: func(dst []byte, e *Event) []byte {
			if n := *field(e); n != 0 {
				dst = strconv.AppendInt(dst, int64(n), 10)
			}
			return dst
		},
	}
}

// spanArg is KEY=DURATION; 0 is left out unless always is set.
func spanArg(kind EventKind, key string, always bool, field func(*Event) *time.Duration) eventArg {
	return eventArg{
		kind: kind, key: key,
		set: func(e *Event, v string) (err error) { *field(e), err = parseSpan(key, v); return err },
		value: func(dst []byte, e *Event) []byte {
			if d := *field(e); d != 0 || always {
				dst = appendDuration(dst, d)
			}
			return dst
		},
	}
}

// flagArg is a word that is there or not.
func flagArg(kind EventKind, word string, field func(*Event) *bool) eventArg {
	return eventArg{
		kind: kind, key: word, flag: true,
		set: func(e *Event, _ string) error { *field(e) = true; return nil },
		value: func(dst []byte, e *Event) []byte {
			if *field(e) {
				dst = append(dst, word...)
			}
			return dst
		},
	}
}

// reasonArg is a reason's name; unfit says what is wrong with one that ok does not accept.
func reasonArg(kind EventKind, unfit string, ok func(Reason) bool) eventArg {
	return eventArg{
		kind: kind,
		set: func(e *Event, v string) error {
			r, known := parseReason(v)
			if !known || !ok(r) {
				return fmt.Errorf("%q %s", v, unfit)
			}
			e.Finish = r
			return nil
		},
		value: func(dst []byte, e *Event) []byte { return append(dst, e.Finish.String()...) },
	}
}

func appendEvent(dst []byte, e *Event) []byte {
	dst = append(dst, eventNames[e.Kind]...)
	if e.Kind.ofRequest() {
		dst = strconv.AppendUint(append(dst, ' '), uint64(e.Req), 10)
	}
	for i := range eventArgs {
		a := &eventArgs[i]
		if a.kind != e.Kind {
			continue
		}
		before := len(dst)
		dst = append(dst, ' ')
		if a.key != "" && !a.flag {
			dst = append(append(dst, a.key...), '=')
		}
		bare := len(dst)
		if dst = a.value(dst, e); len(dst) == bare {
			dst = dst[:before]
		}
	}
	return append(dst, '\n')
}

// parseEvent reads an event's line, split into fields.
func parseEvent(f []string) (e Event, err error) {
	kind := slices.Index(eventNames[:], f[0])
	if kind < 1 {
		return e, fmt.Errorf("%q is no event", f[0])
	}
	e.Kind = EventKind(kind)
	args := f[1:]
	if e.Kind.ofRequest() {
		if len(args) == 0 {
			return e, fmt.Errorf("%s: the request id is missing", f[0])
		}
		id, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil || id == 0 {
			return e, fmt.Errorf("%s: %q is no request id", f[0], args[0])
		}
		e.Req, args = ReqID(id), args[1:]
	}
	for _, a := range args {
		if err := e.parseArg(a); err != nil {
			return e, fmt.Errorf("%s: %w", f[0], err)
		}
	}
	switch {
	case (e.Kind == EvFinish || e.Kind == EvDefer) && e.Finish == ReasonNone:
		return e, fmt.Errorf("%s: the reason is missing", f[0])
	case e.Kind == EvThreads && (e.Threads == 0 || e.Threads > MaxThreads):
		return e, fmt.Errorf("threads: n= is needed, 1…%d", MaxThreads)
	case e.Kind == EvArrive && (e.Prompt == 0 || e.MaxTokens == 0):
		return e, errors.New("arrive: prompt= and max= are needed")
	}
	return e, nil
}

// parseArg reads one argument of e's line.
func (e *Event) parseArg(a string) error {
	key, value, pair := strings.Cut(a, "=")
	var bare *eventArg // takes a value without a key
	for i := range eventArgs {
		switch row := &eventArgs[i]; {
		case row.kind != e.Kind:
		case row.key == "":
			bare = row
		case row.key == key && row.flag != pair:
			return row.set(e, value)
		}
	}
	if bare != nil && !pair {
		return bare.set(e, a)
	}
	return fmt.Errorf("%q is not understood", a)
}
