package jsonschema

import "slices"

// unbounded is a max that there is none of.
const unbounded = -1

// array is a set of arrays: min to max items, those of prefix in their places, rest behind them.
type array struct {
	prefix   []ref
	rest     ref
	min, max int
	contains []contains
	unique   bool
}

// contains bounds the number of items of an array, at any index, that are one of items.
type contains struct {
	items    ref
	min, max int
}

func (a *array) same(b *array) bool {
	return a.rest == b.rest && a.min == b.min && a.max == b.max && a.unique == b.unique &&
		slices.Equal(a.prefix, b.prefix) && slices.Equal(a.contains, b.contains)
}

// isAny reports whether every array is in a.
func (a *array) isAny() bool {
	return len(a.prefix) == 0 && a.rest == anything && a.min == 0 && a.max < 0 && len(a.contains) == 0 && !a.unique
}

// item returns the set of values of the item at index i.
func (a *array) item(i int) ref {
	if i < len(a.prefix) {
		return a.prefix[i]
	}
	return a.rest
}

// smaller returns the smaller of two maxima, of which each can be unbounded.
func smaller(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// settle folds what follows from a's parts, and returns nil when that is no array. It may change a.
func (c *compiler) settle(a *array) *array {
	kept := a.contains[:0:0]
	for _, h := range a.contains {
		if h.max == 0 && h.min == 0 { // none of them: every item is another kind
			a.rest = c.and(a.rest, c.not(h.items))
			for i := range a.prefix {
				a.prefix[i] = c.and(a.prefix[i], c.not(h.items))
			}
			continue
		}
		if h.max >= 0 && h.max < h.min {
			return nil
		}
		if h.items == anything { // every item counts
			a.min, a.max = max(a.min, h.min), smaller(a.max, h.max)
			continue
		}
		if h.items == nothing && h.min > 0 {
			return nil
		}
		if h.min > 0 || h.max >= 0 {
			a.min = max(a.min, h.min)
			if !slices.Contains(kept, h) {
				kept = append(kept, h)
			}
		}
	}
	a.contains = kept
	for i, r := range a.prefix {
		if r == nothing {
			a.max = smaller(a.max, i)
			a.prefix = a.prefix[:i]
			break
		}
	}
	if a.rest == nothing {
		a.max = smaller(a.max, len(a.prefix))
	}
	if a.max >= 0 && a.max < len(a.prefix) {
		a.prefix = a.prefix[:a.max]
	}
	if a.max >= 0 && a.min > a.max {
		return nil
	}
	if a.max >= 0 && a.max <= 1 {
		a.unique = false
	}
	return a
}

func (c *compiler) intersectArrays(x, y *array) *array {
	if x.isAny() {
		return y
	}
	if y.isAny() {
		return x
	}
	a := &array{rest: c.and(x.rest, y.rest), min: max(x.min, y.min), max: smaller(x.max, y.max),
		contains: slices.Concat(x.contains, y.contains), unique: x.unique || y.unique}
	for i := range max(len(x.prefix), len(y.prefix)) {
		a.prefix = append(a.prefix, c.and(x.item(i), y.item(i)))
	}
	return c.settle(a)
}

// complementArray returns every array that is not in a.
func (c *compiler) complementArray(p *place, a *array) []*array {
	var out []*array
	add := func(x *array) {
		if x = c.settle(x); x != nil {
			out = append(out, x)
		}
	}
	if a.unique {
		c.refuse(p, "uniqueItems", "its complement cannot be written as a grammar")
		return nil
	}
	if a.min > 0 {
		add(&array{rest: anything, max: a.min - 1})
	}
	if a.max >= 0 {
		add(&array{rest: anything, min: a.max + 1, max: unbounded})
	}
	for i, r := range a.prefix {
		if r != anything {
			add(&array{prefix: append(slices.Repeat([]ref{anything}, i), c.not(r)), rest: anything, min: i + 1,
				max: unbounded})
		}
	}
	switch {
	case a.rest == anything:
	case a.max >= 0 && a.max <= len(a.prefix): // nothing is behind the prefix
	case a.rest == nothing:
		add(&array{rest: anything, min: len(a.prefix) + 1, max: unbounded})
	case len(a.prefix) == 0:
		add(&array{rest: anything, max: unbounded, contains: []contains{{c.not(a.rest), 1, unbounded}}})
	default:
		c.refuse(p, "items", "behind prefixItems its complement cannot be written as a grammar")
	}
	for _, h := range a.contains {
		if h.min > 0 {
			add(&array{rest: anything, max: unbounded, contains: []contains{{h.items, 0, h.min - 1}}})
		}
		if h.max >= 0 {
			add(&array{rest: anything, max: unbounded, contains: []contains{{h.items, h.max + 1, unbounded}}})
		}
	}
	return out
}
