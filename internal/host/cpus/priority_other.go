//go:build unix && !linux

package cpus

func priority(n int) int { return n }
