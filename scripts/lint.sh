#!/usr/bin/env bash
# The rules of the house: formatting, vet, staticcheck, import rules.
set -euo pipefail
# The tools allocate much and live for seconds: collecting a quarter as often saves a sixth of their time.
export GOGC=${GOGC:-400}
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi
# make has the tags of the engine in GOFLAGS. A plain go build has none, and its own files in their place.
go vet ./...
others=$(git ls-files -z '*.go' | xargs -0 grep -lE '^//go:build .*llama_engine' | xargs -n1 dirname | sort -u |
	grep -vx smoke | sed 's#^#./#') # smoke has no file without the engine
go vet -tags= $others
go tool staticcheck ./...
go test -count=1 ./internal/lint
