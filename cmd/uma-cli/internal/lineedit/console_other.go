//go:build !unix

package lineedit

import (
	"errors"
	"os"
)

// openConsole fails: the callers read plain lines here, which the system's own console edits.
func openConsole(_, _ *os.File) (terminal, error) { return nil, errors.ErrUnsupported }
