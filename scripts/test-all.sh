#!/usr/bin/env bash
# Every test, in the ways a bug could hide from one of them: without cgo, with the race detector and invariants, on the
# real engine, and the types of other systems. Prints one line per package, and which tests were skipped. make test is
# the short one.
#
#   scripts/test-all.sh [plain] [systems] [raced] [engine]     only these stages
set -euo pipefail
cd "$(dirname "$0")/.."
# longest NAME|NAME… LIST prints the packages of LIST, first those that take longest: the names, in their order.
longest() {
	local name
	for name in ${1//|/ }; do grep -E "/$name\$" <<<"$2" || :; done
	grep -vE "/($1)\$" <<<"$2"
}
step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

report=$(mktemp)
trap 'rm -f "$report" "$report."*' EXIT
CGO_ENABLED=0 go build -o "$report" ./internal/testreport
# A package may take four times the ten minutes of go test: beside other programs that compute, the threads of llama.cpp
# wait for each other at barriers. make lint vets.
tests() { go test -vet=off -timeout 40m -json "$@" | "$report"; }

# What is not raced. Without the engine's tags its binding is a stub: llama.cpp is not instrumented, and its waits at
# barriers would take minutes. The packages that import it hold no goroutine, and the daemon is raced on the fake
# engine. The others are packages without a goroutine, whose tests take minutes under the race detector, programs whose
# parts are raced, and tests that read the sources or run scripts.
left_out='/((grammar|model/template/jinja|internal/lint|internal/testutil/crosscheck|sampler|sim/synthetic)(/|$)'
left_out+='|(runtime/llama|runtime/ggufgen|bench|scripts|smoke)(/|$)|cmd/uma-(serve|bench|sim|cli)$'
left_out+='|core$|sched(/cost|/price)?$|kvsnap$|kvsnap/snapshot/(format|index)$|meridian$|meridian/mrdn$|spec$'
left_out+='|sim$|sim/(blis(/|$)|workload$|latency$)|model/(template|toolcall|pdf|gguf)$)'

# Packages whose tests link one of this module's, by the build at hand.
linking() {
	go list -test -f '{{.ImportPath}}|{{join .Deps " "}} ' ./... |
		sed -nE "s#^([^|[ ]*)\.test\|.*/$1[ []+.*#\1#p" | sort -u
}
linked=$(linking '(runtime/llama|testutil/programs)') # the engine, or programs that have it
daemon=$(go list ./daemon)
# Tests of the daemon that draw or answer thousands of times on a goroutine or two: under the race detector half a
# minute each. The stage without cgo runs them.
slow='^Test(DraftModelKeepsTheDistribution|DraftModelChangesNothing|SpeculationKeepsTheDistribution|ForcedCalls'
slow+='|SpeculationChangesNothing|HeadChangesNothing|ToolCallsOfFamilies|ThinkingOfFamilies|HeadedCallsAreHeld'
slow+='|CutCallIsIncompleteOverEachAPI|NullableStringsOverEachAPI|PublishedOutputs)$'
# Such tests of other packages.
computing='^Test(StoreIsBounded|LongLines|Plan|Page|WrapKeepsTheWords|UnknownFieldsAreLoggedOnce'
computing+='|KilledWithAnotherPort)$'
computes='./daemon/api ./daemon/api/openai ./daemon/batches ./internal/cli/ui ./cmd/uma-sim/internal/explore'
computes+=' ./cmd/uma-cli/internal/launch'
# Such tests of packages that link the engine, whose stage runs them with invariants.
repeating='^Test(Kill|PowerFailure)$'
# -tags takes the place of the engine's tags, which make has in GOFLAGS.
raced=invariants${TAGS:+,$TAGS}
# Without the engine tests wait more than they compute: twice as many packages at a time as usual.
many=$(($(getconf _NPROCESSORS_ONLN) * 2))
failed=''

# Packages that are raced, or link the engine, run in those stages only, but for tests that measure allocations or are
# too slow to be raced.
plain() {
	step "without cgo: CGO_ENABLED=0 go test of what is not raced"
	export CGO_ENABLED=0
	local here checked one two
	here=$(go list ./... | grep -E "$left_out" | grep -vxF "$linked" | grep -v '/internal/lint$') # make lint runs it
	checked=$(linking internal/invariants | grep -xF "$here") # they run with their invariants
	# On an engine that computes beside the host. What it allocates is measured below. It ends with await_overlap.
	tests -short -skip '^TestServingAllocatesNothingPerToken$' "$daemon" -args -overlap >"$report.overlap" &
	overlap=$!
	tests -run "$slow" "$daemon" &
	one=$!
	tests -run '^TestCrashesUnderLoad$' ./daemon/front >"$report.front" &
	two=$!
	tests -p "$many" $(longest 'jsonschema|scripts|jinja|uma-cli|template|grammar' \
		"$(grep -vxF "$checked" <<<"$here")") || failed=1
	tests -p "$many" -run "$computing" $computes || failed=1
	tests -p "$many" -tags invariants $(longest 'synthetic|replay' "$checked") || failed=1
	# Invariants allocate, and a cluster with them is slow.
	tests -run 'Allocat|^TestDisaggregationHelpsAnswers$' $checked ./kvsnap/snapshot ./core ./sampler || failed=1
	tests -run "^(TestServingAllocatesNothingPerToken|TestForcedCloses)\$" "$daemon" || failed=1
	wait "$one" || failed=1
	wait "$two" || failed=1
	cat "$report.front"
	unset CGO_ENABLED
}
overlap=''
await_overlap() {
	[ -n "$overlap" ] || return 0
	wait "$overlap" || failed=1
	overlap=''
	cat "$report.overlap"
}

systems() {
	step "other systems: types for darwin and freebsd"
	CGO_ENABLED=0 go build -o "$report.types" ./internal/testutil/crosscheck
	"$report.types" linux/amd64 ./...
	"$report.types" darwin/arm64 ./...
	"$report.types" freebsd/amd64 ./ipc/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./internal/host/mach
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go build -o /dev/null ./cmd/uma-cli
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go vet ./cmd/uma-cli/... ./client/... ./internal/wireclient # with tests
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go build ./client ./models/store ./models/pull ./models/download
	# links libSystem's
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go test -vet=off -c -o /dev/null ./internal/host/mach

	step "build"
	make build
}

raced() {
	step "race detector and invariants"
	# A raced process sleeps for a second before it exits, for what other threads may still report. There are 140 test
	# programs, and some start hundreds of processes.
	export GORACE=atexit_sleep_ms=0
	# The daemon's tests wait most of the time: two halves of them run beside the other packages. What all three need
	# is compiled first, once.
	go test -vet=off -race -tags "$raced" -c -o /dev/null "$daemon"
	local first='^Test[A-M]' one two
	tests -race -tags "$raced" -run "$first" -skip "$slow" "$daemon" &
	one=$!
	tests -race -tags "$raced" -skip "$first|$slow" "$daemon" &
	two=$!
	tests -race -tags "$raced" -run '^TestConcurrentRender$' ./model/template || failed=1
	tests -race -p "$many" -tags "$raced" -skip "$computing|$repeating" $(longest 'front|valkey|ipc|pull|snapshot' \
		"$(go list ./... | grep -vE "$left_out" | grep -vxF "$daemon")") || failed=1
	wait "$one" || failed=1
	wait "$two" || failed=1
}

engine() {
	step "the real engine, end to end"
	local tags=$raced${ENGINE_TAGS:+,$ENGINE_TAGS} real one
	# Of the daemon's tests those that need the engine: the others ran above.
	real=$(sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' $(grep -lE '^//go:build .*llama_engine' daemon/*_test.go) |
		paste -sd'|' -)
	# The programs that several packages run are linked once.
	export TEST_PROGRAMS=$PWD/build/test-programs
	go build -ldflags='-s -w' -o "$TEST_PROGRAMS/" ./cmd/...
	tests -tags "$tags" -run "^($real)\$" "$daemon" &
	one=$!
	tests -tags "$tags" $(longest 'smoke|llama|uma-bench' "$(grep -vxF "$daemon" <<<"$linked")") || failed=1
	wait "$one" || failed=1
}

[ $# -gt 0 ] || set -- plain systems raced engine
for stage in "$@"; do
	case $stage in
	plain | systems | raced | engine) "$stage" ;;
	*) echo "scripts/test-all.sh: $stage is none of plain, systems, raced and engine" >&2 && exit 2 ;;
	esac
	# The tests on an engine that computes beside the host wait for each other: the next stage begins meanwhile.
	[ "$stage" = plain ] && [ "${!#}" != plain ] || await_overlap
	[ -z "$failed" ]
done
step "everything passed"
