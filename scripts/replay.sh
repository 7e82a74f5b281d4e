#!/usr/bin/env bash
# Replays the reference workload in virtual time, policy by policy, and compares each report with the recorded one in
# bench/replay/testdata/recorded. Both, and the comparison, lie in build/replay afterwards. Exit status 1 when a metric
# differs by more than TOLERANCE percent, for the better or the worse.
#
# --record writes the recorded reports anew: for a release, and with a change that is meant to move them.
set -euo pipefail
cd "$(dirname "$0")/.."
tolerance=${TOLERANCE:-5}
recorded=bench/replay/testdata/recorded
out=build/replay
bench=${BIN:-bin}/uma-bench
[ -x "$bench" ] || make -s uma-bench
case "${1:-}" in
"" | --record) ;;
*)
	echo "usage: scripts/replay.sh [--record]" >&2
	exit 2
	;;
esac

# Steps of a small model on a laptop, a pool in which thoughts are evicted, both classes, thoughts that end early.
load=(--mode replay --workload synthetic --requests 200 --repeats 2 --arrival-rate 0.6 --background-ratio 0.25
	--cells 20000 --decoder "step=4300,prefill=400,think=300,output=300")
mkdir -p "$out"
failed=0
for policy in stock uma meridian; do
	"$bench" run "${load[@]}" --name "$policy" --sides "$policy:early-exit=both" --quiet \
		--out-dir "$out/$policy" >"$out.log" 2>&1 || { cat "$out.log" >&2; exit 1; }
	if [ "${1:-}" = --record ]; then
		mkdir -p "$recorded"
		cp "$out/$policy/report.json" "$recorded/$policy.json"
		echo "recorded $recorded/$policy.json"
		continue
	fi
	cp "$recorded/$policy.json" "$out/$policy/recorded.json"
	"$bench" compare "$recorded/$policy.json" "$out/$policy/report.json" --changed --fail-over "$tolerance" \
		--out-dir "$out/$policy/compared" >"$out.log" 2>&1 || {
		failed=1
		sed -n '/^uma-bench:/,$p' "$out.log" >&2
	}
done
rm -f "$out.log"
if [ "$failed" = 1 ]; then
	cat >&2 <<-END

		The replay of this tree differs from the recorded one by more than $tolerance %. It is deterministic, so a
		change of the code did it. Both reports and the comparison are in $out. If the change is meant, record the
		reports anew and commit them with it: scripts/replay.sh --record
	END
	exit 1
fi
[ "${1:-}" = --record ] || echo "the replays of three policies are within $tolerance % of the recorded ones: $out"
