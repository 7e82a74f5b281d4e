#!/usr/bin/env bash
# Builds the static libraries of a llama.cpp source tree with the tree's own cmake, finds out what of runtime/llama
# fits that tree, and prints the name of a makefile with the flags for Go. make calls this with ENGINE=TREE. Nothing is
# written into the tree.
#
#   scripts/engine.sh TREE 'PROCESSOR FLAGS' 'CMAKE ARGUMENTS'
#
# GO and CMAKE name other programs than go and cmake, JOBS is the number of compilers at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
given=$1 march=$2 args=$3
go=${GO:-go}

fail() {
	echo "make ENGINE=$given: $*" >&2
	exit 1
}
sum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
short() { sum | cut -c1-12; }

[ -f "$given/include/llama.h" ] && [ -f "$given/ggml/CMakeLists.txt" ] ||
	fail "this is no llama.cpp source tree: include/llama.h and ggml/CMakeLists.txt are expected in it"
tree=$(cd "$given" && pwd -P)
case $tree$PWD in
*[[:space:]\$\#\'\"]*) fail "compilers are not given paths with blanks or one of \$ # ' \": $tree, $PWD" ;;
esac
case $args in
*BUILD_SHARED_LIBS* | *GGML_BACKEND_DL* | *GGML_CPU_ALL_VARIANTS*)
	fail "CMAKE_ARGS has $args: the libraries are linked statically, so BUILD_SHARED_LIBS, GGML_BACKEND_DL and" \
		"GGML_CPU_ALL_VARIANTS cannot be set" ;;
esac
for tool in "${CMAKE:-cmake}" make; do
	command -v "$tool" >/dev/null || fail "$tool is missing; Debian: apt install cmake make, macOS: brew install cmake"
done
cmake=${CMAKE:-cmake}
cc=$("$go" env CC) cxx=$("$go" env CXX)

# What the sources are: their sum, and the commit where they are a clean checkout.
sources=$(cd "$tree" && find CMakeLists.txt cmake include src ggml -type f | LC_ALL=C sort |
	while read -r f; do printf '%s\0' "$f"; done | xargs -0 "$(command -v sha256sum || echo shasum)" | short)
commit=''
if [ "$(git -C "$tree" rev-parse --show-toplevel 2>/dev/null)" = "$tree" ]; then
	commit=$(git -C "$tree" rev-parse --short=9 HEAD)
fi
name="${commit:+$commit, changed: }$sources"
if [ -n "$commit" ] && [ -z "$(git -C "$tree" status --porcelain -- CMakeLists.txt cmake include src ggml)" ]; then
	name=$commit
fi

# One folder for a tree, its commit and the flags: an edit of the tree compiles what it touches.
key=$(printf '%s\n' "$tree" "$commit" "$march" "$args" "$("$cxx" --version | head -1)" | short)
dir=$PWD/build/engine/${commit:-tree}-$key
mkdir -p "$dir"
if command -v flock >/dev/null; then # make may be run twice at a time
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
if [ ! -e "$dir/configured" ]; then
	eval "set -- $args" # a value may be quoted
	# The processor's flags are those of Go's C code. OpenMP's threads end with a graph and have their own barrier.
	run "$cmake" -S scripts/engine -B "$dir" -G 'Unix Makefiles' -DUMA_TREE="$tree" -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$march" -DCMAKE_CXX_FLAGS="$march" \
		-DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_SSE42=OFF -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_BMI2=OFF \
		-DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=ON "$@"
	touch "$dir/configured"
fi
[ -e "$dir/uma_link" ] || echo "building llama.cpp $name in $dir: minutes the first time" >&2
run "$cmake" --build "$dir" --target uma_link -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}"

includes="-I$dir -I$tree/include -I$tree/ggml/include -I$tree/ggml/src"

# What fits is found out again when the tree or the binding has changed. A part's tag leaves it out.
state=$sources-$(cat runtime/llama/*.{cpp,h} scripts/engine-probe.sh scripts/engine/* | short)
if [ "$(cat "$dir/probed" 2>/dev/null)" != "$state" ]; then
	scripts/engine-probe.sh "$tree" "$march" "$(sed 's/^/-D/' "$dir/definitions" | tr '\n' ' ')" \
		>"$dir/parts" 2>"$dir/parts.log"
	echo "$state" >"$dir/probed"
fi
tags=llama_engine extra='' left=''
for part in products attention positions keep barrier repacked; do
	if line=$(grep "^$part " "$dir/parts"); then
		extra+=" ${line#"$part "}"
	else
		tags+=,llama_no_$part
		left+="${left:+, }$part"
	fi
done
if [ -n "$left" ]; then
	echo "left out, because it does not fit this llama.cpp: $left (docs/engines.md; why: $dir/parts.log)" >&2
fi

cat >"$dir/uma_engine.h" <<HEADER
#define UMA_ENGINE_BUILD "llama.cpp $name (make ENGINE)"
HEADER
# The libraries are relative to the folder that they are built in.
libraries=$(sed 's/.* -o uma_link //' "$dir/CMakeFiles/uma_link.dir/link.txt" | tr ' ' '\n' |
	sed -E "s#^([^-/].*\.(a|so|dylib|o))\$#$dir/\1#" | tr '\n' ' ')
used=$(sed -n '/^GGML_USE_/s/^/-D/p' "$dir/definitions" | tr '\n' ' ')
# UMA_ENGINE changes with the sources: Go does not look into headers and libraries outside its packages.
cat >"$dir/flags.mk" <<MK
ENGINE_CPPFLAGS := -DUMA_ENGINE=0x${sources} $used$extra $includes
ENGINE_CXXFLAGS := -Wno-interference-size
ENGINE_LDFLAGS := $libraries
ENGINE_TAGS := $tags
MK
echo "$dir/flags.mk"
