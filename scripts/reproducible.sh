#!/usr/bin/env bash
# Build the tarball twice, in two checkouts of one commit, and compare the sums. llama.cpp's libraries are built once:
# its sources name the user's cache folder in their error messages, so that another machine needs the same HOME.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
cleanup() {
	git worktree remove --force "$work/one" 2>/dev/null || true
	git worktree remove --force "$work/two" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
sums=()
for name in one two; do
	git worktree add --quiet --detach "$work/$name" HEAD
	(cd "$work/$name" && OUT=$work/$name.tar.gz VERSION=v0.0.0-reproducible scripts/package.sh tarball \
		>"$work/$name.log" 2>&1) || { tail -20 "$work/$name.log" >&2 && exit 1; }
	sums+=("$(sha256sum <"$work/$name.tar.gz")")
done
[ "${sums[0]}" = "${sums[1]}" ] || {
	for name in one two; do
		mkdir "$work/$name.tree"
		tar -xzf "$work/$name.tar.gz" -C "$work/$name.tree"
	done
	diff -rq "$work/one.tree" "$work/two.tree" >&2 || true
	echo "reproducible: two builds of one commit differ" >&2
	exit 1
}
echo "reproducible: two builds, one SHA-256: ${sums[0]%% *}"
