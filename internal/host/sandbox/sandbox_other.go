//go:build !linux || !(amd64 || arm64)

package sandbox

import "errors"

// Enter confines nothing: this system has neither Landlock nor seccomp.
func Enter(Policy) (State, error) {
	return State{Missing: []string{"Landlock and seccomp: this system has neither"}}, nil
}

// Supervise is for systems with seccomp.
func Supervise(int, Policy, func(Denial)) error { return errors.ErrUnsupported }
