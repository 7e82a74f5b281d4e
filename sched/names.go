package sched

import (
	"slices"
	"strconv"

	"github.com/uma-serve/uma-serve/internal/words"
)

var stateNames = [...]string{"queued", "prefill", "think", "output", "done", "failed"}

// String returns the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state" + strconv.Itoa(int(s))
}

var outcomeNames = [...]string{"ok", "aborted", "kvfull", "failed", "late"}

// String returns the outcome's name in a trace.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "outcome" + strconv.Itoa(int(o))
}

var sliceNames = [...]string{"prefill", "decode", "probe"}

// String returns the kind's name in a trace.
func (k SliceKind) String() string {
	if int(k) < len(sliceNames) {
		return sliceNames[k]
	}
	return "slice" + strconv.Itoa(int(k))
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
