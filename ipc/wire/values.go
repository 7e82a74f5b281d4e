package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// float reads a number of lo…hi, as the float32 nearest to what was written.
func (d *decoder) float(name string, v *fastjson.Value, lo, hi float64, dst *float32) error {
	must := func() string { return fmt.Sprintf("a number of %g…%g", lo, hi) }
	if v.Type() != fastjson.TypeNumber {
		return wrongType(name, v, must())
	}
	f, err := strconv.ParseFloat(d.p.json.Number(v), 32)
	if err != nil || f < float64(float32(lo)) || f > float64(float32(hi)) {
		return outOfRange(name, d.p.json.Number(v), must())
	}
	*dst = float32(f)
	return nil
}

// integer reads an integer of lo…hi. 100.0 and 1e2 are integers too: some languages write every number so.
func (d *decoder) integer(name string, v *fastjson.Value, lo, hi int64) (int64, error) {
	must := func() string { return fmt.Sprintf("an integer of %d…%d", lo, hi) }
	if v.Type() != fastjson.TypeNumber {
		return 0, wrongType(name, v, must())
	}
	s := d.p.json.Number(v)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64)
		n = int64(f)
		if ferr != nil || f < -1<<53 || f > 1<<53 || float64(n) != f {
			return 0, outOfRange(name, s, must())
		}
	}
	if n < lo || n > hi {
		return 0, outOfRange(name, s, must())
	}
	return n, nil
}

// count is integer for an int.
func (d *decoder) count(name string, v *fastjson.Value, lo, hi int) (int, error) {
	n, err := d.integer(name, v, int64(lo), int64(hi))
	return int(n), err
}

// milliseconds reads a time of 0…MaxSLOMs, to the microsecond.
func (d *decoder) milliseconds(name string, v *fastjson.Value) (time.Duration, error) {
	must := func() string { return fmt.Sprintf("a number of 0…%d milliseconds (0 = none)", MaxSLOMs) }
	if v.Type() != fastjson.TypeNumber {
		return 0, wrongType(name, v, must())
	}
	ms, err := strconv.ParseFloat(d.p.json.Number(v), 64)
	if err != nil || ms < 0 || ms > MaxSLOMs {
		return 0, outOfRange(name, d.p.json.Number(v), must())
	}
	return jsontext.FromMs(ms), nil
}

func (d *decoder) boolean(name string, v *fastjson.Value, dst *bool) error {
	b, err := v.Bool()
	if err != nil {
		return wrongType(name, v, "true or false")
	}
	*dst = b
	return nil
}

// str returns a copy of a string.
func (d *decoder) str(name string, v *fastjson.Value) (string, error) {
	b, err := v.StringBytes()
	if err != nil {
		return "", wrongType(name, v, "a string")
	}
	return string(b), nil
}

// entry returns the name of an element of an array, for errors.
func entry(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

func wrongType(name string, v *fastjson.Value, must string) error {
	return fmt.Errorf("field %q is %s; it must be %s", name, jsontext.TypeName(v), must)
}

func outOfRange(name, is, must string) error {
	if len(is) > 40 {
		is = is[:40] + "…"
	}
	return fmt.Errorf("field %q is %s; it must be %s", name, is, must)
}

// quoted returns a client's string for an error message, quoted and shortened.
func quoted(b []byte) string {
	if len(b) > 40 {
		return strconv.Quote(string(bytes.ToValidUTF8(b[:40], nil))) + "…"
	}
	return strconv.Quote(string(b))
}

// isInteger reports whether b, a number that the scanner has accepted, has only digits after an optional minus.
func isInteger(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte{'-'})
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}
