package pull

import (
	"fmt"
	"slices"
)

// span is the bytes from From up to, but not including, To. In JSON it is [From, To].
type span [2]int64

func (s span) len() int64 { return s[1] - s[0] }

// spans are disjoint, not adjacent, and ascending.
type spans []span

// add inserts s and merges what it touches.
func (l spans) add(s span) spans {
	if s.len() <= 0 {
		return l
	}
	i, _ := slices.BinarySearchFunc(l, s[0], func(e span, from int64) int {
		if e[1] < from {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(l) && l[j][0] <= s[1]; j++ {
		s[0], s[1] = min(s[0], l[j][0]), max(s[1], l[j][1])
	}
	return slices.Replace(l, i, j, s)
}

// total returns the number of bytes in l.
func (l spans) total() (n int64) {
	for _, s := range l {
		n += s.len()
	}
	return n
}

// prefix returns the length of the span that begins at 0.
func (l spans) prefix() int64 {
	if len(l) == 0 || l[0][0] > 0 {
		return 0
	}
	return l[0][1]
}

// gap returns the first span in [0, size) that is not in l, at most limit long; its length is 0 when there is none.
func (l spans) gap(size, limit int64) span {
	from, to := int64(0), size
	for _, s := range l {
		if s[0] > from {
			to = s[0]
			break
		}
		from = s[1]
	}
	if from >= size {
		return span{size, size}
	}
	return span{from, min(to, from+limit)}
}

// missing calls f with the parts of s that are not in l, in order, until f returns an error.
func (l spans) missing(s span, f func(span) error) error {
	from := s[0]
	for _, e := range l {
		if e[1] <= from {
			continue
		}
		if e[0] >= s[1] {
			break
		}
		if e[0] > from {
			if err := f(span{from, e[0]}); err != nil {
				return err
			}
		}
		from = e[1]
	}
	if from < s[1] {
		return f(span{from, s[1]})
	}
	return nil
}

// valid returns an error unless l is ascending and disjoint and within [0, size).
func (l spans) valid(size int64) error {
	last := int64(-1)
	for _, s := range l {
		if s[0] <= last || s[1] <= s[0] || s[1] > size {
			return fmt.Errorf("spans: [%d, %d) after %d, in a file of %d bytes", s[0], s[1], last, size)
		}
		last = s[1]
	}
	return nil
}
