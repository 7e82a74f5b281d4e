#!/usr/bin/env bash
# Every test, in the ways a bug could hide from one of them. Prints one line per package, and which tests were skipped.
set -euo pipefail
step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

report=$(mktemp)
trap 'rm -f "$report"' EXIT
CGO_ENABLED=0 go build -o "$report" ./internal/testreport
# A package may take four times the ten minutes of go test: beside other programs that compute, the threads of llama.cpp
# wait for each other at barriers.
tests() { go test -timeout 40m -json "$@" | "$report"; }

# Without the engine tests wait more than they compute: twice as many packages at a time as usual.
many=$(($(getconf _NPROCESSORS_ONLN) * 2))
step "the stub engine: CGO_ENABLED=0 go test ./..."
CGO_ENABLED=0 tests -p "$many" ./...

step "other systems: vet for darwin and freebsd"
GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go test -c -o /dev/null ./internal/mach # links what is of libSystem
GOOS=freebsd CGO_ENABLED=0 go vet ./ipc/...

step "build"
make build

# llama.cpp itself is not compiled a second time for the race detector: the packages that import it hold no
# goroutine, and the daemon is raced on the fake engine. Left out as well: pure packages without a goroutine whose tests
# take minutes under the race detector, and the tests that read the sources.
left_out='/((grammar/jsonschema|internal/jinja|internal/lint|sampler|sim/synthetic|runtime/llama|runtime/ggufgen)(/|$)'
left_out+='|(cmd/uma-serve|cmd/uma-bench|bench|smoke)(/|$)|sim$)'
# make ENGINE=… has tags, which -tags would take the place of.
tags=invariants${ENGINE_TAGS:+,$ENGINE_TAGS}
step "race detector and invariants"
tests -race -tags "$tags" -p "$many" $(go list ./... | grep -vE "$left_out")

# Packages whose tests link llama.cpp, and those left out above that hold invariants: the others are the same programs
# as before.
linking() {
	go list -test -f '{{.ImportPath}}|{{join .Deps " "}} ' ./... |
		sed -nE "s#^([^|[ ]*)\.test\|.*/$1[ []+.*#\1#p"
}
step "the real engine, end to end"
tests -tags "$tags" $({ linking runtime/llama; linking internal/invariants | grep -E "$left_out"; } | sort -u)

step "everything passed"
