#!/usr/bin/env bash
# Run every fuzz target for a while, one on each processor: scripts/fuzz.sh [DURATION] [PACKAGE…], for example
# scripts/fuzz.sh 30s ./ipc/wire
# DURATION is go test's -fuzztime: 30s, or 1000x for so many inputs. An input that fails is kept below the package's
# testdata/fuzz, where every later `go test` tries it: mend the code and commit the file with it.
# UNGUIDED=1 leaves out the instrumentation for coverage, for which every package is compiled again: enough for a
# moment.
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:-30s}
[ $# -gt 0 ] && shift
[ $# -eq 0 ] && set -- ./...
root=$PWD
cache=$(go env GOCACHE)/fuzz
build=$(mktemp -d "${TMPDIR:-/tmp}/uma-fuzz.XXXXXX")
trap 'rm -rf "$build"' EXIT
touch "$build/ran" "$build/failed"

# fuzz_package PACKAGE: its targets, one after the other. What ran and what failed is noted in $build.
# CGO_ENABLED=0: instrumenting for coverage would compile llama.cpp again. What tests C code is built as it is for
# users, without instrumentation, which C code does not have anyway.
fuzz_package() {
	set -euo pipefail
	local package=$1 dir name tmp sources targets target plain='' with_c='' guided='' binary status said
	name=.${package#"$module"}
	dir=$root${name#.}
	mapfile -t sources < <(grep -lE '^func Fuzz[A-Za-z0-9_]+\(' "$dir"/*_test.go 2>/dev/null || true)
	[ ${#sources[@]} -eq 0 ] && return
	mapfile -t targets < <(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "${sources[@]}" | sort)
	tmp=$(mktemp -d "$build/XXXXXX")
	[ -n "${UNGUIDED:-}" ] || guided=-fuzz=.
	if ! CGO_ENABLED=0 go test -vet=off -c $guided -o "$tmp/plain.test" "$package"; then
		echo "$name (does not build)" >>"$build/failed"
		return
	fi
	if [ -e "$tmp/plain.test" ]; then # else all of its tests have C code
		plain=$(cd "$dir" && "$tmp/plain.test" -test.list '^Fuzz')
	fi
	mkdir -p "$cache/$package"
	for target in "${targets[@]}"; do
		binary=$tmp/plain.test
		if ! grep -qx "$target" <<<"$plain"; then
			binary=$tmp/c.test
			if [ -z "$with_c" ]; then
				CGO_ENABLED=1 go test -c -o "$binary" "$package"
				with_c=$(cd "$dir" && "$binary" -test.list '^Fuzz')
			fi
			if ! grep -qx "$target" <<<"$with_c"; then
				echo "$name $target (in no build of its package)" >>"$build/failed"
				continue
			fi
		fi
		echo "$target" >>"$build/ran"
		status=0
		(cd "$dir" && "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$duration" \
			-test.fuzzminimizetime 10x -test.parallel 1 \
			-test.fuzzcachedir "$cache/$package" </dev/null >"$tmp/log" 2>&1) || status=$?
		# A run whose time ends while a worker answers may end with this error, which is no finding: nothing was
		# written.
		if [ $status -ne 0 ] && grep -q '^ *context deadline exceeded$' "$tmp/log" &&
			! grep -q 'Failing input' "$tmp/log"; then
			status=0
		fi
		if [ $status -ne 0 ]; then
			said=$(cat "$tmp/log")
			echo "$name $target" >>"$build/failed"
		elif ! said=$(grep -E '^fuzz: elapsed' "$tmp/log" | tail -n 1 | grep .); then
			said=$(cat "$tmp/log")
			echo "$name $target (did not fuzz)" >>"$build/failed"
		fi
		printf '== %s %s\n%s\n' "$name" "$target" "$said"
	done
	rm -rf "$tmp"
}
export -f fuzz_package
module=$(go list -m)
export root module cache build duration

go list "$@" >"$build/packages"
xargs -P "$(nproc 2>/dev/null || sysctl -n hw.ncpu)" -n 1 bash -c 'fuzz_package "$@"' fuzz <"$build/packages" ||
	echo "a package's run ended early: see above" >>"$build/failed"

ran=$(wc -l <"$build/ran")
if [ -s "$build/failed" ]; then
	printf '%d of %d fuzz targets failed:\n' "$(wc -l <"$build/failed")" "$ran" >&2
	sed 's/^/  /' "$build/failed" >&2
	exit 1
fi
if [ "$ran" -eq 0 ]; then
	echo "no fuzz target found in $*" >&2
	exit 1
fi
printf '%d fuzz targets ran for %s each; nothing failed\n' "$ran" "$duration"
