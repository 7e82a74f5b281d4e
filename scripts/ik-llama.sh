#!/usr/bin/env bash
# Builds llama-server of ik_llama.cpp, a fork with kernels of its author's for processors, from the sources in its
# Python package, and prints the program's path: a server to compare with. The first time takes an hour on two cores.
set -euo pipefail
fail() {
	echo "scripts/ik-llama.sh: $*" >&2
	exit 1
}
version=0.1.5 sum=33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad
command -v "${CMAKE:-cmake}" >/dev/null || fail "cmake is missing; Debian: apt install cmake, macOS: brew install cmake"
flags=$(${CC:-cc} -march=native -dM -E - </dev/null 2>/dev/null || uname -m) # another processor, another build
dir=${XDG_CACHE_HOME:-$HOME/.cache}/uma-serve/ik-$version-$(printf '%s' "$flags" | cksum | cut -d' ' -f1)
program=$dir/build/bin/llama-server
mkdir -p "$dir"
if command -v flock >/dev/null; then
	exec 9>"$dir/lock"
	flock 9
fi
if [ ! -e "$dir/ready" ]; then
	echo "building $program: about an hour on two cores, once" >&2
	rm -rf "$dir/tree" && mkdir "$dir/tree"
	python3 -m venv "$dir/venv"
	echo "ik-llama-cpp-python==$version --hash=sha256:$sum" >"$dir/package.txt"
	"$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
		-d "$dir" -r "$dir/package.txt" >&2
	tar -xzf "$dir/ik_llama_cpp_python-$version.tar.gz" -C "$dir/tree" --strip-components 1
	# The package lacks the step that writes its version into the program.
	mkdir -p "$dir/tree/vendor/ik_llama.cpp/common/cmake"
	printf '%s\n' 'set(BUILD_NUMBER 0)' 'configure_file(common/build-info.cpp.in common/build-info.cpp)' \
		>"$dir/tree/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake"
	{
		"${CMAKE:-cmake}" -S "$dir/tree/vendor/ik_llama.cpp" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release \
			-DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF -DLLAMA_BUILD_TESTS=OFF &&
			"${CMAKE:-cmake}" --build "$dir/build" --target llama-server -j "${JOBS:-$(getconf _NPROCESSORS_ONLN)}"
	} >"$dir/build.log" 2>&1 9>&- || {
		tail -n 40 "$dir/build.log" >&2
		fail "the build failed; all of its output is in $dir/build.log"
	}
	touch "$dir/ready"
fi
echo "$program"
