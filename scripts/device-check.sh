#!/usr/bin/env bash
# Examines uma-serve on a Vulkan device: make device-check, or scripts/device-check.sh [OUT], where OUT gets the report
# of gpu-check (build/device-check). Where there is no card, Mesa's llvmpipe computes in its place, on the processor.
#
# The engine's contract, with rows that are probed in the graph, is run with all layers on the device, a part of them
# and none; then daemons with the sandbox on: a storm, tiers, EAT, experts, no device (smoke's TestDevice); the
# probe of published models; then scripts/gpu-check.sh; on llvmpipe with a lighter load (ARGS), for the built-in model
# and for PUBLISHED (smollm2-135m). BIN is the folder of the programs and of the library of the back end, which is built
# if it is missing. With IF_POSSIBLE=1 a machine that lacks what this needs is no error.
#
# SHORT=1 is .ci/run's: all of that but the published models. The back end is that of CHECK=1 scripts/backend.sh, in the
# folder BACKENDS (build/backend-check).
set -euo pipefail
cd "$(dirname "$0")/.."
# lacks WHY: this machine cannot be examined.
lacks() {
	echo "scripts/device-check.sh: $*" >&2
	exit $((${IF_POSSIBLE:-0} == 0))
}
out=${1:-build/device-check} published=''
bin=${BIN:-bin}
backends=$bin
if [ -n "${SHORT:-}" ]; then
	backends=${BACKENDS:-build/backend-check} PUBLISHED='' PROBE_MODELS=''
fi
if [ ! -e "$backends/libggml-vulkan.so" ]; then
	command -v glslc >/dev/null ||
		lacks "the back end cannot be built (Debian: apt install libvulkan-dev glslc spirv-headers)"
	CHECK=${SHORT:-} scripts/backend.sh vulkan "$backends"
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
	export ARGS=${ARGS---light --prompts 8 --tokens 16} MAX_MODELS=${MAX_MODELS-1}
	export UMA_TEST_PROBE_STEPS=${UMA_TEST_PROBE_STEPS-2}
	PROBE_MODELS=${PROBE_MODELS-smollm2-135m} # LLVM 15 compiles a kernel of gemma-3-270m for many minutes
	published=${PUBLISHED-smollm2-135m}
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
# gpu_check OUT MODEL… examines the models, those of gpu-check.sh itself where none is named.
gpu_check() { BACKEND=vulkan BIN=$bin scripts/gpu-check.sh "$@" || touch "$logs/failed"; }

contract='TestContract|TestGreedyRepeats|TestSplit|TestNoKVOffload|TestPlaced|TestCPUMoE|TestProjectorOnADevice'
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
	UMA_TEST_PROBE_MODELS=$model check -1 TestGraphProbeOfPublishedModel ./smoke
done
part "gpu-check"
LIMIT=${LIMIT:-20m} STEP_LIMIT=${STEP_LIMIT:-4m} gpu_check "$out"
for model in $published; do
	part "gpu-check of $model"
	file=$(scripts/models-fetch.sh "$model") && LIMIT=${LIMIT:-90m} STEP_LIMIT=${STEP_LIMIT:-30m} \
		ARGS='--light --prompts 4 --tokens 8' gpu_check "$out/$model" "$file" || touch "$logs/failed"
done
if [ -e "$logs/failed" ]; then
	part "FAILED"
	exit 1
fi
part "all passed"
