package jinja

import (
	"math/rand/v2"
	"slices"
	"unicode/utf8"
)

func firstItem(s *state, v any, a *callArgs) any {
	a.bind(s, "first", 0)
	if x, ok := iterate(s, v)(); ok {
		return x
	}
	return Undefined{Name: "the first item of an empty sequence"}
}

func lastItem(s *state, v any, a *callArgs) any {
	a.bind(s, "last", 0)
	if x, ok := s.backward(v, "last")(); ok {
		return x
	}
	return Undefined{Name: "the last item of an empty sequence"}
}

// backward iterates over what Python's reversed takes: no generators.
func (s *state) backward(v any, fn string) iterator {
	switch v := v.(type) {
	case *generator:
		s.fail("%s does not work on a generator: use |list first", fn)
	case *loop:
		s.fail("%s does not work on a loop", fn)
	case string, markup:
		t, same := soft(s, v)
		return func() (any, bool) {
			if t == "" {
				return nil, false
			}
			_, n := utf8.DecodeLastRuneInString(t)
			c := t[len(t)-n:]
			t = t[:len(t)-n]
			return same(c), true
		}
	case *rangeValue:
		return over(int(v.length), func(i int) any { return v.at(v.length - 1 - int64(i)) })
	case *Dict:
		return s.backward(v.keys, fn)
	case dictView:
		return over(len(v.of.keys), func(i int) any { return v.at(len(v.of.keys) - 1 - i) })
	}
	list := items(s, v)
	return over(len(list), func(i int) any { return list[len(list)-1-i] })
}

func reverse(s *state, v any, a *callArgs) any {
	a.bind(s, "reverse", 0)
	switch v := v.(type) {
	case string, markup:
		t, same := soft(s, v)
		minus := int64(-1)
		return same(s.substring(t, nil, nil, &minus))
	case *generator, *loop:
		list := slices.Clone(items(s, v))
		slices.Reverse(list)
		return list
	}
	if !iterable(v) {
		s.fail("reverse: a %s cannot be looped over", typeName(v))
	}
	return &generator{s.backward(v, "reverse")}
}

// randomItem picks by the time the template is rendered at, so that a rendering depends on nothing else.
func randomItem(s *state, v any, a *callArgs) any {
	a.bind(s, "random", 0)
	n := mustLength(s, v)
	if n == 0 {
		return Undefined{Name: "a random item of an empty sequence"}
	}
	seed := uint64(s.now.UnixNano())
	return s.item(v, int64(rand.New(rand.NewPCG(seed, uint64(s.steps))).IntN(n)))
}

func joinFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "join", 0, "d", "attribute")
	get := s.getter(p[1], nil)
	var sep any = ""
	if p[0] != unset {
		sep = p[0]
	}
	list := &generator{s.mapped(v, get)}
	if !s.autoescape {
		return joined(s, str(s, sep), list, true)
	}
	all := items(s, list)
	_, escaped := sep.(markup)
	for _, x := range all {
		_, is := x.(markup)
		escaped = escaped || is
	}
	if !escaped {
		return joined(s, str(s, sep), all, true)
	}
	parts := make([]any, len(all))
	for i, x := range all {
		parts[i] = string(escape(s, x))
	}
	return markup(joined(s, string(escape(s, sep)), parts, false))
}

// mapped yields f of each item of v.
func (s *state) mapped(v any, f func(x any) any) iterator {
	next := iterate(s, v)
	return func() (any, bool) {
		x, ok := next()
		if !ok {
			return nil, false
		}
		s.step()
		return f(x), true
	}
}

func itemsFilter(s *state, v any, a *callArgs) any {
	a.bind(s, "items", 0)
	return s.lazily(func() iterator {
		switch d := v.(type) {
		case *Dict:
			return iterate(s, dictView{d, "items"})
		case Undefined:
			return over(0, nil)
		}
		s.fail("items wants a dict, not a %s", typeName(v))
		return nil
	})
}

