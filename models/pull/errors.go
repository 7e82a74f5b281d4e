package pull

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
)

// Kinds of errors. Every error of Pull wraps one.
var (
	ErrOffline     = errors.New("the network is switched off")
	ErrName        = errors.New("no name of a model")
	ErrNotFound    = errors.New("not found")
	ErrAccess      = errors.New("no access")
	ErrMemory      = errors.New("nothing fits in memory")
	ErrSpace       = errors.New("not enough disk space")
	ErrNetwork     = errors.New("the network or the server failed")
	ErrServer      = errors.New("the server's answer is not usable")
	ErrRefused     = errors.New("refused host")
	ErrCorrupt     = errors.New("the file is not what its listing says")
	ErrInterrupted = errors.New("interrupted")
	ErrFile        = errors.New("file error")
)

// Error is the failure of a pull, with its cause and a remedy in words.
type Error struct {
	Kind error  // one of the errors above
	What string // what happened, with the name, the host or the file
	Do   string // what the user can do about it
	Err  error  // the cause; nil when What says it all
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.What + "; " + e.Do
	}
	return fmt.Sprintf("%s: %s; %s", e.What, clierr.Text(e.Err), e.Do)
}

func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// fileError is a file system's error: the text names the path.
func fileError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &Error{Kind: ErrSpace, What: "the disk, or your quota on it, is full", Err: err,
			Do: "free some space and pull again: what is here is kept"}
	}
	return &Error{Kind: ErrFile, What: "the models folder cannot be written", Err: err,
		Do: "choose another one with --models-dir, or correct its permissions"}
}
