#!/usr/bin/env bash
# Run every fuzz target for a while: scripts/fuzz.sh 30s
set -euo pipefail
duration=${1:-30s}
go list -f '{{.Dir}}' ./... | while read -r dir; do
	grep -hoE '^func (Fuzz[A-Za-z0-9_]+)' "$dir"/*_test.go 2>/dev/null | awk '{print $2}' | while read -r target; do
		printf '== %s %s\n' "${dir#"$PWD"/}" "$target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" -fuzzminimizetime 10x "$dir"
	done
done
