#!/usr/bin/env bash
# Builds the static libraries of llama.cpp with its own cmake, finds out what of runtime/llama fits it, and prints the
# name of a makefile with the flags for Go. make calls this. Nothing is written into the source tree.
#
#   scripts/engine.sh 'ENGINE' 'PROCESSOR FLAGS' 'CMAKE ARGUMENTS'
#
# ENGINE is what scripts/engine-fetch.sh takes; '' is the llama.cpp of engine.lock. GO and CMAKE name other programs
# than go and cmake, JOBS is the number of compilers at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
given=$1 march=$2 args=$3
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR # a hook of git sets them
go=${GO:-go}
. ./engine.lock

fail() {
	echo "make${given:+ ENGINE=$given}: $*" >&2
	exit 1
}
sum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
short() { sum | cut -c1-12; }

case $args in
*BUILD_SHARED_LIBS* | *GGML_BACKEND_DL* | *GGML_CPU_ALL_VARIANTS*)
	fail "CMAKE_ARGS has $args: the libraries are linked statically, so BUILD_SHARED_LIBS, GGML_BACKEND_DL and" \
		"GGML_CPU_ALL_VARIANTS cannot be set" ;;
esac
if [ -d "$given" ]; then
	[ -f "$given/include/llama.h" ] && [ -f "$given/ggml/CMakeLists.txt" ] ||
		fail "this is no llama.cpp source tree: include/llama.h and ggml/CMakeLists.txt are expected in it"
fi
cc=$("$go" env CC) cxx=$("$go" env CXX)
for tool in "${CMAKE:-cmake}" make "${cxx%% *}"; do
	command -v "$tool" >/dev/null || fail "$tool is missing; Debian: apt install cmake make g++ python3-pip," \
		"macOS: xcode-select --install && brew install cmake python"
done
cmake=${CMAKE:-cmake}
tree=$(scripts/engine-fetch.sh "$given") || exit
case $tree$PWD in
*[[:space:]\$\#\'\"]*) fail "compilers are not given paths with blanks or one of \$ # ' \": $tree, $PWD" ;;
esac

# What the sources are: the version, and the commit where they are unchanged, else their sum.
sources=$(scripts/engine-sum.sh "$tree")
version=$(sed -nE 's/^set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)\)$/\2/p' "$tree/CMakeLists.txt" | paste -sd. -)
cached=$(dirname "$tree")
builds=$PWD/build/engine source=''
if [ -f "$cached/sources" ]; then # scripts/engine-fetch.sh unpacked it
	[ "$(cat "$cached/sources")" = "$sources" ] ||
		fail "files in $tree have changed since it was unpacked; remove $cached, and make fetches it again"
	builds=$cached
	case $cached in
	*/"$sha256" | */git-"$commit") source=$commit version=$llama_cpp ;;
	esac
elif [ "$(git -C "$tree" rev-parse --show-toplevel 2>/dev/null)" = "$tree" ]; then
	source=$(git -C "$tree" rev-parse HEAD)
	[ -z "$(git -C "$tree" status --porcelain -- CMakeLists.txt cmake include src ggml)" ] ||
		source="${source:0:9}, changed: $sources"
fi
case $source in
'') name=$sources ;;
*,*) name=$source ;;
*) name=${source:0:9} ;;
esac
name="${version:+$version }$name"

# One folder for a tree, its commit and the flags: an edit of the tree compiles what it touches. The processor's flags
# may say "native", which is another thing on another machine that has the same cache.
key=$(printf '%s\n' "$tree" "$source" "$march" "$args" "$("$cxx" --version | head -1)" \
	"$("$cc" $march -dM -E - </dev/null | LC_ALL=C sort)" "$(cat scripts/engine/{CMakeLists.txt,amx.cmake})" | short)
dir=$builds/build-$key own=$PWD/build/engine/$key # of all checkouts, of this one
mkdir -p "$dir" "$own"
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
# The folder outlives this checkout: cmake's description lies inside it. Objects stay when it is configured anew.
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt" 2>/dev/null) || true
if [ -n "$home" ] && [ ! -e "$home/CMakeLists.txt" ]; then
	rm -f "$dir/configured" "$dir/CMakeCache.txt"
