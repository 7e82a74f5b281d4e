//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_probe)

package llama

import "github.com/uma-serve/uma-serve/runtime"

const builtProbe = false

// graphProbe is nothing here: rows are probed on the host.
type graphProbe struct{}

func (e *engine) openProbe(runtime.Options) {}
func (e *engine) readyProbe(int)            {}
func (e *engine) freeProbe()                {}
func (e *engine) beginProbe()               {}

func (e *engine) probesRows() bool { return false }

func (e *engine) probedRow(int) (s runtime.RowStats, ok, probed bool) { return s, false, false }

// ProbedRows implements runtime.RowCounter.
func (e *engine) ProbedRows() runtime.ProbedRows { return runtime.ProbedRows{} }
