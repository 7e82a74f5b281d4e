//go:build !linux || !cgo || !(amd64 || arm64)

package agent

import "errors"

func openLibrary(string, string, int64) (transport, error) {
	return nil, errors.New("this build cannot load NIXL: it needs Linux on amd64 or arm64, and cgo")
}
