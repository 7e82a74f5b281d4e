#!/usr/bin/env bash
# Which parts of runtime/llama fit a llama.cpp tree: prints a line for each that does, its name and the definition that
# it needs, if any. The compiler's reasons for the others are on standard error. A part's files include the tree's
# private headers, so the compiler compares what they use with what there is.
#
#   scripts/engine-probe.sh TREE 'PROCESSOR FLAGS' 'DEFINITIONS OF GGML-CPU'
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$1
go=${GO:-go}
cc=$("$go" env CC) cxx=$("$go" env CXX)
flags="-fsyntax-only -w $2 -I$tree/include -I$tree/tools/mtmd -I$tree/ggml/include -I$tree/ggml/src $3"

cpp() { # definition, files
	local f
	for f in "${@:2}"; do
		"$cxx" -std=c++17 $flags $1 -x c++ "runtime/llama/$f" || return
	done
}
c() { "$cc" -std=gnu11 $flags -I"$tree/ggml/src/ggml-cpu" -Iruntime/llama "scripts/engine/$1"; }
fits() { # part, definition, check
	echo "== $1${2:+, $2}: ${*:3}" >&2
	"${@:3}" && echo "$1 $2"
}

products=matmul.cpp
case $("$go" env GOARCH) in amd64) products+=' activations.cpp' ;; esac
if fits products '' cpp '' $products; then
	if fits attention '' cpp '' attention.cpp; then
		shared=-DUMA_CELLS_SHARED
		fits positions '' cpp '' cells.cpp || fits positions $shared cpp $shared cells.cpp || :
	fi
	fits keep '' cpp '' keep.cpp || :
	fits norms '' cpp '' kernels/norms.cpp || :
fi
fits barrier '' c barrier.c || :
fits images '' cpp '' images.cpp || :
fits grids '' cpp '' grids.cpp || :
fits repacked '' cpp '' repack.cpp || :
fits adapters '' cpp '' adapters.cpp || :
fits heads '' cpp '' heads.cpp fill.cpp || :
fits probe '' cpp '' graphprobe.cpp || :
