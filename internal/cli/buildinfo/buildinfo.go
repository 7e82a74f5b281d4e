// Package buildinfo identifies the build.
package buildinfo

// Version is set by the Makefile (git describe); "dev" for a plain `go build`.
var Version = "dev"

// Engine identifies the llama.cpp of this build. runtime/llama sets it when the program starts; "none" in a program
// without it.
var Engine = "none"

// ReleaseURL and ReleaseKey are where the release of this build is and the key that signs it, for uma-cli upgrade.
// scripts/package.sh sets them from RELEASE_URL and RELEASE_KEY; empty in a build from source.
var ReleaseURL, ReleaseKey string
