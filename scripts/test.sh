#!/usr/bin/env bash
# Every package's tests, once, with the engine linked where a package needs it, and the built programs end to end.
# -short leaves out tests, and repetitions of tests, that take longer than some seconds. Those, the race detector,
# invariants, the build without cgo and other systems are scripts/test-all.sh's, which .ci/run and make ci run.
set -euo pipefail
cd "$(dirname "$0")/.."
report=$(mktemp)
trap 'rm -f "$report" "$report."*' EXIT
CGO_ENABLED=0 go build -o "$report" ./internal/testreport
tests() { go test -vet=off -short -timeout 40m -json "$@" | "$report"; }

# Packages whose tests link the engine, or run it, compute. The others mostly wait. The packages that take longest go
# first.
engine=$(go list -test -f '{{.ImportPath}}|{{join .Deps " "}} ' ./... |
	sed -nE 's#^([^|[ ]*)\.test\|.*/(runtime/llama|testutil/programs)[ []+.*#\1#p' | sort -u)
rest=$(go list ./... | grep -vxF "$engine")
daemon=$(go list ./daemon)
longest() {
	local name
	for name in ${1//|/ }; do grep -E "/$name\$" <<<"$2" || :; done
	grep -vE "/($1)\$" <<<"$2"
}
failed=''
# The daemon's tests take longest and mostly wait: two halves of them, linked once, run beside all others.
first='^Test[A-M]'
go test -vet=off -c -o "$report.daemon" "$daemon"
half() {
	(cd daemon && go tool test2json -t -p "$daemon" "$report.daemon" -test.v=test2json -test.paniconexit0 -test.short \
		-test.timeout=40m "$@") | "$report"
}
alone='^TestServingAllocatesNothingPerToken$' # a runtime that waits for a processor allocates
half -test.run "$first" >"$report.first" &
one=$!
half -test.skip "$first|$alone" >"$report.second" &
two=$!
# Of the others those that wait run beside those that compute.
tests -p $(($(getconf _NPROCESSORS_ONLN) + 1)) \
	$(longest 'front|scripts|pull|ipc|valkey|template|jinja|jsonschema|replay' "$rest") >"$report.rest" &
waiting=$!
# The programs that several packages run are linked once.
programs=$PWD/build/test-programs
go build -ldflags='-s -w' -o "$programs/" ./cmd/... && export TEST_PROGRAMS=$programs || failed=1
tests -p 2 $(longest 'llama|smoke|archs|uma-bench' "$(grep -vxF "$daemon" <<<"$engine")") || failed=1
for part in "$waiting rest" "$one first" "$two second"; do
	wait "${part% *}" || failed=1
	cat "$report.${part#* }"
done
half -test.run "$alone" || failed=1
[ -z "$failed" ]
