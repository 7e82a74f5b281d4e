#!/usr/bin/env bash
# scripts/nixl.sh FOLDER: install NVIDIA's NIXL for the tests of the fabric nixl://, from its Python package, without
# what the package depends on: its C library needs neither Python nor CUDA. Prints the variable that the tests want.
set -euo pipefail
folder=${1:?usage: scripts/nixl.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
package=nixl-cu12==1.5.1
if [ ! -e "$folder/installed" ]; then
	python3 -m venv "$folder/venv"
	"$folder/venv/bin/pip" install -q --no-deps "$package"
	touch "$folder/installed"
fi
library=$(find "$folder/venv/lib" -name libnixl_capi.so -print -quit)
[ -n "$library" ] || { echo "scripts/nixl.sh: $package has no libnixl_capi.so" >&2; exit 1; }
echo "UMA_NIXL=$library"
