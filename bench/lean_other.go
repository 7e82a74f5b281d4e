//go:build !linux

package bench

import "errors"

// RunClient needs epoll.
func RunClient(ClientJob) ([][]int64, error) {
	return nil, errors.New("the overhead benchmark's client runs on Linux only")
}
