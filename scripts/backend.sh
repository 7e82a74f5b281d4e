#!/usr/bin/env bash
# Builds a back end of the llama.cpp that uma-serve is built on as a library in the folder BIN, where uma-serve finds it
# at start:
#
#   scripts/backend.sh cuda|vulkan BIN
#
# ENGINE names another llama.cpp than that of engine.lock, as for make; CMAKE_ARGS are arguments of its cmake;
# CUDA_ARCHITECTURES are those of cmake, such as "86;90", by default those of this machine's cards; CMAKE names another
# program than cmake, JOBS is the number of compilers at a time. CHECK makes a library of Vulkan for
# scripts/device-check.sh alone, in which nothing is optimised, so that llvmpipe has its kernels soon: with all of its
# shaders (CHECK=all), or with those of the check's short form (CHECK=1), in less time; see scripts/backend/glslc-*.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
bin=$2
cmake=${CMAKE:-cmake}

fail() {
	echo "make backend-$name: $*" >&2
	exit 1
}
# needs PROGRAM HINT
needs() { command -v "$1" >/dev/null || fail "$1 is missing; $2"; }
# includes HEADER HINT
includes() {
	echo "#include <$1>" | "${CXX:-c++}" -x c++ -fsyntax-only - 2>/dev/null || fail "the header $1 is missing; $2"
}

[ "$(uname -s)" = Linux ] || fail "back ends as libraries are for Linux; on macOS uma-serve contains Metal"
needs "$cmake" "Debian: apt install cmake"
needs make "Debian: apt install make"
needs "${CXX:-c++}" "Debian: apt install g++"
case $name in
cuda)
	PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
	needs "${CUDACXX:-nvcc}" "install the CUDA toolkit, 12 or later (Debian: apt install nvidia-cuda-toolkit, with the
  component non-free, or developer.nvidia.com/cuda-downloads), or name its folder: CUDA_PATH=/usr/local/cuda"
	if [ -z "${CUDA_ARCHITECTURES:-}" ] && command -v nvidia-smi >/dev/null; then
		CUDA_ARCHITECTURES=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
			grep -E '^[0-9]+\.[0-9]+$' | tr -d . | sort -nu | paste -sd';' -) || :
	fi
	version=$("${CUDACXX:-nvcc}" --version | tail -n 1)
	;;
vulkan)
	needs glslc "Debian: apt install glslc"
	includes vulkan/vulkan.hpp "Debian: apt install libvulkan-dev"
	includes spirv/unified1/spirv.hpp "Debian: apt install spirv-headers"
	version=$(glslc --version | sed -n 1p) # head would end glslc by SIGPIPE
	;;
*) fail "the back ends are cuda and vulkan" ;;
esac

tree=$(scripts/engine-fetch.sh "${ENGINE:-}") || exit
case $tree$PWD in
*[[:space:]\$\#\'\"]*) fail "compilers are not given paths with blanks or one of \$ # ' \": $tree, $PWD" ;;
esac
builds=$(dirname "$tree")
[ -f "$builds/sources" ] || builds=$PWD/build/engine
sum=$(command -v sha256sum || echo "shasum -a 256")
check='' glslc=''
if [ -n "${CHECK:-}" ]; then
	[ "$name" = vulkan ] || fail "CHECK is for vulkan"
	case $CHECK in
	1) glslc=glslc-check ;;
	all) glslc=glslc-rolled ;;
	*) fail "CHECK is 1 or all" ;;
	esac
	check=$(cat "scripts/backend/$glslc" scripts/backend/glslc-rolled)
fi
# One folder for a tree, its flags and compilers.
dir=$builds/backend-$name-$(printf '%s\n' "$tree" "${CMAKE_ARGS:-}" "${CUDA_ARCHITECTURES:-}" "$version" \
	"$("${CXX:-c++}" --version | head -n 1)" ${check:+"$check"} | $sum | cut -c1-12)
mkdir -p "$dir" "$bin"
if command -v flock >/dev/null; then # make may be run twice at a time
	exec 9>"$dir/lock"
	flock 9
fi
log=$dir/build.log
run() {
	"$@" >"$log" 2>&1 9>&- || {
		grep -n -i -m 5 -B 1 -A 3 'error' "$log" >&2 || tail -n 40 "$log" >&2
		fail "failed: $1 $2 …; all of its output is in $log"
	}
}
library=$dir/lib/libggml-$name.so
sources=$(cat "$builds/sources" 2>/dev/null || scripts/engine-sum.sh "$tree")
# All checkouts build in one folder, which cmake ties to the folder of its description: a copy that is there for all.
mkdir -p "$dir/source"
for file in scripts/backend/*; do
	cmp -s "$file" "$dir/source/${file##*/}" || cp "$file" "$dir/source/"
done
eval "set -- ${CMAKE_ARGS:-}" # a value may be quoted
[ -z "$check" ] || set -- "-DVulkan_GLSLC_EXECUTABLE=$dir/source/$glslc" -DUMA_TOGETHER=ON \
	'-DCMAKE_C_FLAGS_RELEASE=-O0 -DNDEBUG' '-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG' "$@"
run "$cmake" -S "$dir/source" -B "$dir" -G 'Unix Makefiles' -DUMA_TREE="$tree" -DUMA_BACKEND="$name" \
	-DUMA_SOURCES="$sources" -DCMAKE_BUILD_TYPE=Release "-DGGML_$(tr '[:lower:]' '[:upper:]' <<<"$name")=ON" \
	-DGGML_NATIVE=OFF ${CUDA_ARCHITECTURES:+"-DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES"} "$@"
[ -e "$library" ] || echo "building ggml's $name back end${CUDA_ARCHITECTURES:+ for $CUDA_ARCHITECTURES} in $dir:" \
	"many minutes the first time" >&2
run "$cmake" --build "$dir" --target uma_backend -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}"
# A name that no shader has would leave out one that the checks need.
if [ "$glslc" = glslc-check ]; then
	while read -r pattern; do
		compgen -G "$dir/ggml/src/ggml-vulkan/vulkan-shaders.spv/$pattern.spv" >/dev/null ||
			fail "scripts/backend/glslc-check names $pattern, but this llama.cpp has no shader of that name"
	done < <("scripts/backend/$glslc" --list)
fi
# A running uma-serve keeps the library that it has loaded.
cp "$library" "$bin/.libggml-$name.so.$$"
mv "$bin/.libggml-$name.so.$$" "$bin/libggml-$name.so"
rm -f "$bin/libggml-$name.architectures" # of a library that was carried here
echo "$bin/libggml-$name.so"
