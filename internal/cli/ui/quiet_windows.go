package ui

import "os"

// Quiet does nothing: a console of Windows shows the keys that are typed meanwhile.
func Quiet(_ *os.File, _, _ func()) (restore func()) { return func() {} }

// foreground reports true: a console has no jobs.
func foreground(*os.File) bool { return true }
