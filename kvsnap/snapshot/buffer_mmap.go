//go:build unix

package snapshot

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// allocate maps n bytes of fresh memory. Builds with invariants use the Go heap, which the race detector observes.
func allocate(n int) ([]byte, error) {
	if invariants.Enabled {
		return make([]byte, n), nil
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("snapshot buffer of %d bytes: %w", n, err)
	}
	advise(mem)
	return mem, nil
}

func free(mem []byte) {
	if !invariants.Enabled {
		if err := unix.Munmap(mem); err != nil {
			panic("snapshot: munmap: " + err.Error()) // only possible for a slice that is not a mapping
		}
	}
}
