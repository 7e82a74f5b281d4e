#!/usr/bin/env bash
# Downloads the source distribution of a Python package into the folder DIR by pip, without running code of the package.
#
#   scripts/engine-pip.sh PACKAGE VERSION SHA256 DIR       SHA256 '' = what the registry's index says of the file
#
# PYTHON names another program than python3.
set -euo pipefail
package=$1 version=$2 sum=$3 dir=$4
# pip compares the sum before it unpacks anything. It would also have the package say what it needs, with a build
# program that is compiled for that: this module answers in its place, and no code of the package runs.
mkdir -p "$dir/answer/scikit_build_core"
: >"$dir/answer/scikit_build_core/__init__.py"
cat >"$dir/answer/scikit_build_core/build.py" <<PY
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    name = "${package//-/_}-$version.dist-info"
    os.makedirs(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\nName: $package\nVersion: $version\n")
    return name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise RuntimeError("this package is only unpacked")
PY
echo "$package==$version${sum:+ --hash=sha256:$sum}" >"$dir/requirements"
PYTHONPATH=$dir/answer PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 TMPDIR=$dir \
	"${PYTHON:-python3}" -m pip download --no-deps --no-binary :all: --no-build-isolation --no-cache-dir \
	${sum:+--require-hashes} -r "$dir/requirements" -d "$dir" >&2
