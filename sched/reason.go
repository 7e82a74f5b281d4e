package sched

// Reason is why a decision was made: the metric label, and what `uma-cli why` prints.
type Reason uint8

// The reasons are listed by the policies that give them.
const (
	ReasonNone Reason = iota
)
