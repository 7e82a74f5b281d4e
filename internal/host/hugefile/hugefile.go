// Package hugefile brings a file that is mapped for long, a model's weights, into huge pages of the page cache.
//
// Each step of a model reads all of its weights. In pages of 4 KiB a processor looks up an address every 64 lines, and
// one that is slow at that decodes up to 1.8 times as fast from pages of 2 MiB (docs/lab/kernels.md). Linux keeps a
// file in the pages in which it was first read or written: in huge ones where a large piece was read at once, on file
// systems that have them (XFS since 5.18, ext4 since 6.16), in small ones behind a download. Mapping the file again
// changes nothing, so what lies in small pages is dropped from the cache and read again, for a limited time.
package hugefile

import "time"

const (
	// Smallest is the size from which on a file is worth it, in bytes: weights that fit into the caches of a processor
	// are not looked for in memory.
	Smallest = 32 << 20
	// Limit bounds the time for which a file is read again. What is left stays in small pages.
	Limit = 15 * time.Second
)

// Pages are the bytes of a file, by what Read found and did.
type Pages struct {
	File  int64 // size of the file
	Huge  int64 // of it in huge pages now
	Again int64 // that were read again
}

// Options of Read.
type Options struct {
	Limit time.Duration // for reading again; 0 = none of it is
	// Progress is called with the share of the file that is done; it returns false to stop Read, which is no error.
	Progress func(share float32) bool
}
