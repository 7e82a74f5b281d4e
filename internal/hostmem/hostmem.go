// Package hostmem says how much memory this machine can give a model.
package hostmem

// Memory of the machine, in bytes. 0 = the system does not say.
type Memory struct {
	Total     uint64 `json:"total_bytes"`     // installed, or what the container may use
	Available uint64 `json:"available_bytes"` // that programs can take now without pushing others out
}
