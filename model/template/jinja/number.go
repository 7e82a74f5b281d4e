package jinja

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/model/template/jinja/letters"
	"github.com/uma-serve/uma-serve/model/template/jinja/syntax"
)

// normal is n as an int64 where it fits.
func normal(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// isInt reports whether v is an integer or a bool.
func isInt(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int:
		return true
	}
	return false
}

// bigOf returns an integer of any kind as a big one.
func bigOf(v any) *big.Int {
	if n, ok := v.(*big.Int); ok {
		return n
	}
	i, _ := integer(v)
	return big.NewInt(i)
}

// number is v as a float64, for values Python counts as numbers. A large integer may become infinite.
func number(v any) (f float64, ok bool) {
	switch v := v.(type) {
	case bool:
		return float64(toInt(v)), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	return 0, false
}

// float is number for arithmetic, where an integer beyond the range is an error.
func float(s *state, v any) float64 {
	f, _ := number(v)
	if n, ok := v.(*big.Int); ok {
		if f, _ = new(big.Rat).SetInt(n).Float64(); math.IsInf(f, 0) {
			s.fail("an int is too large for a float")
		}
	}
	return f
}

// compareNumbers compares exactly, which float64 alone does not beyond 2^53.
func compareNumbers(a, b any) (c int, ok bool) {
	if x, ok := a.(int64); ok {
		if y, ok := b.(int64); ok {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	switch {
	case !ok1 || !ok2:
		return 0, false
	case math.IsNaN(x) || math.IsNaN(y):
		return unordered, true
	case isInt(a) && isInt(b):
		return bigOf(a).Cmp(bigOf(b)), true
	case !isInt(a) && !isInt(b) || math.IsInf(x, 0) && !isInt(a) || math.IsInf(y, 0) && !isInt(b):
	case math.Abs(x) >= 1<<53 || math.Abs(y) >= 1<<53:
		return exact(a).Cmp(exact(b)), true
	}
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func exact(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return new(big.Float).SetFloat64(f)
	}
	n := bigOf(v)
	return new(big.Float).SetPrec(uint(max(64, n.BitLen()))).SetInt(n)
}

var errZero = errors.New("division by zero")

// arithmetic is + - * / // % ** between two numbers.
func (s *state) arithmetic(op string, a, b any) any {
	if isInt(a) && isInt(b) {
		if v, ok := smallMath(op, a, b); ok {
			return v
		}
		i, ok1 := integer(a)
		j, ok2 := integer(b)
		switch {
		case ok2 && j == 0 && op != "**" && strings.Contains("//%", op):
			s.fail("%v", errZero)
		case ok1 && ok2 && op == "**":
			return s.power(i, j)
		case ok1 && ok2 && op == "/":
			return float64(i) / float64(j)
		case ok1 && ok2 && j == -1 && op == "%":
			return int64(0)
		case ok1 && ok2 && j == -1 && op == "//" && i != math.MinInt64:
			return -i
		}
		s.fail("arithmetic beyond 64 bits is not supported")
	}
	v, err := floatMath(op, float(s, a), float(s, b))
	if err != nil {
		s.fail("%v", err)
	}
	return v
}

// smallMath computes where operands and result fit 64 bits.
func smallMath(op string, a, b any) (any, bool) {
	i, ok1 := integer(a)
	j, ok2 := integer(b)
	if !ok1 || !ok2 {
		return nil, false
	}
	switch op {
	case "+":
		sum := i + j
		return sum, (sum > i) == (j > 0)
	case "-":
		diff := i - j
		return diff, (diff < i) == (j > 0)
	case "*":
		if i == 0 || j == 0 {
			return int64(0), true
		}
		p := i * j
		return p, p/j == i && (i != -1 || j != math.MinInt64) && (j != -1 || i != math.MinInt64)
	case "/":
		const exact = 1 << 53
		return float64(i) / float64(j), j != 0 && max(i, j) <= exact && min(i, j) >= -exact
	case "//", "%":
		if j == 0 || j == -1 {
			return nil, false
		}
		q, r := i/j, i%j
		if r != 0 && (r < 0) != (j < 0) {
			q, r = q-1, r+j
		}
		if op == "//" {
			return q, true
		}
		return r, true
	}
	return nil, false
}

// power is a ** b.
func (s *state) power(a, b int64) any {
	if b < 0 {
		v, err := floatMath("**", float64(a), float64(b))
		if err != nil {
			s.fail("%v", err)
		}
		return v
	}
	v := any(int64(1))
	for n := any(a); b > 0; b >>= 1 {
		s.step()
		if b&1 == 1 {
			v = s.arithmetic("*", v, n)
		}
		if b > 1 {
			n = s.arithmetic("*", n, n)
		}
	}
	return v
}

func floatMath(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		v := math.Pow(x, y)
		switch {
		case x == 0 && y < 0:
			return nil, errZero
		case x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0):
			return nil, errors.New("complex numbers are not supported")
		case math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0):
			return nil, errors.New("the result of ** is too large for a float")
		}
		return v, nil
	}
	if y == 0 {
		return nil, errZero
	}
	if op == "/" {
		return x / y, nil
	}
	// As CPython: the remainder has the divisor's sign, and // agrees with it.
	r := math.Mod(x, y)
	q := (x - r) / y
	if r != 0 {
		if (y < 0) != (r < 0) {
			r += y
			q--
		}
	} else {
		r = math.Copysign(0, y)
	}
	if op == "%" {
		return r, nil
	}
	if q == 0 {
		return math.Copysign(0, x/y), nil
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f, nil
}

func (s *state) sign(neg bool, v any) any {
	switch v := v.(type) {
	case float64:
		if neg {
			return -v
		}
		return v
	case bool, int64, *big.Int:
		if n, ok := v.(*big.Int); ok {
			if neg {
				return normal(new(big.Int).Neg(n))
			}
			return n
		}
		return s.arithmetic(map[bool]string{true: "-", false: "+"}[neg], int64(0), v)
	case Undefined:
		s.fail("%s", v.message())
	}
	s.fail("a %s has no sign", typeName(v))
	return nil
}

// formatInt is an integer's decimal text.
func (s *state) formatInt(v any) string {
	n, ok := v.(*big.Int)
	if !ok {
		i, _ := integer(v)
		return strconv.FormatInt(i, 10)
	}
	if n.BitLen() > syntax.MaxDigits*10/3 {
		s.limit("digits of an integer", syntax.MaxDigits)
	}
	s.charge(n.BitLen())
	s.scan(64 * n.BitLen())
	t := n.String()
	if len(strings.TrimPrefix(t, "-")) > syntax.MaxDigits {
		s.limit("digits of an integer", syntax.MaxDigits)
	}
	return t
}

// parseInt reads an integer as Python's int(text, base) does.
func (s *state) parseInt(t string, base int) (any, bool) {
	s.scan(8 * len(t))
	t = strings.TrimFunc(t, letters.IsSpace)
	sign := ""
	if t != "" && (t[0] == '-' || t[0] == '+') {
		sign, t = strings.TrimPrefix(t[:1], "+"), t[1:]
	}
	if len(t) > 1 && t[0] == '0' {
		if b := map[byte]int{'b': 2, 'o': 8, 'x': 16}[t[1]|0x20]; b != 0 && (base == b || base == 0) {
			t, base = strings.TrimPrefix(t[2:], "_"), b
		} else if base == 0 && strings.Trim(t, "0_") != "" {
			return nil, false // 007 is no literal
		}
	}
	if base == 0 {
		base = 10
	}
	t = asciiDigits(t)
	if t == "" || t[0] == '_' || t[len(t)-1] == '_' || strings.Contains(t, "__") || t[0] == '-' || t[0] == '+' {
		return nil, false
	}
	t = strings.ReplaceAll(t, "_", "")
	if len(t) > syntax.MaxDigits {
		return nil, false
	}
	if n, err := strconv.ParseInt(sign+t, base, 64); err == nil {
		return n, true
	}
	s.charge(len(t))
	s.scan(64 * len(t))
	n, ok := new(big.Int).SetString(sign+t, base)
	if !ok {
		return nil, false
	}
	return normal(n), true
}

// parseFloat reads a float as Python's float(text) does.
func (s *state) parseFloat(t string) (float64, bool) {
	s.scan(16 * len(t))
	t = asciiDigits(strings.TrimFunc(t, letters.IsSpace))
	for i := range len(t) {
		if t[i] == '_' && (i == 0 || i == len(t)-1 || !syntax.Decimal(t[i-1]) || !syntax.Decimal(t[i+1])) ||
			t[i]|0x20 == 'x' || t[i]|0x20 == 'p' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(t, "_", ""), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

// roundTo is Python's round(v, places): to even, and exact for decimals.
func (s *state) roundTo(v any, places int64) any {
	if isInt(v) {
		if places >= 0 {
			return s.sign(false, v)
		}
		s.fail("round: a precision below 0 is not supported")
	}
	f := v.(float64)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0) || places > 350:
		return f
	case places < 0:
		s.fail("round: a precision below 0 is not supported")
	}
	r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(places), 64), 64)
	return r
}

// truncate is the integer part of a float.
func truncate(s *state, f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		s.fail("%v has no integer value", formatFloat(f))
	}
	if math.Abs(f) < 1<<62 {
		return int64(f)
	}
	n, _ := big.NewFloat(f).Int(nil)
	return normal(n)
}

// formatFloat returns the shortest form that reads back the same, in Python's layout: exponents from 1e16 and below
// 1e-4.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	t := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(t, ".") {
		t += ".0"
	}
	return t
}
