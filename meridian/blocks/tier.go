package blocks

// Tier is the use of a span's cells. It determines how early they are evicted. The first three values are the codes of
// the MRDN wire format.
type Tier uint8

const (
	ThinkComplete  Tier = iota // a closed think block; its request writes the answer
	ThinkActive                // a think block that is being written
	OutputCritical             // an answer that is being written
	Prefix                     // prompts, and cached prefixes that no live request needs

	NumTiers
)

// EvictionOrder lists the tiers, the first evicted first.
var EvictionOrder = [NumTiers]Tier{Prefix, ThinkComplete, ThinkActive, OutputCritical}

var rank = [NumTiers]int{Prefix: 0, ThinkComplete: 1, ThinkActive: 2, OutputCritical: 3}

// Before reports whether cells of t are evicted before cells of o.
func (t Tier) Before(o Tier) bool { return rank[t] < rank[o] }

// later returns the tier of the two that is evicted later.
func later(a, b Tier) Tier {
	if a.Before(b) {
		return b
	}
	return a
}

// String returns the tier's label in metrics.
func (t Tier) String() string {
	return [...]string{"think_complete", "think_active", "output_critical", "prefix"}[t]
}

// Reason says why cells were taken from their request or cached prefix.
type Reason uint8

const (
	Pressure  Reason = iota // another request needed the cells
	Preempted               // their request was preempted; the cells stay cached until they are evicted
	Dropped                 // a user dropped the prefix

	NumReasons
)

// String returns the reason's label in metrics.
func (r Reason) String() string { return [...]string{"pressure", "preempt", "dropped"}[r] }
