#!/usr/bin/env bash
# Examines uma-serve on a Vulkan device: make device-check, or scripts/device-check.sh [OUT], where OUT gets the report
# of gpu-check (build/device-check). Where there is no card, Mesa's llvmpipe computes in its place, on the processor.
#
# The engine's contract, with rows that are probed in the graph, is run with all layers on the device, a part of them
# and none; then daemons with the sandbox on: a storm, tiers, EAT, experts, no device (smoke's TestDevice); the
# probe of published models (PROBE_MODELS); then scripts/gpu-check.sh for the built-in model and for PUBLISHED, names
# of models.lock, which are fetched: by default SmolLM2 135M, Qwen2.5 0.5B and Gemma 3 270M. On llvmpipe it has a
# lighter load (ARGS, which is for the built-in model). BIN is the folder of the programs. The library of the back end
# is in BACKENDS and is built there if it is missing: with a card in BIN, without one in build/backend-all, unoptimised
# (CHECK=all scripts/backend.sh). With IF_POSSIBLE=1 a machine that lacks what this needs, or cannot fetch a model, is
# no error; the last lines name such a model.
#
# SHORT=1 is .ci/run's: all of that but the published models. The back end is that of CHECK=1 scripts/backend.sh, in
# build/backend-check.
set -euo pipefail
cd "$(dirname "$0")/.."
# lacks WHY: this machine cannot be examined.
lacks() {
	echo "scripts/device-check.sh: $*" >&2
	exit $((${IF_POSSIBLE:-0} == 0))
}
out=${1:-build/device-check}
bin=${BIN:-bin}
default=$bin check='' load=${ARGS:-} # of published models
if [ -n "${SHORT:-}" ]; then
	default=build/backend-check check=1 PUBLISHED='' PROBE_MODELS=''
elif ! compgen -G '/dev/dri/renderD*' >/dev/null; then
	default=build/backend-all check=all
fi
backends=${BACKENDS:-$default}
if [ ! -e "$backends/libggml-vulkan.so" ]; then
	command -v glslc >/dev/null ||
		lacks "the back end cannot be built (Debian: apt install libvulkan-dev glslc spirv-headers)"
	CHECK=$check scripts/backend.sh vulkan "$backends"
fi
UMA_BACKEND_DIR=$(cd "$backends" && pwd)
export UMA_BACKEND_DIR
if [ -z "${GGML_VK_VISIBLE_DEVICES:-}" ] && ! compgen -G '/dev/dri/renderD*' >/dev/null; then
	echo "there is no card: llvmpipe computes" >&2
	# What llvmpipe lacks, or computes otherwise than ggml expects.
	export GGML_VK_VISIBLE_DEVICES=0 GGML_VK_DISABLE_F16=1 GGML_VK_DISABLE_INTEGER_DOT_PRODUCT=1 \
		GGML_VK_DISABLE_FUSION=1
fi
devices=$("$bin/uma-serve" engine-devices)
case $devices in
*'"backend":"Vulkan"'*) echo "$devices" ;;
*) lacks "there is no Vulkan device (Debian: apt install mesa-vulkan-drivers): $devices" ;;
esac
case $devices in
*'llvmpipe (LLVM 1'[0-7].*) # Mesa 25, whose manifest says Vulkan 1.4, may be built with LLVM 15 (Debian 12's backports)
	grep -qE '"api_version": *"1\.([4-9]|[1-9][0-9])' ${LLVMPIPE_MANIFEST:-/usr/share/vulkan/icd.d/lvp_icd*.json} ||
		lacks "this llvmpipe damages the heap (docs/engines.md); that of Mesa 25 does not"
	;;
esac
case $devices in
*llvmpipe*) # it computes a row of SmolLM2 135M in half a second
	export ARGS=${ARGS---light --prompts 8 --tokens 16} UMA_TEST_PROBE_STEPS=${UMA_TEST_PROBE_STEPS-2}
	load='--light --prompts 4 --tokens 8'
	;;
esac
# The folder is shared, since compiling the kernels takes minutes on llvmpipe and a test has a new cache folder.
export MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/uma-serve/shaders}
mkdir -p "$MESA_SHADER_CACHE_DIR"
case " $(go env GOFLAGS) " in
*llama_engine* | *llama_system*) ;;
*) eval "$(make -s env)" ;; # without make, the tests would link no engine, and none would run
esac
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
but=''
begin=$SECONDS
part() { echo "== $*, $((SECONDS - begin)) s after the start"; }
# check LAYERS TESTS FOLDER runs tests with so many layers on the device; what fails is in $logs/failed.
check() {
	local log
	log=$(mktemp -p "$logs")
	UMA_TEST_GPU_LAYERS=$1 CGO_ENABLED=1 go test -count=1 -timeout 40m -run "^($2)\$" "$3" 2>&1 | tee "$log" ||
		touch "$logs/failed"
	if grep -qF '[no test' "$log"; then # also of a package without test files
		echo "scripts/device-check.sh: the tests were built without the engine" >&2
		touch "$logs/failed"
	fi
}
# gpu_check OUT MODEL examines a file.
gpu_check() { BACKEND=vulkan BIN=$bin scripts/gpu-check.sh "$@" || touch "$logs/failed"; }
# fetched NAME prints the file of a published model, or notes why it cannot be had.
fetched() {
	WHY=$logs/why scripts/models-fetch.sh "$1" && return
	sed 's/^/not examined: /' "$logs/why" >>"$logs/left-out"
	false
}

contract='TestContract|TestGreedyRepeats|TestSplit|TestManyRows|TestNoKVOffload|TestPlaced|TestCPUMoE'
contract+='|TestProjectorOnADevice'
engine() {
	for layers in -1 2 0; do # two are the output and a layer of the two or four that the models of these tests have
		part "the engine's contract, --gpu-layers $layers"
		check "$layers" "$contract|TestGraphProbe.*" ./runtime/llama
	done
}
daemons() {
	for layers in -1 2; do
		part "a storm, tiers and EAT with daemons, --gpu-layers $layers"
		check "$layers" 'TestDevice.*' ./smoke
	done
}
# Of llvmpipe's time most goes into the compilation of kernels, on one core.
daemons >"$logs/daemons" 2>&1 &
engine
wait
cat "$logs/daemons"
for model in ${PROBE_MODELS-smollm2-135m gemma-3-270m}; do
	part "the probe of $model"
	fetched "$model" >/dev/null || continue
	UMA_TEST_PROBE_MODELS=$model check -1 TestGraphProbeOfPublishedModel ./smoke
done
part "gpu-check"
LIMIT=${LIMIT:-20m} STEP_LIMIT=${STEP_LIMIT:-4m} gpu_check "$out" models/uma-tiny.gguf
for model in ${PUBLISHED-smollm2-135m qwen2.5-coder-0.5b gemma-3-270m}; do
	part "gpu-check of $model"
	file=$(fetched "$model") || continue
	LIMIT=${LIMIT:-90m} STEP_LIMIT=${STEP_LIMIT:-30m} ARGS=$load gpu_check "$out/$model" "$file"
done
if [ -e "$logs/left-out" ]; then
	sort -u "$logs/left-out"
	[ "${IF_POSSIBLE:-0}" != 0 ] || touch "$logs/failed"
	but=', but for the models named above'
fi
if [ -e "$logs/failed" ]; then
	part "FAILED"
	exit 1
fi
part "all passed$but"
