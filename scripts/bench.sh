#!/usr/bin/env bash
# The cost of serving: the daemon against the bare decode loop by type of weights, idle, along 10,000 requests, and the
# operations of the hot path. Arguments go to `uma-bench overhead`.
set -euo pipefail
cd "$(dirname "$0")/.."
benchmarks() { go test -run '^$' "$@" | grep -E '^(Benchmark|pkg| )'; }
echo "## overhead"; bin/uma-bench overhead "$@"
echo; echo "## idle"; benchmarks -bench IdleConnections -benchtime 1000x ./smoke
echo; echo "## memory"; benchmarks -bench Memory -benchtime 10000x ./smoke
echo; echo "## hot path"; benchmarks -bench 'Hot|Step|Token|Greedy|Chain' -benchmem \
	./sched ./sampler ./ipc/wire ./meridian
