package jsonschema

// emptiness says whether a node holds no value.
type emptiness uint8

const (
	emptyUnknown emptiness = iota
	emptyBusy              // being asked: a value that needs itself does not exist
	isEmptyYes
	isEmptyNo
)

// isEmpty reports whether r surely holds no value. A question that is too hard counts as no: what follows from yes is
// that a schema is left out.
func (c *compiler) isEmpty(r ref) bool {
	e, rests := c.askEmpty(r)
	return e && !rests
}

// isEmptySet is isEmpty for a set.
func (c *compiler) isEmptySet(s *set) bool {
	e, rests := c.emptySet(s)
	return e && !rests
}

// askEmpty also says whether the answer rests on a node that is being asked: only a yes can, and it is not kept.
func (c *compiler) askEmpty(r ref) (empty, rests bool) {
	switch c.nodes[r].empty {
	case isEmptyYes:
		return true, false
	case isEmptyNo:
		return false, false
	case emptyBusy:
		return true, true
	}
	if c.err != nil || c.nodes[r].busy || c.asking >= c.limits.Depth {
		return false, false
	}
	c.asking++
	c.nodes[r].empty = emptyBusy
	empty, rests = c.emptySet(c.setOf(r))
	c.asking--
	if c.open {
		c.nodes[r].empty = emptyUnknown
		c.open = c.asking > 0
		return false, false
	}
	rests = rests && c.asking > 0
	switch {
	case !empty:
		c.nodes[r].empty = isEmptyNo
	case rests:
		c.nodes[r].empty = emptyUnknown
	default:
		c.nodes[r].empty = isEmptyYes
	}
	return empty, rests
}

func (c *compiler) emptySet(s *set) (empty, rests bool) {
	if s.null || s.no || s.yes {
		return false, false
	}
	if s.num.finite && len(s.num.values) > 0 || s.str.finite && len(s.str.values) > 0 {
		return false, false
	}
	if !s.num.finite && !c.noNames(s.num.texts) || !s.str.finite && !c.noNames(s.str.texts) {
		return false, false
	}
	for _, a := range s.arrs {
		e, r := c.emptyArray(a)
		if !e {
			return false, false
		}
		rests = rests || r
	}
	for _, o := range s.objs {
		e, r := c.emptyObject(o)
		if !e {
			return false, false
		}
		rests = rests || r
	}
	return true, rests
}

func (c *compiler) emptyArray(a *array) (empty, rests bool) {
	for i := range min(a.min, len(a.prefix)) {
		e, r := c.askEmpty(a.prefix[i])
		if e {
			return true, r
		}
	}
	if a.min > len(a.prefix) {
		if e, r := c.askEmpty(a.rest); e {
			return true, r
		}
	}
	for _, h := range a.contains {
		if h.min == 0 {
			continue
		}
		all, rest := true, false
		for i := 0; i <= len(a.prefix); i++ {
			e, r := c.askEmpty(c.and(a.item(i), h.items))
			all, rest = all && e, rest || r
		}
		if all {
			return true, rest
		}
	}
	return false, false
}

func (c *compiler) emptyObject(o *object) (empty, rests bool) {
	for _, m := range o.props {
		if m.required {
			if e, r := c.askEmpty(m.value); e {
				return true, r
			}
		}
	}
	for _, h := range o.has {
		all, rest := true, false
		for _, m := range o.props {
			if m.value != nothing && c.s.Match(h.names, []byte(m.name)) {
				e, r := c.askEmpty(c.and(m.value, h.value))
				all, rest = all && e, rest || r
			}
		}
		for _, k := range o.classes {
			if k.value != nothing && !c.noNames(c.s.And(k.names, h.names)) {
				e, r := c.askEmpty(c.and(k.value, h.value))
				all, rest = all && e, rest || r
			}
		}
		if all {
			return true, rest
		}
	}
	return false, false
}
