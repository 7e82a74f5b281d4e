#!/usr/bin/env bash
# Checks contrib/prometheus and contrib/grafana with promtool (Debian: apt-get install prometheus): the alert rules,
# their tests, the queries of the dashboard, and what the daemon's own /metrics looks like to it.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v "${PROMTOOL:-promtool}" >/dev/null; then
	echo "prom-check: SKIPPED: promtool is not installed; the rules and the dashboard were not checked with it" >&2
	exit 0
fi
export PROMTOOL="${PROMTOOL:-$(command -v promtool)}"
"$PROMTOOL" check rules contrib/prometheus/uma-serve.rules.yml
"$PROMTOOL" test rules contrib/prometheus/uma-serve.rules.test.yml
CGO_ENABLED=0 go test -count=1 -run 'TestPromtool' ./metrics
echo "prom-check: passed"
