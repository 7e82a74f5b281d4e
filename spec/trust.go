package spec

// Source says where a guess comes from.
type Source uint8

const (
	// Own: the request's own text.
	Own Source = iota
	// Other: another text of the same user that begins with all of the request's history.
	Other
	// Draft: a draft model. Head: a head, of the model's file or of a separate one. This package makes no such guesses,
	// and has no grades for them.
	Draft
	Head
	NumSources
)

// String returns the source's name on the wire and in metrics.
func (s Source) String() string { return [...]string{"own", "other", "draft-model", "head"}[s] }

const (
	ownGrades   = 6
	otherGrades = 4
	// Grades is the number of different values of Grade.
	Grades = ownGrades + otherGrades
)

// Grade sorts guesses by how much agrees with them: guesses of one grade come true about equally often. match is the
// number of tokens before the guess that agree; for another text, of generated ones.
func Grade(s Source, match int) int {
	if s == Own {
		return under(match, 3, 4, 6, 10, 20)
	}
	return ownGrades + under(match, 4, 16, 64)
}

// under returns how many of the bounds n has reached.
func under(n int, bounds ...int) int {
	for i, b := range bounds {
		if n < b {
			return i
		}
	}
	return len(bounds)
}
