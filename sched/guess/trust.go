package guess

import "math"

const (
	// NumGrades is the number of grades of guesses: how sure the caller is of them.
	NumGrades = 16
	// DraftGrade is the grade of the draft model's guesses. Other guesses have lower ones.
	DraftGrade = NumGrades - 1
)

const (
	// A request's own record of a grade counts as much as all requests' together after ownWeight comparisons. Records
	// keep 1 - 1/ownMemory and 1 - 1/allMemory of themselves with each comparison: text changes from passage to
	// passage.
	ownWeight = 2
	ownMemory = 12
	allMemory = 128
	// draftMemory is ownMemory of the draft model's guesses: what 81 answers of a trained head say of the next guess
	// (9,140 comparisons, docs/lab/speculation.md) has a mean log loss of 0.604 with it, 0.607 with 12, 0.609 with 96.
	draftMemory = 24
	// chanceDoubt is the number of standard deviations by which a recorded chance is lowered. With 0, four streams
	// whose guesses come true in 95 of 100 cases have 0.96 of the tokens/s (simulated); with 1, those of 50 have 0.9.
	chanceDoubt = 0.5
	// Before the first comparison a guess comes true in half of the cases.
	firstChance, firstWeight = 0.5, 2
	// Before the first comparison, draftChance of the draft model's guesses come true: most pairs of models are better.
	draftChance = 0.7
)

// record counts the guesses that came true, of those compared, with exponential forgetting.
type record struct{ right, total float64 }

func (c *record) add(right int, wrong bool, memory float64) {
	keep := 1 - 1/memory
	for range right {
		c.right, c.total = mul(c.right, keep)+1, mul(c.total, keep)+1
	}
	if wrong {
		c.right, c.total = mul(c.right, keep), mul(c.total, keep)+1
	}
}

// fade forgets as a comparison does, without one: nothing is known of the draft model's guesses where it makes none.
func (c *record) fade(memory float64) {
	keep := 1 - 1/memory
	c.right, c.total = mul(c.right, keep), mul(c.total, keep)
}

// trust has the records of guesses: answering, thinking; by grade.
type trust [2][NumGrades]record

func (t *trust) of(thinking bool, grade int) *record {
	if thinking {
		return &t[1][grade]
	}
	return &t[0][grade]
}

// record returns the chance of r's guesses and its standard deviation due to r's own comparisons.
func (c *Chooser) record(r *Request, thinking bool, grade int) (p, deviation float64) {
	all, own := c.all.of(thinking, grade), r.trust.of(thinking, grade)
	first := firstChance
	if grade == DraftGrade {
		first = draftChance
	}
	base := (all.right + mul(first, firstWeight)) / (all.total + firstWeight)
	n := own.total + ownWeight
	p = (own.right + mul(ownWeight, base)) / n
	return p, math.Sqrt(mul(mul(p, 1-p), own.total)) / n
}

// Chance returns the probability that a guess of a grade comes true for r, given that those before it have.
func (c *Chooser) Chance(r *Request, thinking bool, grade int) float64 {
	p, _ := c.record(r, thinking, grade)
	return p
}

// sureChance is Chance less what its record may owe to luck: guesses are chosen by it, and among those that seem as
// good as they have to be most were lucky.
func (c *Chooser) sureChance(row *Row, grade int) float64 {
	p, luck := c.record(row.Request, row.Thinking, grade)
	return max(0, p-mul(chanceDoubt, luck))
}

// places are the records of guesses by their place in a block: the further behind, the less a head knows. Those beyond
// the last place count as it.
type places [16]record

// placeWeight is the number of comparisons after which the record of a place counts as much as that of all places.
const placeWeight = 8

func (p *places) learn(right int, wrong bool) {
	for i := range min(right, len(p)) {
		p[i].add(1, false, allMemory)
	}
	if wrong && right < len(p) {
		p[right].add(0, true, allMemory)
	}
}

// share returns how often guesses at a place come true, given that those before it have, relative to those of all
// places.
func (p *places) share(at int) float64 {
	var all record
	for i := range p {
		all.right, all.total = all.right+p[i].right, all.total+p[i].total
	}
	mean := (all.right + mul(draftChance, firstWeight)) / (all.total + firstWeight)
	own := p[min(at, len(p)-1)]
	return (own.right + mul(placeWeight, mean)) / mul(own.total+placeWeight, mean)
}

// comes returns the chance of a row's guess behind so many others, given that those come true.
func (c *Chooser) comes(row *Row, behind int) float64 {
	if !row.drafted || !c.blocks() {
		return row.chance
	}
	return min(1, mul(row.chance, c.block.share(behind)))
}

// mul returns a product that is rounded before it is added to anything, as package cost's are: a trace replays to the
// same plans on every architecture.
func mul(a, b float64) float64 { return float64(a * b) }
