// Package buildinfo identifies the build.
package buildinfo

import "runtime/debug"

// Version is set by the Makefile (git describe); "dev" for a plain `go build`.
var Version = "dev"

// Engine identifies the llama.cpp source of this build: the module that vendors it and its version.
func Engine() string {
	const module = "github.com/ollama/ollama"
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == module {
				return "llama.cpp ec98e2002 (" + module + " " + d.Version + ")"
			}
		}
	}
	return "none"
}
