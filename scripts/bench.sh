#!/usr/bin/env bash
# What serving costs: the daemon against the bare decode loop by type of weights, idle, and along 10,000 requests.
# Arguments go to `uma-bench overhead`.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "## overhead"; bin/uma-bench overhead "$@"
echo; echo "## idle"; bin/uma-bench idle
echo; echo "## memory"; bin/uma-bench memory
echo; echo "## hot path"; go test -run '^$' -bench 'Hot|Step|Token|Greedy|Chain' -benchmem \
	./sched ./sampler ./ipc/wire ./meridian | grep -E '^(Benchmark|pkg)'
