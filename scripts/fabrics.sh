#!/usr/bin/env bash
# scripts/fabrics.sh [MODEL…]: TTFT of prompts that memory, disk, Valkey, Mooncake Store and NIXL have, against
# computing them, and what each fabric moves a second. MODEL is of models.lock; ROUNDS=5 takes more rounds than 3.
# Installs the stores below build/; wants redis-server or valkey-server on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- smollm2-135m
# shellcheck source=/dev/null
. <(make -s env)
mooncake=$(scripts/mooncake.sh build/mooncake) nixl=$(scripts/nixl.sh build/nixl)
export "${mooncake?}" "${nixl?}"
for model; do
	echo "## $model, load $(cut -d' ' -f1-3 /proc/loadavg)"
	echo "| store | tokens from there | TTFT of ~1,024 tokens, ms | tokens from there | TTFT of ~8,192 tokens, ms |"
	UMA_FABRIC_TABLE=$model UMA_FABRIC_ROUNDS=${ROUNDS:-3} go test -vet=off -count=1 -timeout 3h ./smoke \
		-run TestFabricTable -v | grep -E '^\||^ +[a-z].*_test.go|^(---|FAIL|ok)'
done
echo "## bytes a second, load $(cut -d' ' -f1-3 /proc/loadavg)"
for package in valkey mooncake nixl/agent; do
	go test -vet=off -run '^$' -bench '/(push|pull)/(1MiB|32MiB)' "-count=${ROUNDS:-3}" "./meridian/fabric/$package" |
		grep MB/s || true
done
