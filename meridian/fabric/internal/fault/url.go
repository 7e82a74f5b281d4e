package fault

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// ParseURL parses the URL of a fabric and its options. The error does not contain the URL, which may hold a password.
func ParseURL(raw string) (*url.URL, url.Values, error) {
	u, err := url.Parse(raw)
	if err != nil {
		if reason := (*url.Error)(nil); errors.As(err, &reason) {
			err = reason.Err
		}
		return nil, nil, err
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, fmt.Errorf("options: %w", err)
	}
	return u, options, nil
}

// SetOptions calls set with the value of each option. An option that is given more than once is an error.
func SetOptions(options url.Values, set func(name, value string) error) error {
	for name, values := range options {
		if len(values) > 1 {
			return fmt.Errorf("option %s is given %d times", name, len(values))
		}
		if err := set(name, values[0]); err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
	}
	return nil
}

// ParseBytes reads "4096", "64KiB", "256MiB" or "2GiB".
func ParseBytes(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size; want bytes, or a number with KiB, MiB or GiB", s)
	}
	return n << shift, nil
}

// ParseSize reads a size of least to most bytes.
func ParseSize(s string, least, most int64) (int64, error) {
	n, err := ParseBytes(s)
	if err == nil && (n < least || n > most) {
		err = fmt.Errorf("%s is outside of %d to %d bytes", s, least, most)
	}
	return n, err
}
