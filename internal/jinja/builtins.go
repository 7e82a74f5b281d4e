package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// builtins are the global names every template has.
var builtins = map[string]any{
	"range":           function(rangeOf),
	"namespace":       function(newNamespace),
	"dict":            function(newDict),
	"raise_exception": function(raise),
	"strftime_now":    function(strftimeNow),
	"joiner":          function(joiner),
}

func rangeOf(s *state, a callArgs) (any, error) {
	if len(a.list) == 0 || len(a.list) > 3 || a.names != nil {
		return nil, errors.New("range takes one to three ints")
	}
	var n [3]int64
	for i, v := range a.list {
		x, ok := integer(v)
		if !ok {
			return nil, fmt.Errorf("range takes ints, not a %s", typeName(v))
		}
		n[i] = x
	}
	start, stop, by := n[0], n[1], int64(1)
	switch len(a.list) {
	case 1:
		start, stop = 0, n[0]
	case 3:
		by = n[2]
	}
	const far = 1 << 40 // beyond any allowed length; keeps the arithmetic below from wrapping
	if by == 0 || max(start, stop, by) > far || min(start, stop, by) < -far {
		return nil, errors.New("range: a step of 0 or a bound beyond 2^40")
	}
	count := max(0, (stop-start+by-1)/by)
	if by < 0 {
		count = max(0, (start-stop-by-1)/-by)
	}
	s.charge(int(count) * itemBytes)
	list := make([]any, 0, count)
	for i := range count {
		list = append(list, start+i*by)
	}
	return list, nil
}

func newNamespace(s *state, a callArgs) (any, error) {
	d, err := newDict(s, a)
	if err != nil {
		return nil, err
	}
	ns := &namespace{vars: map[string]any{}}
	for k, v := range d.(*Dict).m {
		ns.vars[str(s, k)] = v
	}
	return ns, nil
}

func newDict(s *state, a callArgs) (any, error) {
	d := NewDict()
	if len(a.list) > 1 {
		return nil, errors.New("dict takes at most one positional argument")
	}
	for _, v := range a.list {
		if from, ok := v.(*Dict); ok {
			for _, k := range from.keys {
				d.set(k, from.m[k])
			}
			continue
		}
		pairs, err := iterate(s, v)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			kv, ok := sequence(p)
			if !ok || len(kv) != 2 {
				return nil, errors.New("dict wants pairs")
			}
			k, err := key(kv[0])
			if err != nil {
				return nil, err
			}
			d.set(k, kv[1])
		}
	}
	for i, name := range a.names {
		d.set(name, a.values[i])
	}
	s.charge(len(d.keys) * 2 * itemBytes)
	return d, nil
}

func raise(s *state, a callArgs) (any, error) {
	v, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return nil, err
	}
	return nil, &Raised{str(s, v[0])}
}

func joiner(s *state, a callArgs) (any, error) {
	v, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	sep, used := any(", "), false
	if v[0] != (missing{}) {
		sep = v[0]
	}
	return function(func(*state, callArgs) (any, error) {
		if used {
			return sep, nil
		}
		used = true
		return "", nil
	}), nil
}

func strftimeNow(s *state, a callArgs) (any, error) {
	v, err := a.bind("strftime_now", 1, "format")
	if err != nil {
		return nil, err
	}
	format, ok := v[0].(string)
	if !ok {
		return nil, errors.New("strftime_now takes a string")
	}
	s.charge(8 * len(format))
	return strftime(s.now, format)
}

// strftime formats t by the C codes templates use.
func strftime(t time.Time, format string) (any, error) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "MST", 'z': "-0700", 'j': "002",
		'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		c, pad := format[i], true
		if c == '-' && i+1 < len(format) { // %-d: no leading zero
			i++
			c, pad = format[i], false
		}
		switch layout, ok := layouts[c]; {
		case c == '%':
			b.WriteByte('%')
		case !ok:
			return nil, fmt.Errorf("strftime_now does not know %%%c", c)
		case pad:
			b.WriteString(t.Format(layout))
		default:
			v := strings.TrimLeft(t.Format(layout), "0 ")
			if v == "" {
				v = "0"
			}
			b.WriteString(v)
		}
	}
	return b.String(), nil
}
