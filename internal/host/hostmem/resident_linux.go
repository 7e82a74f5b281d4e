package hostmem

import (
	"fmt"
	"os"
)

// Resident returns this process's resident set in bytes; 0 = unknown.
func Resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if n, _ := fmt.Sscan(string(b), &size, &resident); n != 2 {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
