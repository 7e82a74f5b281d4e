// Package hostmem reads the machine's memory and its limits.
package hostmem

// Memory is the machine's memory in bytes; 0 = unknown.
type Memory struct {
	Total     uint64 `json:"total_bytes"`     // installed, or the container's limit
	Available uint64 `json:"available_bytes"` // available to programs without swapping
}
