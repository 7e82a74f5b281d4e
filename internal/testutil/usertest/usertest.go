// Package usertest makes TCP connections of several users, for tests that run as root on Linux.
package usertest

// Two users that no machine has.
const (
	A uint32 = 54321
	B uint32 = 54322
)