fi
if [ ! -e "$dir/configured" ]; then
	mkdir -p "$dir/source"
	cp scripts/engine/{CMakeLists.txt,amx.cmake,main.cpp} "$dir/source"
	eval "set -- $args" # a value may be quoted
	if [ "$("$go" env GOARCH)" != "$("$go" env GOHOSTARCH)" ]; then
		processor=$("$go" env GOARCH)
		set -- -DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=${processor/arm64/aarch64}" "$@"
	fi
	# The processor's flags are those of Go's C code. OpenMP's threads end with a graph and have their own barrier.
	run "$cmake" -S "$dir/source" -B "$dir" -G 'Unix Makefiles' -DUMA_TREE="$tree" -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_FLAGS="$march" -DCMAKE_CXX_FLAGS="$march" \
		-DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_SSE42=OFF -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_BMI2=OFF \
		-DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=ON "$@"
	touch "$dir/configured"
fi
# What fits is found out again when the tree or the binding has changed. A part's tag leaves it out.
state=$sources-$(cat runtime/llama/{*.cpp,*.h,kernels/*.h,kernels/norms.cpp} scripts/engine-probe.sh \
	scripts/engine/* | short)
probe() {
	scripts/engine-probe.sh "$tree" "$march" "$(sed 's/^/-D/' "$dir/definitions" | tr '\n' ' ')" \
		>"$own/parts" 2>"$own/parts.log" 9>&- && echo "$state" >"$own/probed"
}
prober=''
if [ "$(cat "$own/probed" 2>/dev/null)" != "$state" ]; then # beside the build, whose last files leave a core idle
	probe 9>&- & # without the lock: after a failure of the build it runs on
	prober=$!
fi
# A build that was killed leaves files that are empty, and newer than what they are made of.
find "$dir" \( -name '*.o' -o -name '*.a' \) -size -9c -exec rm -f {} +
[ -e "$dir/uma_link" ] || echo "building llama.cpp $name in $dir: minutes the first time" >&2
build=("$cmake" --build "$dir" --target uma_link -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}")
if ! "${build[@]}" >"$log" 2>&1 9>&-; then # perhaps files that do not compile together
	run "$cmake" -DUMA_TOGETHER=OFF "$dir"
	run "${build[@]}"
fi

includes="-I$dir -I$tree/include -I$tree/tools/mtmd -I$tree/ggml/include -I$tree/ggml/src"

[ -z "$prober" ] || wait "$prober" || fail "$(tail -n 3 "$own/parts.log")"
tags=llama_engine extra='' left=''
for part in products attention positions keep norms barrier images grids repacked adapters heads probe; do
	if line=$(grep "^$part " "$own/parts"); then
		extra+=" ${line#"$part "}"
	else
		tags+=,llama_no_$part
		left+="${left:+, }$part"
	fi
done
if [ -n "$left" ]; then
	echo "left out, because it does not fit this llama.cpp: $left (docs/engines.md; why: $own/parts.log)" >&2
fi

# Architectures for whose heads the tree has a graph: with the others a head computes the model's own graph, and aborts.
heads=$(grep -l 'gtype == LLM_GRAPH_TYPE_DECODER_MTP' "$tree"/src/models/*.cpp 2>/dev/null | sed 's#.*/##; s#\.cpp$##' |
	tr -d - | paste -sd' ' -) || :
heads="#define UMA_ENGINE_HEADS \"$heads\""
[ "$(cat "$dir/uma_heads.h" 2>/dev/null)" = "$heads" ] || echo "$heads" >"$dir/uma_heads.h"
# A tree that is no repository may have been edited since the last build.
engine="#define UMA_ENGINE_BUILD \"llama.cpp $name\""
[ "$(cat "$dir/uma_engine.h" 2>/dev/null)" = "$engine" ] || echo "$engine" >"$dir/uma_engine.h"
# The libraries are relative to the folder that they are built in.
libraries=$(sed 's/.* -o uma_link //' "$dir/CMakeFiles/uma_link.dir/link.txt" | tr ' ' '\n' |
	sed -E "s#^([^-/].*\.(a|so|dylib|o))\$#$dir/\1#" | tr '\n' ' ')
# The binary runs where no compiler is installed.
static=''
[ "$("$go" env GOOS)" != linux ] || static='-static-libstdc++ -static-libgcc'
used=$(sed -n '/^GGML_USE_/s/^/-D/p' "$dir/definitions" | tr '\n' ' ')
# UMA_ENGINE changes with the sources: Go does not look into headers and libraries outside its packages.
cat >"$own/flags.mk" <<MK
ENGINE_CPPFLAGS := -DUMA_ENGINE=0x${sources} $used$extra $includes
ENGINE_CXXFLAGS := -Wno-interference-size
ENGINE_LDFLAGS := $libraries$static
ENGINE_TAGS := $tags
MK
echo "$own/flags.mk"
