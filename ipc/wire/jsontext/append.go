package jsontext

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendHead appends head, which begins a message up to its id, and the id.
func AppendHead(dst []byte, head, id string) []byte {
	return AppendString(append(dst, head...), id)
}

// AppendInt appends key, which ends with a colon, and a number.
func AppendInt(dst []byte, key string, n int) []byte {
	return strconv.AppendInt(append(dst, key...), int64(n), 10)
}

// AppendMs appends a duration in milliseconds with the three decimals a microsecond needs.
func AppendMs(dst []byte, key string, d time.Duration) []byte {
	return AppendThousandths(append(dst, key...), max(d, 0).Round(time.Microsecond).Microseconds())
}

// AppendThousandths appends n/1000 in its shortest form, n ≥ 0.
func AppendThousandths(dst []byte, n int64) []byte {
	dst = strconv.AppendInt(dst, n/1000, 10)
	frac := n % 1000
	if frac == 0 {
		return dst
	}
	dst = append(dst, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// FromMs is the inverse of AppendMs.
func FromMs(ms float64) time.Duration {
	return time.Duration(math.Round(ms*1000)) * time.Microsecond
}

// AppendFloat32 appends the shortest text that reads back as f. JSON has no infinities: they become the largest finite
// numbers, and NaN 0.
func AppendFloat32(dst []byte, f float32) []byte {
	switch x := float64(f); {
	case math.IsNaN(x):
		f = 0
	case math.IsInf(x, 1):
		f = math.MaxFloat32
	case math.IsInf(x, -1):
		f = -math.MaxFloat32
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}

// ordinary are the bytes that stand for themselves in a JSON string of ours.
var ordinary = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return
}()

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, byte for byte what encoding/json makes of it without HTML escaping:
// invalid UTF-8 becomes U+FFFD, and U+2028 and U+2029 are escaped, which some readers of lines take for ends of
// lines.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if ordinary[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[from:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\b':
				dst = append(dst, '\\', 'b')
			case '\f':
				dst = append(dst, '\\', 'f')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			from = i
			continue
		}
		r, n := decodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[from:i]...), `\ufffd`...)
			from = i + n
		case r == '\u2028', r == '\u2029':
			dst = append(append(dst, s[from:i]...), `\u202`...)
			dst = append(dst, hexDigits[r&15])
			from = i + n
		}
		i += n
	}
	return append(append(dst, s[from:]...), '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	var b [utf8.UTFMax]byte
	return utf8.DecodeRune(b[:copy(b[:], s)])
}
