package blocks

// Claim describes the use of a running request's cells. When cells run out, the order of the claims decides which
// request is preempted.
type Claim struct {
	Resting    bool // it is paused: its client does not read
	Background bool // its priority class
	Tier       Tier // of the cells that it computes: Prefix (its prompt), ThinkActive or OutputCritical
}

// Compare orders claims by preemption: it is negative when a gives up its cells before b, and 0 when the block
// manager does not distinguish them. Requests that rest go first, because no step needs their cells, and answers go
// last, because a user sees one stop. Among the others background requests precede interactive ones; then the tiers
// decide, prompts first.
func (a Claim) Compare(b Claim) int {
	if a.Resting != b.Resting {
		return sign(a.Resting)
	}
	if answers := b.Tier == OutputCritical; answers != (a.Tier == OutputCritical) {
		return sign(answers)
	}
	if a.Background != b.Background {
		return sign(a.Background)
	}
	return rank[a.Tier] - rank[b.Tier]
}
