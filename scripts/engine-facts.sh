#!/usr/bin/env bash
# Says which llama.cpp a version of the package llama-cpp-python contains: a line "version …" of the tree's
# CMakeLists.txt and a line "commit …" of the package's list of changes, which names the commit of each update, the
# newest first.
#
#   scripts/engine-facts.sh TREE CHANGELOG.md PACKAGE-VERSION
set -euo pipefail
awk '
/^set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH) / { gsub(/[^0-9]/, "", $2); n[++parts] = $2 }
/^option\(LLAMA_BUILD_IS_DEV .* ON\)/ { dev = "-dev" }
END { if (parts == 3) print "version " n[1] "." n[2] "." n[3] dev }' "$1/CMakeLists.txt"
awk -v want="[$3]" '
/^## / { inside = $2 == want }
inside && match($0, /llama\.cpp@[0-9a-f]+/) { print "commit " substr($0, RSTART + 10, RLENGTH - 10); exit }' "$2"
