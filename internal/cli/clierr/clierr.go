// Package clierr turns errors of the flag parser, of number parsers and of the file system into sentences for the
// person at the command line: the option or file first, then what it must be. All commands print their errors through
// it, so that no text of Go's libraries reaches a terminal.
package clierr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/pflag"
)

// Flag describes the error of a command line that flags could not parse.
func Flag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var bad *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if row := unknown.GetSpecifiedShortnames(); row != "" {
			return fmt.Errorf("there is no option -%s%s%s", name, inRow(row), suggestLong(flags, row))
		}
		return fmt.Errorf("there is no option --%s%s", name, suggest(flags, name))
	case errors.As(err, &bad):
		return fmt.Errorf("--%s is %q: %w", bad.GetFlag().Name, bad.GetValue(),
			Value(bad.GetFlag(), errors.Unwrap(bad)))
	case errors.As(err, &missing):
		kind, _ := pflag.UnquoteUsage(missing.GetFlag())
		return fmt.Errorf("--%s needs a value: --%s %s", missing.GetFlag().Name, missing.GetFlag().Name,
			strings.ToUpper(kind))
	case errors.As(err, &syntax):
		return fmt.Errorf("%q is not an option; options are written --name VALUE or --name=VALUE",
			syntax.GetSpecifiedFlag())
	}
	return err
}

// inRow names the group of one-letter options that an option was in, unless it was alone.
func inRow(row string) string {
	if len([]rune(row)) < 2 {
		return ""
	}
	return " (in -" + row + ")"
}

// suggestLong finds the long option that was written with one dash.
func suggestLong(flags *pflag.FlagSet, row string) string {
	name, _, _ := strings.Cut(row, "=")
	if len(name) > 1 && flags.Lookup(name) != nil {
		return fmt.Sprintf("; did you mean --%s?", name)
	}
	return ""
}

func suggest(flags *pflag.FlagSet, name string) string {
	near := Nearest(name, FlagNames(flags))
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean --%s?", near)
}

// FlagNames returns the names of flags that --help shows.
func FlagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// Value describes the values of f, where err is the parser's error. An error of this project's value types is returned
// unchanged.
func Value(f *pflag.Flag, err error) error {
	var number *strconv.NumError
	isNumber := errors.As(err, &number)
	kind := f.Value.Type()
	whole := strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint")
	switch {
	case kind == "bool":
		return errors.New("it must be true or false")
	case strings.HasPrefix(kind, "duration"):
		return errors.New("it must be a duration with a unit, such as 500ms, 30s or 5m")
	case isNumber && errors.Is(number.Err, strconv.ErrRange):
		return errors.New("the number is too large")
	case isNumber && whole && strings.HasSuffix(kind, "Slice"):
		return errors.New("it must be a comma-separated list of whole numbers, such as 1,4,16")
	case isNumber && whole:
		return errors.New("it must be a whole number")
	case isNumber && strings.HasSuffix(kind, "Slice"):
		return errors.New("it must be a comma-separated list of numbers, such as 0.5,1,2")
	case isNumber:
		return errors.New("it must be a number")
	}
	return err
}

// Text is err's message, with the sentences of the operating system and of Go's number parsers in it replaced by ours.
func Text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	each(err, func(e error) {
		var ours string
		switch e := e.(type) {
		case *fs.PathError:
			ours = sentence(e.Op, e.Path, e.Err)
		case *os.LinkError:
			ours = sentence(e.Op, e.New, e.Err)
		case *strconv.NumError:
			ours = fmt.Sprintf("%q is not a number", e.Num)
			if errors.Is(e.Err, strconv.ErrRange) {
				ours = fmt.Sprintf("%q is too large a number", e.Num)
			}
		default:
			return
		}
		// A caller that names the file needs it once.
		if path, _, ok := strings.Cut(ours, ": "); ok && strings.Contains(text, path+": "+e.Error()) {
			text = strings.Replace(text, path+": "+e.Error(), ours, 1)
			return
		}
		text = strings.Replace(text, e.Error(), ours, 1)
	})
	return text
}

// each visits err and all that it wraps.
func each(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			each(inner, visit)
		}
	case interface{ Unwrap() error }:
		each(e.Unwrap(), visit)
	}
}

// File is a file error with its sentence as text: for callers that print an error other than through Text, or that know
// the path better than err does (a temporary file's name means nothing to a user). It still wraps err.
func File(path string, err error) error {
	if err == nil {
		return nil
	}
	op, cause := "open", err
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		op, cause = pe.Op, pe.Err
		if path == "" {
			path = pe.Path
		}
	case errors.As(err, &le):
		op, cause = le.Op, le.Err
		if path == "" {
			path = le.New
		}
	}
	return &fileError{sentence(op, path, cause), err}
}

type fileError struct {
	text string
	err  error
}

func (e *fileError) Error() string { return e.text }
func (e *fileError) Unwrap() error { return e.err }

// sentence describes the error of op on path.
func sentence(op, path string, err error) string {
	if path == "" {
		return err.Error()
	}
	return path + ": " + reason(op, path, err)
}

func reason(op, path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// For a new file, the directory is missing.
		if dir := filepath.Dir(path); dir != path {
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				return "there is no directory " + dir
			}
		}
		return "no such file"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, fs.ErrExist):
		return "it already exists"
	case errors.Is(err, syscall.EISDIR):
		return "it is a directory, not a file"
	case errors.Is(err, syscall.ENOTDIR):
		return "part of the path is a file, not a directory"
	case errors.Is(err, syscall.ENOSPC):
		return "no space left on its file system"
	case errors.Is(err, syscall.EROFS):
		return "its file system is read-only"
	case errors.Is(err, syscall.ENAMETOOLONG):
		return "the name is too long"
	case errors.Is(err, syscall.ELOOP):
		return "its symbolic links form a loop"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "too many files are open; raise the limit (ulimit -n)"
	}
	return fmt.Sprintf("%s failed: %v", op, err)
}

// Kind names a file that is not a regular one, "" for a regular file.
func Kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

// Nearest returns the word with the fewest edits from name, "" when none is alike: at most 2, or a third of name's
// letters.
func Nearest(name string, words []string) string {
	if len(name) > 64 {
		return ""
	}
	best, least := "", max(2, len(name)/3)+1
	for _, w := range words {
		if d := levenshtein.ComputeDistance(name, w); d < least {
			best, least = w, d
		}
	}
	return best
}
