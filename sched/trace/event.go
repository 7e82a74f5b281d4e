package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/internal/words"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

type events = sched.Events

// eventKind writes and reads one kind of event.
type eventKind struct {
	name   string // the first word of its lines
	append func(dst []byte, l *events, n int) []byte
	read   func(l *events, line []string) error
}

// kinds describes every kind, so that a recording has all fields of each: the tags of its struct say how.
var kinds = [...]eventKind{
	sched.KindArrive: kindOf("arrive", func(l *events) []sched.EvArrive { return l.Arrivals }, (*events).Arrive,
		func(e *sched.EvArrive) error {
			if e.Prompt == 0 || e.MaxTokens == 0 {
				return errors.New("prompt= and max= are needed")
			}
			return nil
		}),
	sched.KindCancel: kindOf("cancel", func(l *events) []sched.EvCancel { return l.Cancels }, (*events).Cancel, nil),
	sched.KindStep:   kindOf("outcome", func(l *events) []sched.EvStep { return l.Steps }, (*events).Step, nil),
	sched.KindToken:  kindOf("token", func(l *events) []sched.EvToken { return l.Tokens }, (*events).Token, nil),
	sched.KindFinish: kindOf("finish", func(l *events) []sched.EvFinish { return l.Finishes }, (*events).Finish,
		func(e *sched.EvFinish) error { return checkReason(e.Reason, e.Reason.Final(), "ends no request") }),
	sched.KindPause:  kindOf("pause", func(l *events) []sched.EvPause { return l.Pauses }, (*events).Pause, nil),
	sched.KindResume: kindOf("resume", func(l *events) []sched.EvResume { return l.Resumes }, (*events).Resume, nil),
	sched.KindDrain:  kindOf("drain", func(l *events) []sched.EvDrain { return l.Drains }, (*events).Drain, nil),
	sched.KindLimit:  kindOf("limit", func(l *events) []sched.EvLimit { return l.Limits }, (*events).Limit, nil),
	sched.KindThreads: kindOf("threads", func(l *events) []sched.EvThreads { return l.Counts }, (*events).Threads,
		func(e *sched.EvThreads) error {
			if e.Threads == 0 || e.Threads > sched.MaxThreads {
				return fmt.Errorf("n= is needed, 1…%d", sched.MaxThreads)
			}
			return nil
		}),
	sched.KindStarted: kindOf("started", func(l *events) []sched.EvStarted { return l.Starts }, (*events).Started, nil),
	sched.KindDefer: kindOf("defer", func(l *events) []sched.EvDefer { return l.Defers }, (*events).Defer,
		func(e *sched.EvDefer) error { return checkReason(e.Reason, e.Reason.Defers(), "defers no request") }),
	sched.KindReady: kindOf("ready", func(l *events) []sched.EvReady { return l.Readies }, (*events).Ready, nil),
	sched.KindCells: kindOf("cells", func(l *events) []sched.EvCells { return l.Rooms }, (*events).Cells, nil),
}

// kindOf describes the kind whose events are in list, where add puts them. check returns what is wrong with one that
// was read.
func kindOf[E any](name string, list func(*events) []E, add func(*events, E), check func(*E) error) eventKind {
	codec := words.Of[E]()
	return eventKind{
		name:   name,
		append: func(dst []byte, l *events, n int) []byte { return codec.Append(dst, &list(l)[n]) },
		read: func(l *events, line []string) error {
			var e E
			err := codec.Read(&e, line)
			if err == nil && check != nil {
				err = check(&e)
			}
			if err == nil {
				add(l, e)
			}
			return err
		},
	}
}

func checkReason(r reason.Reason, ok bool, unfit string) error {
	switch {
	case r == reason.None:
		return errors.New("the reason is missing")
	case !ok:
		return fmt.Errorf("%q %s", r, unfit)
	}
	return nil
}

// ReadEvent adds to l the event of a line, which is split into words.
func ReadEvent(l *sched.Events, line []string) error {
	kind := slices.IndexFunc(kinds[:], func(k eventKind) bool { return k.name == line[0] })
	if kind < 0 {
		return fmt.Errorf("%q is no event", line[0])
	}
	if err := kinds[kind].read(l, line[1:]); err != nil {
		return fmt.Errorf("%s: %w", line[0], err)
	}
	return nil
}
