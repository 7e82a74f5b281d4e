package daemon

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// FlagError says what is wrong with a command line that fs could not parse, in words that tell what to write instead.
func FlagError(fs *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		return fmt.Errorf("there is no option --%s%s", unknown.GetSpecifiedName(), didYouMean(unknown.GetSpecifiedName(), flagNames(fs)))
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		return fmt.Errorf("--%s is %q: %w", bad.GetFlag().Name, bad.GetValue(), wanted(bad.GetFlag(), errors.Unwrap(bad)))
	}
	return err
}

// wanted is err, which f's Set returned; where that is a parser's, what the option takes.
func wanted(f *pflag.Flag, err error) error {
	var number *strconv.NumError
	switch f.Value.Type() {
	case "int", "float64":
		switch {
		case !errors.As(err, &number):
		case errors.Is(number.Err, strconv.ErrRange):
			return errors.New("it is too large")
		case f.Value.Type() == "int":
			return errors.New("it must be a whole number")
		default:
			return errors.New("it must be a number")
		}
	case "bool":
		return errors.New("it must be true or false")
	case "duration":
		return errors.New("it must be a time such as 500ms, 30s or 5m")
	}
	return err
}
