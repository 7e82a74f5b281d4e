#!/usr/bin/env bash
# The NEON and I8MM kernels under an emulator, against those of AVX2: the same results.
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
tree=$(scripts/engine-fetch.sh "${ENGINE:-}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags=(-std=c++17 -O2 -I"$tree/include" -I"$tree/ggml/include" -Iruntime/llama/kernels)
main=runtime/llama/kernels/testdata/cross/cross.cpp
g++ "${flags[@]}" "-DUMA_KERNELS=&uma_kernels_avx2" "$main" \
	runtime/llama/kernels/{matmul_avx2,attention_avx2,attention_merge}.cpp -o "$out/avx2"
flags+=("-DUMA_KERNELS=&uma_kernels_neon, &uma_kernels_i8mm")
"$cross" -static "${flags[@]}" "$main" \
	runtime/llama/kernels/{matmul_neon,matmul_i8mm,attention_neon,attention_merge}.cpp -o "$out/arm"
"$out/avx2" avx2 >"$out/avx2.txt"

# same compares two files of results and prints lines that differ. Those of quantised weights are equal bit for bit;
# floats are added up in another order.
same() {
	paste "$1" "$2" | awk -F'\t' '
		$1 == $2 { next }
		{
			n = split($1, a, " ")
			m = split($2, b, " ")
			most = a[1] == "attention" ? 0.0025 : 0.005
			d = a[n] - b[n]
			sub(/[^ ]*$/, "", $1)
			sub(/[^ ]*$/, "", $2)
			if (n == m && $1 == $2 && a[n] !~ /x/ && b[n] !~ /x/ && d < most && d > -most) {
				next
			}
			print $1 a[n], "and", $2 b[n]
			if (++different == 20) {
				exit
			}
		}
		END { exit different > 0 }'
}

for kernels in neon i8mm; do
	"$emulator" -cpu max "$out/arm" "$kernels" >"$out/$kernels.txt"
	if ! same "$out/avx2.txt" "$out/$kernels.txt" >&2; then
		echo "scripts/neon.sh: results of $kernels are not those of AVX2" >&2
		exit 1
	fi
	echo "$(wc -l <"$out/$kernels.txt") results of $kernels are those of AVX2"
done
# A processor with dot products and without I8MM does not claim to have it.
if "$emulator" -cpu neoverse-n1 "$out/arm" i8mm >/dev/null 2>&1 ||
	! "$emulator" -cpu neoverse-n1 "$out/arm" neon | cmp - "$out/neon.txt"; then
	echo "scripts/neon.sh: the wrong kernels are chosen on a processor without I8MM" >&2
	exit 1
fi
