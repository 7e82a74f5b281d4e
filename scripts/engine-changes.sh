#!/usr/bin/env bash
# Says what changed between two llama.cpp source trees: the functions of include/llama.h, its lines, and the
# architectures of src/llama-arch.cpp.
#
#   scripts/engine-changes.sh OLD NEW
set -euo pipefail
old=$1 new=$2
functions() { grep -oE '\bllama_[a-z0-9_]+ *\(' "$1/include/llama.h" | tr -d ' (' | LC_ALL=C sort -u; }
architectures() {
	sed -nE 's/^ *\{ *LLM_ARCH_[A-Z0-9_]+, *"([^"]+)".*/\1/p' "$1/src/llama-arch.cpp" | LC_ALL=C sort -u
}
# difference TITLE OF: which names of OF came and went
difference() {
	local gone came
	gone=$(LC_ALL=C comm -23 <("$2" "$old") <("$2" "$new") | paste -sd' ' -)
	came=$(LC_ALL=C comm -13 <("$2" "$old") <("$2" "$new") | paste -sd' ' -)
	echo "== $1: $("$2" "$old" | wc -l) before, $("$2" "$new" | wc -l) now"
	echo "came: ${came:-none}"
	echo "went: ${gone:-none}"
}
difference "functions that include/llama.h names" functions
echo "== lines of include/llama.h that changed"
diff -U 0 "$old/include/llama.h" "$new/include/llama.h" |
	sed -e '/^\(---\|+++\|@@\)/d' -e '/^[-+] *\(\/\/.*\)\{0,1\}$/d' || :
difference architectures architectures
