#!/usr/bin/env bash
# Compiles and links ggml's CUDA back end for one architecture on a machine without a card and without a toolkit: the
# compiler and the libraries are Python packages, unpacked into the user's cache. It shows that scripts/backend.sh
# builds. The library is left in build/cuda-compile; a machine with such a card and CUDA 13 can load it.
#
# CUDA_ARCHITECTURES (90), ENGINE, CMAKE_ARGS and JOBS are those of scripts/backend.sh; PYTHON names another program
# than python3.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
packages='nvidia-cuda-nvcc==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-runtime==13.5.37 nvidia-nvvm==13.5.37
nvidia-cuda-cccl==13.3.5.0.6 nvidia-cublas==13.10.0.20'
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/uma-serve
toolkit=$cache/cuda-13.5.37
fail() {
	echo "make cuda-compile: $*" >&2
	exit 1
}
"$python" -m pip --version >/dev/null 2>&1 ||
	fail "$python has no pip; Debian: apt install python3-pip, macOS: brew install python"
if [ ! -d "$toolkit" ]; then
	echo "fetching NVIDIA's compiler and cuBLAS (570 MB; 2.3 GB unpacked) into $toolkit" >&2
	mkdir -p "$cache"
	new=$toolkit.new-$$
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	"$python" -m pip install -q --no-deps --only-binary :all: --no-cache-dir --disable-pip-version-check \
		--root-user-action ignore --target "$new" $packages >&2 ||
		fail "pip could not fetch the packages (its reason is above)"
	root=$new/nvidia/cu13
	# Packages of libraries lack the names that a linker looks for.
	for library in cudart cublas cublasLt; do
		ln -s "lib$library.so.13" "$root/lib/lib$library.so"
	done
	# A driver's library comes with a card. ggml calls these of its functions; a stub is all that a linker asks.
	mkdir "$root/lib/stubs"
	for f in cuDeviceGet cuDeviceGetAttribute cuGetErrorString cuMemAddressFree cuMemAddressReserve cuMemCreate \
		cuMemGetAllocationGranularity cuMemMap cuMemRelease cuMemSetAccess cuMemUnmap; do
		echo "int $f(void) { return 999; }"
	done | "${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$root/lib/stubs/libcuda.so" -x c -
	mv "$new" "$toolkit"
fi
root=$toolkit/nvidia/cu13
ln -sf libcuda.so "$root/lib/stubs/libcuda.so.1" # the loader, which checks the library below, looks for this name
start=$(date +%s)
export CUDACXX=$root/bin/nvcc CUDA_PATH=$root CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-90}
nice -n 19 scripts/backend.sh cuda build/cuda-compile
library=build/cuda-compile/libggml-cuda.so
# Each undefined symbol is one of the C library's, the toolkit's or the driver's.
undefined=$(LD_LIBRARY_PATH=$root/lib:$root/lib/stubs ldd -r "$library" 2>&1 |
	grep -E 'undefined symbol|not found' | grep -v 'libcuda.so.1 => not found' || :)
[ -z "$undefined" ] || fail "the library does not link: $undefined"
echo "$CUDA_ARCHITECTURES" >"${library%.so}.architectures" # scripts/gpu-check.sh --pack carries the library
echo "compiled for $CUDA_ARCHITECTURES in $(($(date +%s) - start)) s, $(wc -c <"$library") bytes"
