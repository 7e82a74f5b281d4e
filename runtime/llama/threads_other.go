//go:build !linux && !darwin

package llama

func physicalCores() int { return 0 }
