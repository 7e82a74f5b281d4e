#!/usr/bin/env bash
# The NEON kernels under an emulator, against those of AVX2: the same results.
# Debian: g++-aarch64-linux-gnu qemu-user-static.
set -euo pipefail
cd "$(dirname "$0")/.."
cross=${CROSS_CXX:-aarch64-linux-gnu-g++}
emulator=${EMULATOR:-qemu-aarch64-static}
for tool in g++ "$cross" "$emulator"; do
	if ! command -v "$tool" >/dev/null; then
		echo "scripts/neon.sh: $tool is missing" >&2
		exit 1
	fi
done
engine=$(go list -m -f '{{.Dir}}' github.com/ollama/ollama)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags=(-std=c++17 -O2 -I"$engine/llama/llama.cpp/include" -I"$engine/ml/backend/ggml/ggml/include" -Iruntime/llama)
main=runtime/llama/testdata/cross/cross.cpp
g++ "${flags[@]}" "$main" runtime/llama/{matmul_avx2,attention_avx2,attention_merge}.cpp -o "$out/avx2"
"$cross" -static "${flags[@]}" "$main" runtime/llama/{matmul_neon,attention_neon,attention_merge}.cpp -o "$out/neon"
"$out/avx2" >"$out/avx2.txt"
"$emulator" -cpu max "$out/neon" >"$out/neon.txt"
if ! cmp "$out/avx2.txt" "$out/neon.txt"; then
	diff "$out/avx2.txt" "$out/neon.txt" | head -20 >&2
	exit 1
fi
echo "$(wc -l <"$out/neon.txt") results of NEON are those of AVX2"
