package documents

import (
	"os"

	"github.com/uma-serve/uma-serve/internal/host/sandbox"
)

// eaten keeps the memory that eat takes.
var eaten [][]byte

// eat is a process that takes memory without end, under the limits of a real one.
func eat() {
	if err := (sandbox.Limits{Memory: maxMemory, OpenFiles: 64}).Set(); err != nil {
		os.Exit(1)
	}
	for {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		eaten = append(eaten, b)
	}
}
