//go:build !linux

package sysmon

import "time"

// Slack does nothing where the kernel has no timer slack.
func Slack(time.Duration) error { return nil }