// lazily is a generator that calls begin when its first item is requested.
func (s *state) lazily(begin func() iterator) *generator {
	s.charge(frameBytes)
	var next iterator
	return &generator{func() (any, bool) {
		if next == nil {
			next = begin()
		}
		// Generators read one another: a long chain of them is nesting.
		s.enter()
		x, ok := next()
		s.leave()
		return x, ok
	}}
}

func listFilter(s *state, v any, a *callArgs) any {
	a.bind(s, "list", 0)
	return slices.Clip(items(s, v))
}

func mapFilter(s *state, v any, a *callArgs) any {
	return s.lazily(func() iterator {
		if !truth(v) {
			return over(0, nil)
		}
		if len(a.list) == 0 && slices.Contains(a.names, "attribute") {
			p := a.bind(s, "map", 0, "attribute", "default")
			return s.mapped(v, s.getter(p[0], p[1]))
		}
		if len(a.list) == 0 {
			s.fail("map wants a filter's name or attribute=…")
		}
		name, _ := text(a.list[0])
		f := filters[name]
		if f == nil {
			s.fail("unknown filter %q", name)
		}
		rest := &callArgs{a.list[1:], a.names, a.values}
		return s.mapped(v, func(x any) any { return f(s, x, rest) })
	})
}

// selecting makes select, reject (of the items themselves) and selectattr, rejectattr.
func selecting(keep, byAttr bool) filter {
	return func(s *state, v any, a *callArgs) any {
		return s.lazily(func() iterator {
			if !truth(v) {
				return over(0, nil)
			}
			args := a.list
			get := s.getter(nil, nil)
			if byAttr {
				if len(args) == 0 {
					s.fail("wants an attribute's name")
				}
				get, args = s.getter(args[0], nil), args[1:]
			}
			check := func(_ *state, v any, _ *callArgs) bool { return truth(v) }
			var rest *callArgs
			if len(args) > 0 {
				name, _ := text(args[0])
				if check = tests[name]; check == nil {
					s.fail("unknown test %q", name)
				}
				rest = &callArgs{args[1:], a.names, a.values}
			}
			next := iterate(s, v)
			return func() (any, bool) {
				for {
					x, ok := next()
					if !ok {
						return nil, false
					}
					s.step()
					if check(s, get(x), rest) == keep {
						return x, true
					}
				}
			}
		})
	}
}

func batch(s *state, v any, a *callArgs) any {
	p := a.bind(s, "batch", 1, "linecount", "fill_with")
	n := int(min(max(count(s, "batch", p[0]), -1), 1<<40))
	return s.lazily(func() iterator {
		next := iterate(s, v)
		var chunk []any
		done := false
		return func() (any, bool) {
			for !done {
				x, ok := next()
				if !ok {
					done = true
					break
				}
				s.step()
				s.charge(itemBytes)
				if chunk != nil && len(chunk) == n {
					full := chunk
					chunk = []any{x}
					return full, true
				}
				if n == 0 && chunk == nil { // as in Jinja2, where the first line is empty
					chunk = []any{x}
					return []any{}, true
				}
				chunk = append(chunk, x)
			}
			if len(chunk) == 0 {
				return nil, false
			}
			if !isNone(p[1]) && len(chunk) < n {
				s.chargeProduct(n, itemBytes)
				for len(chunk) < n {
					chunk = append(chunk, p[1])
				}
			}
			last := chunk
			chunk = nil
			return last, true
		}
	})
}

func sliceFilter(s *state, v any, a *callArgs) any {
	p := a.bind(s, "slice", 1, "slices", "fill_with")
	n := count(s, "slice", p[0])
	return s.lazily(func() iterator {
		list := items(s, v)
		if n == 0 {
			s.fail("%v", errZero)
		}
		size, extra := int64(len(list))/max(n, 1), int64(len(list))%max(n, 1)
		i, at := int64(0), int64(0)
		return func() (any, bool) {
			if i >= n {
				return nil, false
			}
			s.step()
			end := at + size
			if i < extra {
				end++
			}
			part := list[at:end:end]
			if !isNone(p[1]) && i >= extra {
				s.charge((len(part) + 1) * itemBytes)
				part = append(part, p[1])
			}
			i, at = i+1, end
			return part, true
		}
	})
}
