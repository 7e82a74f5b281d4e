package jinja

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// Tuple is Python's tuple: a list that prints in parentheses.
type Tuple []any

// markup is text that counts as escaped: what the safe and escape filters make.
type markup string

// Undefined is the value of a name that is not set. It prints as nothing, is false, and access to its members is an
// error.
type Undefined struct {
	Name   string
	reason string // why it is undefined, when the name alone does not say
}

func (u Undefined) message() string {
	if u.reason != "" {
		return u.reason
	}
	return u.Name + " is undefined"
}

type (
	tupleHash string
	bigHash   string
)

// namespace is the one thing templates may write to, through {% set ns.x = … %}.
type namespace struct{ vars *Dict }

// function is anything else a template can call.
type function struct {
	name string
	call func(s *state, a *callArgs) any
}

// dictView is the result of keys(), values() and items(): not a list, and printed as a view.
type dictView struct {
	of   *Dict
	kind string // "keys", "values" or "items"
}

func (v dictView) at(i int) any {
	switch v.kind {
	case "keys":
		return v.of.keys[i]
	case "values":
		return v.of.vals[i]
	}
	return Tuple{v.of.keys[i], v.of.vals[i]}
}

// group is an item of groupby's result: a pair whose parts have names.
type group struct {
	grouper any
	list    []any
}

// rangeValue is Python's range, which holds no list.
type rangeValue struct{ start, stop, step, length int64 }

func (r *rangeValue) at(i int64) any { return r.start + i*r.step }

// Size returns the bytes of text in v and in all that it holds, as a caller counts them who sets Limits.
func Size(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for _, x := range v {
			n += 16 + Size(x)
		}
	case *Dict:
		for i, x := range v.vals {
			n += 16 + Size(v.keys[i]) + Size(x)
		}
	case map[string]any:
		for k, x := range v {
			n += 16 + len(k) + Size(x)
		}
	}
	return n
}

// fromGo converts what a caller passes in: JSON-like Go values.
func fromGo(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case float32:
		return float64(v)
	case float64: // a decoded JSON number; Python would have read 1 as an integer
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
		return v
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(string(v), 10); ok && len(v) <= syntax.MaxDigits {
			return n
		}
		f, _ := v.Float64()
		return f
	case nil, bool, int64, string, *Dict, Tuple, Undefined, *big.Int:
		return v
	case []string:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = x
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = fromGo(x)
		}
		return list
	case map[string]any:
		d := NewDict()
		for _, k := range slices.Sorted(maps.Keys(v)) {
			d.set(k, fromGo(v[k]))
		}
		return d
	}
	return fmt.Sprint(v)
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string, markup:
		return "string"
	case []any:
		return "list"
	case Tuple, *group:
		return "tuple"
	case *Dict:
		return "dict"
	case dictView:
		return "dict_" + v.kind
	case *rangeValue:
		return "range"
	case *generator:
		return "generator"
	case *namespace:
		return "namespace"
	case *loop:
		return "loop"
	case *macro:
		return "macro"
	case Undefined:
		return "undefined value"
	}
	return "function"
}

// text returns the characters of a string, escaped or not.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}
