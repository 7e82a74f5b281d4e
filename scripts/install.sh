#!/usr/bin/env bash
# Copy the built commands, completions, manual pages, the sample configuration and the systemd units to PREFIX, below
# DESTDIR when that is set: DESTDIR=/stage PREFIX=/usr scripts/install.sh. What the files say names PREFIX alone, as
# DESTDIR is gone when they are used. BIN is where the commands lie, bin/ by default. HELPERS has commands that run on
# this machine, if those in BIN are for another: they write the completions and manual pages.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
dest=${DESTDIR:-}
bin=${BIN:-bin}
helpers=${HELPERS:-$bin}
case $prefix in
/*) ;;
*) echo "PREFIX is $prefix; it must be an absolute path" >&2 && exit 1 ;;
esac
commands=(uma-serve uma-cli uma-sim uma-bench)
for c in "${commands[@]}"; do
	[ -x "$bin/$c" ] || { echo "$bin/$c is not built; run make first" >&2 && exit 1; }
done

data=$prefix/share
doc=$data/doc/uma-serve
# systemd looks for users' units in share/systemd/user of /usr, of /usr/local and of $XDG_DATA_HOME. A prefix in a home
# directory installs for that user alone.
user_units=$data/systemd/user
system_units=$prefix/lib/systemd/system
if [ -n "${HOME:-}" ] && [ "$HOME" != / ] && [ "${prefix#"$HOME"/}" != "$prefix" ]; then
	user_units=${XDG_DATA_HOME:-$HOME/.local/share}/systemd/user
	system_units=
fi
if [ "$(uname -s)" != Linux ]; then # no systemd
	user_units=
	system_units=
fi

put() { # MODE SOURCE TARGET
	install -d "$dest$(dirname "$3")"
	install -m "$1" "$2" "$dest$3"
}
unit() { # SOURCE DIRECTORY
	install -d "$dest$2"
	sed -e "s|@BINDIR@|$prefix/bin|g" -e "s|@DOCDIR@|$doc|g" "$1" >"$dest$2/$(basename "$1")"
	chmod 0644 "$dest$2/$(basename "$1")"
}
completions() { # SHELL FILE COMMAND
	install -d "$dest$(dirname "$2")"
	"$helpers/$3" completion "$1" >"$dest$2"
}

for c in "${commands[@]}"; do
	put 0755 "$bin/$c" "$prefix/bin/$c"
	completions bash "$data/bash-completion/completions/$c" "$c"
	completions zsh "$data/zsh/site-functions/_$c" "$c"
	completions fish "$data/fish/vendor_completions.d/$c.fish" "$c"
	"$helpers/$c" man-pages "$dest$data/man/man1"
done
for library in "$bin"/libggml-*; do # of make backend-cuda and backend-vulkan
	[ -e "$library" ] && put 0755 "$library" "$prefix/bin/$(basename "$library")"
done
put 0644 contrib/uma-serve.toml "$doc/uma-serve.toml"
for d in docs/*.md; do
	put 0644 "$d" "$doc/$(basename "$d")"
done
if [ -n "$user_units" ]; then
	for u in contrib/systemd/user/*; do
		unit "$u" "$user_units"
	done
fi
if [ -n "$system_units" ]; then
	for u in contrib/systemd/system/*; do
		unit "$u" "$system_units"
	done
	put 0644 contrib/sysusers/uma-serve.conf "$prefix/lib/sysusers.d/uma-serve.conf"
fi

[ -n "$dest" ] && exit 0
printf 'installed into %s\n' "$prefix"
if [ -n "$user_units" ]; then
	printf 'As a service of yours:\n  %s\n' \
		'systemctl --user daemon-reload && systemctl --user enable --now uma-serve.socket'
fi
if [ -n "$system_units" ]; then
	printf 'As a service of the system, for the members of the group uma-serve:\n  %s\n' \
		'systemd-sysusers && systemctl daemon-reload && systemctl enable --now uma-serve.socket'
fi
