#!/usr/bin/env bash
# Examines uma-serve on this machine's accelerator, in less than LIMIT (8 minutes), and writes OUT/gpu-check.json and
# OUT/gpu-check.md: builds ggml's back end for the card, then `uma-bench gpu-check`, which records the failure of a step
# and runs the next one.
#
#   scripts/gpu-check.sh OUT [MODEL.gguf…]   MODELs: by default those of models/ here and of the user's cache, at most
#                                            three; where there are none, generated ones
#   scripts/gpu-check.sh --pack DIR          makes a folder to carry to such a machine: the programs, the sources that a
#                                            back end is built from, the models and this script. It needs
#                                            nvcc, cmake, make and g++ there, and no network
#
# BACKEND is cuda, vulkan or cpu (the processor in an accelerator's place; nothing is built). BIN is the folder of the
# programs. LIMIT and STEP_LIMIT are times such as 8m and 60s. ARGS are further arguments of uma-bench gpu-check.
# For --pack: MARCH is the processor of that machine (x86-64-v3), MODELS are files to carry ("none": only the built-in
# model), MAX_MB the size that the folder may have (2000), ENGINE and CMAKE_ARGS as for make. Programs that are built
# already are taken from BIN and LLAMA_SERVER ("none": no comparison with it).
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
usage() {
	sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' scripts/gpu-check.sh >&2
	exit 2
}
fail() {
	echo "scripts/gpu-check.sh: $*" >&2
	exit 1
}
absolute() { case $1 in /*) echo "$1" ;; *) echo "$here/$1" ;; esac }
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/uma-serve

pack() {
	local dir=$1 tree tools model size
	mkdir -p "$dir/bin" "$dir/models" "$dir/scripts"
	if [ -n "${BIN:-}" ]; then
		cp "$(absolute "$BIN")"/uma-{serve,cli,bench} "$dir/bin/"
	else
		make MARCH="${MARCH:-x86-64-v3}" BIN="$dir/bin" uma-serve uma-cli uma-bench
	fi
	case ${LLAMA_SERVER:-} in
	none) ;;
	'')
		# One file, without the network's libraries: it loads a back end from its folder as uma-serve does.
		tools=$(CMAKE_ARGS="-DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON \
			-DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF ${CMAKE_ARGS:-}" \
			scripts/engine-tools.sh llama-server)
		strip -o "$dir/bin/llama-server" "$tools/llama-server"
		;;
	*) cp "$(absolute "$LLAMA_SERVER")" "$dir/bin/llama-server" ;;
	esac
	tree=$(scripts/engine-fetch.sh "${ENGINE:-}")
	tar -C "$tree" -czf "$dir/engine.tar.gz" --transform 's#^#engine/#' CMakeLists.txt cmake include ggml src
	cp engine.lock "$dir/"
	cp -r scripts/backend scripts/backend.sh scripts/engine-{fetch,sum}.sh scripts/gpu-check.sh "$dir/scripts/"
	cp models/uma-tiny.gguf "$dir/models/"
	# A library of make cuda-compile saves the minutes of a build there, if that machine has a card of its architecture.
	if [ -e build/cuda-compile/libggml-cuda.architectures ]; then
		cp build/cuda-compile/libggml-cuda.{so,architectures} "$dir/bin/"
	fi
	for model in ${MODELS:-"$cache"/models/*.gguf}; do
		[ "$model" = none ] || [ ! -e "$model" ] || cp "$model" "$dir/models/"
	done
	size=$(du -sm "$dir" | cut -f1)
	[ "$size" -le "${MAX_MB:-2000}" ] || fail "$dir has $size MB, more than MAX_MB=${MAX_MB:-2000}: name fewer MODELS"
	echo "$dir has $size MB; on the other machine: $(basename "$dir")/scripts/gpu-check.sh OUT"
}

# fits LIBRARY: one that was built before, for this card, and finds all that it needs is used as it is.
fits() {
	[ -e "$1" ] && ! ldd "$1" | grep -q 'not found' || return
	local for=${1%.so}.architectures
	[ -e "$for" ] || return 0
	nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | grep -qxF -f <(tr ';' '\n' <"$for")
}

case ${1:-} in
'' | -h | --help) usage ;;
--pack)
	[ $# = 2 ] || usage
	pack "$(absolute "$2")"
	exit
	;;
-*) usage ;;
esac

out=$(absolute "$1")
shift
backend=${BACKEND:-cuda}
bin=$(absolute "${BIN:-$PWD/bin}")
[ -x "$bin/uma-bench" ] && [ -x "$bin/uma-serve" ] ||
	fail "uma-serve and uma-bench are expected in $bin: make, or --pack"
models=()
for model in "$@"; do models+=("$(absolute "$model")"); done
if [ ${#models[@]} = 0 ]; then
	for model in "$PWD"/models/*.gguf "$cache"/models/*.gguf; do
		case $model in */uma-redundant.gguf) continue ;; esac
		[ ! -e "$model" ] || [ ${#models[@]} -ge "${MAX_MODELS:-3}" ] || models+=("$(absolute "$model")")
	done
fi
llama=${LLAMA_SERVER:-}
[ -n "$llama" ] || [ ! -x "$bin/llama-server" ] || llama=$bin/llama-server
if [ -z "${ENGINE:-}" ] && [ -f engine.tar.gz ]; then
	export ENGINE=$PWD/engine.tar.gz
fi
build=()
case $backend in
cpu) ;;
*)
	if [ "$backend" = cuda ]; then
		PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
		if nvcc=$(command -v nvcc); then
			nvcc=$(dirname "$(readlink -f "$nvcc")")
			export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${nvcc%/bin}/lib64
		fi
	fi
	fits "${UMA_BACKEND_DIR:-$bin}/libggml-$backend.so" || build=(--build "$PWD/scripts/backend.sh $backend $bin")
	;;
esac
mkdir -p "$out"
exec "$bin/uma-bench" gpu-check "$out" ${models[@]+"${models[@]}"} --backend "$backend" ${build[@]+"${build[@]}"} \
	${llama:+--llama-server "$llama"} --limit "${LIMIT:-470s}" --step-limit "${STEP_LIMIT:-60s}" ${ARGS:-}
