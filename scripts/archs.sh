#!/usr/bin/env bash
# Compares uma-serve with llama-server of the same tree on a random model of each architecture, and writes
# docs/architectures.md (internal/archs). The first time builds llama-server: minutes.
#
#   scripts/archs.sh                          all, and what the contract asks of guesses
#   scripts/archs.sh -only 'gpt2|mamba'       some, and no table
#   scripts/archs.sh -keep -limit 10m         goes on with a run for ten minutes; the table names what is left
#   scripts/archs.sh -heads                   answers with heads alone, their part of the page, and the contract
#   scripts/archs.sh -rewrite                 records the answers that the tests compare with
#   scripts/archs.sh -readers                 our GGUF reader beside llama.cpp's, on every model and on 2,000 mutations
#
# CHECK=1 leaves docs/architectures.md as it is. ENGINE names another llama.cpp than that of engine.lock, BIN the folder
# of the built uma-serve.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/engine-tools.sh llama-server)
tree=$(scripts/engine-fetch.sh "${ENGINE:-}")
work=$PWD/build/archs
saved=$work/saved-$(cat "$tree/tests/test-llama-archs.cpp" scripts/archs/more.cpp | cksum | cut -d' ' -f1)
writer=$work/more
mkdir -p "$work"
export LD_LIBRARY_PATH=$tools${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

if [ ! -x "$writer" ] || [ scripts/archs/more.cpp -nt "$writer" ] || [ "$tools/libllama.so" -nt "$writer" ]; then
	echo "compiling scripts/archs/more.cpp" >&2
	"${CXX:-c++}" -std=c++17 -O1 -DGGML_BACKEND_SHARED -DGGML_SHARED -DGGML_USE_CPU -DLLAMA_SHARED -I"$tree/include" \
		-I"$tree/ggml/include" -I"$tree/common" -I"$tree/vendor" -I"$tree/tests" -I"$tree/src" scripts/archs/more.cpp \
		-o "$writer" -L"$tools" -lllama-common -lllama -lggml -lggml-base
fi
if [ ! -e "$saved/done" ]; then
	rm -rf "$work"/saved-*
	mkdir -p "$saved"
	echo "writing random models into $saved" >&2
	"$writer" --archs -s 1 -o "$saved" >"$work/writer.log" 2>&1 || {
		tail -n 5 "$work/writer.log" >&2
		echo "scripts/archs.sh: the generator failed; all of its output is in $work/writer.log" >&2
		exit 1
	}
	# A failed assertion ends the process: one kind at a time.
	for kind in $("$writer" --list); do
		"$writer" "$saved" "$kind" >>"$work/writer.log" 2>&1 ||
			echo "not written: $kind: $(tail -n 1 "$work/writer.log")" | tee -a "$work/missing.log" >&2
	done
	touch "$saved/done"
fi
case ${1:-} in
-readers)
	UMA_ARCHS=$saved UMA_ARCHS_LOADER=$writer ${GO:-go} test -run '^TestReaders$' -timeout 60m -v ./runtime/llama
	exit
	;;
-rewrite)
	shift
	set -- -rewrite internal/archs/testdata "$@"
	;;
esac
[ -n "${CHECK:-}" ] || set -- -doc docs/architectures.md "$@"
${GO:-go} run ./internal/archs -ours "${BIN:-bin}/uma-serve" -reference "$tools/llama-server" -models "$saved" \
	-work "$work" "$@"
case " $* " in
*" -only "* | *" -rewrite "*) exit ;; # the contract is of all models, as they are written
*" -heads "*) contract=TestFilesOfArchitectures ;;
*) contract=TestGuessesOfArchitectures ;;
esac
UMA_ARCHS_READY=$work/ready ${GO:-go} test -run "^$contract\$" -timeout 60m ./runtime/llama
