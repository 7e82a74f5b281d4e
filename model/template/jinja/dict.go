package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// Dict is a mapping that keeps the order its keys came in, as Python's does. It is not modified once made.
type Dict struct {
	keys, vals []any
	index      map[any]int // by hash, once there are more than a few keys
}

// fewKeys is the number of keys up to which a linear search replaces the map: it is faster and much smaller.
const fewKeys = 8

// NewDict makes a dict of alternating keys (strings) and values, in order.
func NewDict(pairs ...any) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.set(fromGo(pairs[i]), fromGo(pairs[i+1]))
	}
	return d
}

// find returns the index of the key with this hash, or -1.
func (d *Dict) find(hash any) int {
	if d.index != nil {
		if i, ok := d.index[hash]; ok {
			return i
		}
		return -1
	}
	text, isText := hash.(string)
	for i, k := range d.keys {
		if t, ok := k.(string); ok {
			if isText && t == text {
				return i
			}
		} else if h, _ := hashOf(nil, k); h == hash {
			return i
		}
	}
	return -1
}

// set adds a string key to a dict that is being made, or to a namespace.
func (d *Dict) set(k, v any) {
	hash, _ := hashOf(nil, k)
	d.put(hash, k, v)
}

func (d *Dict) put(hash, k, v any) {
	if i := d.find(hash); i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	_, slow := hash.(tupleHash)
	switch {
	case d.index != nil:
		d.index[hash] = len(d.keys) - 1
	case slow || len(d.keys) > fewKeys:
		d.index = make(map[any]int, 2*len(d.keys))
		for i, k := range d.keys[:len(d.keys)-1] { // none of them a tuple
			hash, _ := hashOf(nil, k)
			d.index[hash] = i
		}
		d.index[hash] = len(d.keys) - 1
	}
}

// Get returns the value of a string key.
func (d *Dict) Get(key string) (any, bool) {
	if i := d.find(key); i >= 0 {
		return d.vals[i], true
	}
	return nil, false
}

// hashOf is a Go map's key that is equal for keys Python takes for one: 1, 1.0 and True. It is false for values that
// cannot be keys. s is nil where v is known not to be a tuple.
func hashOf(s *state, v any) (any, bool) {
	switch v := v.(type) {
	case nil, string, int64:
		return v, true
	case bool:
		return toInt(v), true
	case markup:
		return string(v), true
	case *big.Int:
		return bigHash(v.String()), true
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			if math.Abs(v) < 1<<62 {
				return int64(v), true
			}
			n, _ := big.NewFloat(v).Int(nil)
			return bigHash(n.String()), true
		}
		return v, true
	case Undefined:
		return Undefined{}, true
	case Tuple:
		b := buffer{s: s}
		ok := b.hash(v)
		return tupleHash(b.String()), ok
	case *rangeValue, *namespace, *loop, *macro, *function, *generator:
		return v, true
	}
	return nil, false
}

// hash writes a text that is the same for equal tuples, and only for them.
func (b *buffer) hash(v Tuple) bool {
	b.s.enter()
	b.put("(")
	for _, x := range v {
		b.s.step()
		if t, ok := x.(Tuple); ok {
			if !b.hash(t) {
				return false
			}
			continue
		}
		h, ok := hashOf(b.s, x)
		if !ok {
			return false
		}
		if t, ok := h.(string); ok {
			b.put("'", strconv.Itoa(len(t)), ":", t)
		} else {
			b.put(fmt.Sprintf("%T:%v,", h, h))
		}
	}
	b.put(")")
	b.s.leave()
	return true
}
