#!/usr/bin/env bash
# What uma-sim predicts of decode-sweep, storm and shared-prefix against what this machine's uma-serve does. Arguments
# go to `uma-bench fidelity`. Stop other work first: the daemon's threads wait for each other many times a step.
set -euo pipefail
cd "$(dirname "$0")/.."
busy=$(awk '{print $1}' /proc/loadavg 2>/dev/null || echo 0)
if awk "BEGIN{exit !($busy > 1)}"; then
	echo "load average $busy: something else is running; the real times will not be the daemon's own" >&2
fi
cpu=$(awk -F': ' '/model name/{print $2; exit}' /proc/cpuinfo 2>/dev/null || uname -m)
echo "$(date -u +%F), $(nproc) cores, $cpu"
bin/uma-bench fidelity "$@"
