#!/usr/bin/env bash
# Put the tree of an archive together: scripts/stage.sh BIN HELPERS TREE. BIN has the built programs, HELPERS those that
# run on this machine: they write completions and manual pages.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 helpers=$2 tree=$3
rm -rf "$tree"
mkdir -p "$tree"/{bin,scripts,share/{man/man1,bash-completion/completions,zsh/site-functions,doc/uma-serve}}
mkdir -p "$tree/share/fish/vendor_completions.d"
for c in uma-serve uma-cli uma-sim uma-bench; do
	install -m 0755 "$bin/$c" "$tree/bin/$c"
	"$helpers/$c" completion bash >"$tree/share/bash-completion/completions/$c"
	"$helpers/$c" completion zsh >"$tree/share/zsh/site-functions/_$c"
	"$helpers/$c" completion fish >"$tree/share/fish/vendor_completions.d/$c.fish"
	HOME=/ "$helpers/$c" man-pages "$tree/share/man/man1"
done
for library in "$bin"/libggml-*; do # of make backend-cuda and backend-vulkan
	[ ! -e "$library" ] || install -m 0755 "$library" "$tree/bin"
done
cp -r contrib docs README.md LICENSE CHANGELOG.md "$tree"
install -m 0644 docs/*.md contrib/uma-serve.toml "$tree/share/doc/uma-serve"
install -m 0755 scripts/install.sh "$tree/scripts"
find "$tree" -type d -exec chmod 0755 {} +
find "$tree" -type f ! -perm -u+x -exec chmod 0644 {} +
