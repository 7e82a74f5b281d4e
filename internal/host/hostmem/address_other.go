//go:build !linux

package hostmem

// AddressSpace reports no limit: these systems have none, or do not report the use.
func AddressSpace() (limit, used uint64, limited bool) { return 0, 0, false }
