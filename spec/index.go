// Package spec guesses the tokens that follow a text from the text itself: answers that edit, quote or repeat their
// prompt contain long runs of it (prompt lookup decoding). A guess costs a row of the next step and never changes the
// answer, so it may be wrong.
//
// It is pure: the same calls give the same guesses, in the daemon, in a replay of its trace and in the simulator.
package spec

// Token is a token id of the model.
type Token = int32

const (
	// MaxWindow is the number of tokens, the newest of a text, that are searched. An Index of them takes 12 bytes a
	// token.
	MaxWindow = 1 << 16
	// MinMatch is the fewest tokens before the guessed ones that must agree.
	MinMatch = 2
	// maxMatch is the limit on the tokens that are compared; a longer match is not more likely to continue.
	maxMatch = 32
	// maxTries is the number of earlier places that are compared: the newest ones of three equal tokens.
	maxTries = 16
	// settled is the length from which on a match that continues is kept without a search for a longer one.
	settled = 8
)

// Index finds where the newest tokens of one text stood before. It holds positions only; the text is an argument of
// each call and may only grow between two calls (else Reset). The zero value is not usable; see New.
type Index struct {
	three []int32 // hash of three tokens → position behind their newest occurrence, plus one; 0 = none
	two   []int32 // the same for two tokens
	prev  []int32 // position modulo the window → position before it with the same hash of three, plus one
	done  int     // Invariant: the places before text[:done] are indexed, done ≤ len(text) of the newest call

	at     int // position that the newest match continues with; 0 = none
	length int // of that match
	upTo   int // length of the text that it was found in
}

// New makes an index for a text that grows to about n tokens. It allocates once; later calls do not.
func New(n int) *Index {
	size := 1 << 8
	for size < min(n, MaxWindow) {
		size *= 2
	}
	return &Index{three: make([]int32, size), two: make([]int32, size), prev: make([]int32, size)}
}

// Fits reports whether x is large enough for a text of n tokens: New(n) would not be larger.
func (x *Index) Fits(n int) bool { return len(x.prev) >= min(n, MaxWindow) }

// Bytes returns the memory of x.
func (x *Index) Bytes() int { return 4 * (len(x.three) + len(x.two) + len(x.prev)) }

// Reset forgets the text, for another one or because tokens were removed from it.
func (x *Index) Reset() {
	if x.done > 0 {
		clear(x.three)
		clear(x.two)
	}
	x.done, x.at, x.length, x.upTo = 0, 0, 0, 0
}

func (x *Index) hash3(t []Token) int {
	h := uint32(t[0])*0x9e3779b1 ^ uint32(t[1])*0x85ebca77 ^ uint32(t[2])*0xc2b2ae3d
	return int((h ^ h>>15) & uint32(len(x.three)-1))
}

func (x *Index) hash2(t []Token) int {
	h := uint32(t[0])*0x9e3779b1 ^ uint32(t[1])*0x85ebca77
	return int((h ^ h>>15) & uint32(len(x.two)-1))
}

// Extend indexes at most most further places of text and reports whether none is left. A place is indexed once the
// token behind it is known.
func (x *Index) Extend(text []Token, most int) (all bool) {
	p := max(x.done, MinMatch)
	if skip := len(text) - len(x.prev); p < skip {
		p = skip // older places are outside the window
	}
	end := min(len(text), p+most)
	for ; p < end; p++ {
		x.two[x.hash2(text[p-2:])] = int32(p + 1)
		if p >= 3 {
			h := x.hash3(text[p-3:])
			x.prev[p&(len(x.prev)-1)] = x.three[h]
			x.three[h] = int32(p + 1)
		}
	}
	x.done = max(x.done, end)
	return x.done >= len(text)
}

// Guess fills dst with the tokens that followed when the end of text stood earlier in it, and returns how many tokens
// of the end agree there: the longest such match of those tried, and of equal ones the newest. n is 0 without one, and
// while places of text are not indexed. A match that reaches the end of text is continued periodically.
func (x *Index) Guess(text, dst []Token) (n, match int) {
	if x.done < len(text) || len(text) <= MinMatch {
		return 0, 0
	}
	at, length := x.goesOn(text)
	if length < settled {
		if a, l := x.search(text); l > length {
			at, length = a, l
		}
	}
	x.at, x.length, x.upTo = at, length, len(text)
	if length < MinMatch {
		return 0, 0
	}
	for i := range dst {
		if p := at + i; p < len(text) {
			dst[i] = text[p]
		} else {
			dst[i] = dst[p-len(text)]
		}
	}
	return len(dst), length
}

// goesOn returns the place of the newest match if all tokens since agree with those behind it.
func (x *Index) goesOn(text []Token) (at, length int) {
	n := len(text) - x.upTo
	if x.length < MinMatch || n < 0 || n > maxMatch {
		return 0, 0
	}
	for i := range n {
		if text[x.upTo+i] != text[x.at+i] {
			return 0, 0
		}
	}
	return x.at + n, min(x.length+n, maxMatch)
}

// search returns the best of the newest places behind which the end of text agrees.
func (x *Index) search(text []Token) (at, length int) {
	n := len(text)
	oldest := n - len(x.prev)
	try := func(p int) {
		if l := agree(text, p); l > length {
			at, length = p, l
		}
	}
	p := int(x.three[x.hash3(text[n-3:])]) - 1
	for range maxTries {
		if p < 3 || p <= oldest {
			break
		}
		if try(p); length == maxMatch {
			break
		}
		p = int(x.prev[p&(len(x.prev)-1)]) - 1
	}
	if length < MinMatch {
		if p := int(x.two[x.hash2(text[n-2:])]) - 1; p >= MinMatch && p > oldest {
			try(p)
		}
	}
	return at, length
}

// agree returns how many tokens before p equal those at the end of text.
func agree(text []Token, p int) int {
	n, most := 0, min(p, maxMatch)
	for n < most && text[p-1-n] == text[len(text)-1-n] {
		n++
	}
	return n
}
