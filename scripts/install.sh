#!/usr/bin/env bash
# Copy the built commands, shell completions and the systemd user units below a prefix.
set -euo pipefail
prefix=$1
install -d "$prefix/bin" "$prefix/share/bash-completion/completions" "$prefix/share/zsh/site-functions" \
	"$prefix/share/fish/vendor_completions.d" "$prefix/lib/systemd/user"
for c in bin/uma-*; do
	install -m 0755 "$c" "$prefix/bin/"
done
bin/uma-cli completion bash >"$prefix/share/bash-completion/completions/uma-cli"
bin/uma-cli completion zsh >"$prefix/share/zsh/site-functions/_uma-cli"
bin/uma-cli completion fish >"$prefix/share/fish/vendor_completions.d/uma-cli.fish"
for u in contrib/systemd/*; do
	sed "s|@PREFIX@|$prefix|g" "$u" >"$prefix/lib/systemd/user/$(basename "$u")"
done
printf 'installed into %s; as a service of yours:\n  systemctl --user daemon-reload && systemctl --user enable --now uma-serve.socket\n' "$prefix"
