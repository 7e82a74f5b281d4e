package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// eventKind writes and reads one kind of event.
type eventKind struct {
	name   string // the first word of its lines
	append func(dst []byte, l *Events, n int) []byte
	read   func(l *Events, line []string) error
}

// kinds describes every kind, so that a recording has all fields of each: the tags of its struct say how.
var kinds = [...]eventKind{
	KindArrive: kindOf(KindArrive, "arrive", func(l *Events) *[]EvArrive { return &l.Arrivals },
		func(e *EvArrive) error {
			if e.Prompt == 0 || e.MaxTokens == 0 {
				return errors.New("prompt= and max= are needed")
			}
			return nil
		}),
	KindCancel: kindOf(KindCancel, "cancel", func(l *Events) *[]EvCancel { return &l.Cancels }, nil),
	KindStep:   kindOf(KindStep, "outcome", func(l *Events) *[]EvStep { return &l.Steps }, nil),
	KindToken:  kindOf(KindToken, "token", func(l *Events) *[]EvToken { return &l.Tokens }, nil),
	KindFinish: kindOf(KindFinish, "finish", func(l *Events) *[]EvFinish { return &l.Finishes },
		func(e *EvFinish) error { return checkReason(e.Reason, e.Reason.Final(), "ends no request") }),
	KindPause:  kindOf(KindPause, "pause", func(l *Events) *[]EvPause { return &l.Pauses }, nil),
	KindResume: kindOf(KindResume, "resume", func(l *Events) *[]EvResume { return &l.Resumes }, nil),
	KindDrain:  kindOf(KindDrain, "drain", func(l *Events) *[]EvDrain { return &l.Drains }, nil),
	KindLimit:  kindOf(KindLimit, "limit", func(l *Events) *[]EvLimit { return &l.Limits }, nil),
	KindThreads: kindOf(KindThreads, "threads", func(l *Events) *[]EvThreads { return &l.Counts },
		func(e *EvThreads) error {
			if e.Threads == 0 || e.Threads > MaxThreads {
				return fmt.Errorf("n= is needed, 1…%d", MaxThreads)
			}
			return nil
		}),
	KindStarted: kindOf(KindStarted, "started", func(l *Events) *[]EvStarted { return &l.Starts }, nil),
	KindDefer: kindOf(KindDefer, "defer", func(l *Events) *[]EvDefer { return &l.Defers },
		func(e *EvDefer) error { return checkReason(e.Reason, e.Reason.Defers(), "defers no request") }),
	KindReady: kindOf(KindReady, "ready", func(l *Events) *[]EvReady { return &l.Readies }, nil),
	KindCells: kindOf(KindCells, "cells", func(l *Events) *[]EvCells { return &l.Rooms }, nil),
}

// kindOf describes the kind whose events are in list. check returns what is wrong with one that was read.
func kindOf[E any](kind EventKind, name string, list func(*Events) *[]E, check func(*E) error) eventKind {
	codec := words.Of[E]()
	return eventKind{
		name:   name,
		append: func(dst []byte, l *Events, n int) []byte { return codec.Append(dst, &(*list(l))[n]) },
		read: func(l *Events, line []string) error {
			var e E
			err := codec.Read(&e, line)
			if err == nil && check != nil {
				err = check(&e)
			}
			if err == nil {
				push(l, kind, list(l), e)
			}
			return err
		},
	}
}

func checkReason(r Reason, ok bool, unfit string) error {
	switch {
	case r == reason.None:
		return errors.New("the reason is missing")
	case !ok:
		return fmt.Errorf("%q %s", r, unfit)
	}
	return nil
}

// read reads an event's line, split into words.
func (l *Events) read(line []string) error {
	kind := slices.IndexFunc(kinds[:], func(k eventKind) bool { return k.name == line[0] })
	if kind < 0 {
		return fmt.Errorf("%q is no event", line[0])
	}
	if err := kinds[kind].read(l, line[1:]); err != nil {
		return fmt.Errorf("%s: %w", line[0], err)
	}
	return nil
}

// AppendWord and SetWord are a class's text in a trace.
func (c *Class) AppendWord(dst []byte) []byte { return append(dst, c.String()...) }
func (c *Class) SetWord(text string) error {
	i := slices.Index(classNames[:], text)
	if i < 0 {
		return fmt.Errorf("%q is no class", text)
	}
	*c = Class(i)
	return nil
}

// AppendWord and SetWord are an outcome's text in a trace.
func (o *Outcome) AppendWord(dst []byte) []byte { return append(dst, o.String()...) }
func (o *Outcome) SetWord(text string) error {
	i := slices.Index(outcomeNames[:], text)
	if i < 0 {
		return words.UnknownError(text)
	}
	*o = Outcome(i)
	return nil
}
