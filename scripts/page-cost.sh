#!/usr/bin/env bash
# What an open live view costs the daemon: under a storm of requests, the CPU time of its threads that compute nothing
# (poller, intake, HTTP, Go's runtime), with a view open and without, in turns. Fails above 1 % of a core.
# Usage: scripts/page-cost.sh [SECONDS]; ten minutes unless given.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
bin=${BIN:-bin}
if ! [ -x "$bin/uma-serve" ]; then
	echo "page-cost: $bin/uma-serve is missing: make uma-serve" >&2
	exit 1
fi
dir=$(mktemp -d)
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
"$bin/uma-serve" --socket "$dir/s" >"$dir/log" 2>&1 &
daemon=$!
pids+=("$daemon")
until curl -sf --unix-socket "$dir/s" http://uma/health >/dev/null; do
	kill -0 "$daemon" || { cat "$dir/log" >&2; exit 1; }
	sleep 0.2
done
# Eight clients ask one question after the other; two paste long prompts.
client() {
	while printf '{"messages":[{"role":"user","content":"%sWhat is %d + %d?"}]}' "$1" $RANDOM $RANDOM |
		curl -s --unix-socket "$dir/s" -H 'Content-Type: application/json' -d @- \
			http://uma/v1/chat/completions >/dev/null; do :; done
}
long=$(printf 'Read this line %d. ' {1..60})
for i in 1 2 3 4 5 6 7 8 9 10; do
	client "$([ "$i" -gt 8 ] && echo "$long")" &
	pids+=($!)
done
# cpu prints "TID TICKS" for each thread of the daemon: of its front and of its engine process.
cpu() {
	local p
	for p in "$daemon" $(cat /proc/"$daemon"/task/*/children); do
		awk '{tid = $1; sub(/^.*\) /, ""); print tid, $12 + $13}' /proc/"$p"/task/*/stat 2>/dev/null
	done
}
sleep 20
# Threads with more than a tenth of all CPU time compute; they are left out in every phase.
cpu | awk '{t[$1] = $2; sum += $2} END {for (i in t) if (t[i] > sum / 10) print i}' >"$dir/computing"
quiet() { cpu | awk -v f="$dir/computing" 'BEGIN {while ((getline id < f) > 0) skip[id] = 1}
	!($1 in skip) {n += $2} END {print n + 0}'; }
hertz=$(getconf CLK_TCK)
measure() {
	local before after
	before=$(quiet)
	sleep "$phase"
	after=$(quiet)
	awk -v d=$((after - before)) -v h="$hertz" -v s="$phase" 'BEGIN {printf "%.4f\n", d / h / s * 100}'
}
# Phases of ten seconds in turns, the first with a view and the first without by turns too, so that a machine whose
# speed drifts is the same for both; the median of the pairs' differences is the cost.
phase=10
for ((pair = 0; pair < seconds / 20; pair++)); do
	for side in $((pair % 2)) $((1 - pair % 2)); do
		if [ "$side" = 0 ]; then
			without=$(measure)
			continue
		fi
		curl -sN --unix-socket "$dir/s" http://uma/live >"$dir/events" &
		view=$!
		with=$(measure)
		kill "$view"
		wait "$view" 2>/dev/null || true
		[ -s "$dir/events" ] || { echo "page-cost: the live view sent nothing" >&2; exit 1; }
	done
	echo "$without $with" | awk '{print $2 - $1, $1, $2}' >>"$dir/pairs"
done
sort -g "$dir/pairs" | awk '{d[NR] = $1; n = NR; a += $2; b += $3} END {
	q = int((n + 3) / 4)
	printf "percent of a core in threads that compute nothing, %d pairs: without a view %.2f, with one %.2f (means)\n",
		n, a / n, b / n
	x = n % 2 ? d[(n + 1) / 2] : (d[n / 2] + d[n / 2 + 1]) / 2
	printf "a view costs %.3f %% of a core (median; quartiles %.3f and %.3f; at most 1 %%)\n", x, d[q], d[n + 1 - q]
	exit x > 1}'
