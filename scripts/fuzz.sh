#!/usr/bin/env bash
# Run every fuzz target for a while: scripts/fuzz.sh [DURATION] [PACKAGE…], for example scripts/fuzz.sh 30s ./ipc/wire
# DURATION is go test's -fuzztime: 30s, or 1000x for so many inputs. An input that fails is kept below the package's
# testdata/fuzz, where every later `go test` tries it: mend the code and commit the file with it.
set -euo pipefail
cd "$(dirname "$0")/.."
duration=${1:-30s}
[ $# -gt 0 ] && shift
[ $# -eq 0 ] && set -- ./...
root=$PWD
cache=$(go env GOCACHE)/fuzz
build=$(mktemp -d "${TMPDIR:-/tmp}/uma-fuzz.XXXXXX")
trap 'rm -rf "$build"' EXIT

ran=0
failed=()
# CGO_ENABLED=0: instrumenting for coverage would compile llama.cpp again. What tests C code is built as it is for
# users, without instrumentation, which C code does not have anyway.
while read -r dir package <&3; do
	mapfile -t sources < <(grep -lE '^func Fuzz[A-Za-z0-9_]+\(' "$dir"/*_test.go 2>/dev/null || true)
	[ ${#sources[@]} -eq 0 ] && continue
	name=.${dir#"$root"}
	mapfile -t targets < <(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "${sources[@]}" | sort)
	CGO_ENABLED=0 go test -c -fuzz . -o "$build/plain.test" "$package"
	plain=$(cd "$dir" && "$build/plain.test" -test.list '^Fuzz')
	with_c=
	for target in "${targets[@]}"; do
		binary=$build/plain.test
		if ! grep -qx "$target" <<<"$plain"; then
			binary=$build/c.test
			if [ -z "$with_c" ]; then
				CGO_ENABLED=1 go test -c -o "$binary" "$package"
				with_c=$(cd "$dir" && "$binary" -test.list '^Fuzz')
			fi
			if ! grep -qx "$target" <<<"$with_c"; then
				printf '%s %s is in no build of its package\n' "$name" "$target" >&2
				failed+=("$name $target (not built)")
				continue
			fi
		fi
		printf '== %s %s\n' "$name" "$target"
		ran=$((ran + 1))
		mkdir -p "$cache/$package"
		status=0
		(cd "$dir" && "$binary" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$duration" \
			-test.fuzzminimizetime 10x \
			-test.fuzzcachedir "$cache/$package" </dev/null >"$build/log" 2>&1) || status=$?
		# A run whose time ends while a worker answers may end with this error, which is no finding: nothing was
		# written.
		if [ $status -ne 0 ] && grep -q '^ *context deadline exceeded$' "$build/log" &&
			! grep -q 'Failing input' "$build/log"; then
			status=0
		fi
		if [ $status -ne 0 ]; then
			cat "$build/log"
			failed+=("$name $target")
		elif ! grep -E '^fuzz: elapsed' "$build/log" | tail -n 1 | grep .; then
			cat "$build/log"
			failed+=("$name $target (did not fuzz)")
		fi
	done
done 3< <(go list -f '{{.Dir}} {{.ImportPath}}' "$@")

if [ "$ran" -eq 0 ]; then
	echo "no fuzz target found in $*" >&2
	exit 1
fi
if [ ${#failed[@]} -gt 0 ]; then
	printf '%d of %d fuzz targets failed:\n' "${#failed[@]}" "$ran" >&2
	printf '  %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '%d fuzz targets ran for %s each; nothing failed\n' "$ran" "$duration"
