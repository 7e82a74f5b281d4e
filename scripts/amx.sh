#!/usr/bin/env bash
# The AMX kernels on emulated tiles, against those of AVX-512: the same results. Needs a processor with AVX-512 VNNI.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! grep -qw avx512_vnni /proc/cpuinfo; then
	echo "scripts/amx.sh: this processor has no AVX-512 VNNI, which the AMX kernels use beside the tiles" >&2
	exit 1
fi
tree=$(scripts/engine-fetch.sh "${ENGINE:-}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags=(-std=c++17 -O2 -I"$tree/include" -I"$tree/ggml/include" -Iruntime/llama/kernels)
flags+=(-DUMA_EMULATE_AMX "-DUMA_KERNELS=&uma_kernels_avx512, &uma_kernels_amx")
g++ "${flags[@]}" -include cstdio -include cstdlib runtime/llama/kernels/testdata/cross/cross.cpp \
	runtime/llama/kernels/{matmul_avx512,attention_avx512,attention_merge}.cpp -o "$out/run"
for kernels in avx512 amx; do
	"$out/run" "$kernels" >"$out/$kernels.txt"
done
if ! cmp "$out/avx512.txt" "$out/amx.txt"; then
	diff "$out/avx512.txt" "$out/amx.txt" | head -20 >&2
	exit 1
fi
echo "$(wc -l <"$out/amx.txt") results of AMX are those of AVX-512"
