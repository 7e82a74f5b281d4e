#!/usr/bin/env bash
# The rules of the house: formatting, vet, staticcheck, import rules.
set -euo pipefail
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted" >&2
	exit 1
fi
go vet ./...
go tool staticcheck ./...
go test -count=1 ./internal/lint
