#!/usr/bin/env bash
# Prints the sum of the sources that a llama.cpp tree's libraries are built from: scripts/engine-sum.sh TREE
set -euo pipefail
cd "$1"
sum=$(command -v sha256sum || echo "shasum -a 256")
find CMakeLists.txt cmake include src ggml -type f | LC_ALL=C sort | tr '\n' '\0' | xargs -0 $sum | $sum | cut -c1-12
