//go:build !unix

package cpus

import "time"

func usage() (own time.Duration, switches int64) { return Unknown, Unknown }

func niced() bool { return false }
