//go:build !linux

package polite

import "time"

// Process does nothing where there is no such class.
func Process() error { return nil }

// Thread does nothing where there is no such class.
func Thread(int) error { return nil }

// Sysmon does nothing where the kernel has no timer slack.
func Sysmon(time.Duration) error { return nil }
