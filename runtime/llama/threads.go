package llama

import (
	goruntime "runtime"

	"github.com/uma-serve/uma-serve/internal/host/cpus"
)

// defaultThreads returns the number of compute threads that suit this machine (cpus.Topology.Threads), and no more than
// Go was told to use.
func defaultThreads() int {
	t := cpus.ReadTopology()
	return min(t.Threads(), allowedByGo)
}

// allowedByGo is GOMAXPROCS as the runtime chose it at start, before any program changes it.
var allowedByGo = goruntime.GOMAXPROCS(0)
