#!/usr/bin/env bash
# Builds llama.cpp's own programs from the tree that uma-serve is built on, as its users build them, and prints the
# folder that they are in: what uma-serve is compared with. The first time takes several minutes.
#
#   scripts/engine-tools.sh PROGRAM…         llama-server, llama-bench, llama-perplexity, llama-quantize, …
#
# ENGINE names another llama.cpp than that of engine.lock, as for make; CMAKE_ARGS are arguments of its cmake.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
	echo "scripts/engine-tools.sh: $*" >&2
	exit 1
}
[ $# -gt 0 ] || fail "name the programs to build, such as llama-server"
command -v "${CMAKE:-cmake}" >/dev/null || fail "cmake is missing; Debian: apt install cmake, macOS: brew install cmake"
tree=$(scripts/engine-fetch.sh "${ENGINE:-}")
builds=$(dirname "$tree")
[ -f "$builds/sources" ] || builds=$PWD/build/engine
sum=$(command -v sha256sum || echo "shasum -a 256")
flags=$(${CC:-cc} -march=native -dM -E - </dev/null 2>/dev/null || uname -m)
dir=$builds/tools-$(printf '%s\n' "$tree" "${CMAKE_ARGS:-}" "$flags" | $sum | cut -c1-12)
mkdir -p "$dir"
if command -v flock >/dev/null; then
	exec 9>"$dir/lock"
	flock 9
fi
log=$dir/build.log
run() {
	"$@" >"$log" 2>&1 9>&- || {
		tail -n 40 "$log" >&2
		fail "failed: $1 $2 …; all of its output is in $log"
	}
}
ours=$dir/amx.cmake # a copy: the build outlives this checkout, and another one uses it
if [ ! -e "$ours" ] || ! cmp -s scripts/engine/amx.cmake "$dir/configured"; then
	cp scripts/engine/amx.cmake "$ours"
	eval "set -- $(printf '%q ' "$@") -- ${CMAKE_ARGS:-}"
	programs=()
	while [ "$1" != -- ]; do programs+=("$1") && shift; done
	shift
	# The page of llama-server would come from the network.
	run "${CMAKE:-cmake}" -S "$tree" -B "$dir" -G 'Unix Makefiles' -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=ON \
		-DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DUMA_TOOLS=ON -DCMAKE_PROJECT_llama.cpp_INCLUDE="$ours" "$@"
	cp "$ours" "$dir/configured"
	set -- "${programs[@]}"
fi
for program in "$@"; do
	[ -e "$dir/bin/$program" ] || echo "building $program in $dir: minutes the first time" >&2
done
targets=()
for program in "$@"; do targets+=(--target "$program"); done
run "${CMAKE:-cmake}" --build "$dir" "${targets[@]}" -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}"
echo "$dir/bin"
