#!/usr/bin/env bash
# The quick loop: what can be known within a minute of an edit. `make test` adds the real engine and the
# built programs end to end, `make test-all` the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; }

began=$SECONDS
step "build"
make -s build
step "gofmt, vet, staticcheck, import rules"
scripts/lint.sh
step "unit tests, on the fake engine"
CGO_ENABLED=0 go test -short ./...
printf '\nchecked in %d s\n' $((SECONDS - began))
