#!/usr/bin/env bash
# Prints the folder of a llama.cpp source tree, after fetching and unpacking it where that is needed. The tree lies in
# the user's cache, in a folder named by the SHA-256 of its archive or by its commit, and appears there whole or not at
# all.
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
case ${XDG_CACHE_HOME:-} in
/*) cache=$XDG_CACHE_HOME/uma-serve/engine ;;
*) cache=${HOME:?}/.cache/uma-serve/engine ;; # a relative one is to be ignored (XDG Base Directory Specification)
esac
# In a hook of git its variables name another repository.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR

fail() {
	printf 'make%s: %s\n' "${given:+ ENGINE=$given}" "$*" >&2
	exit 1
}
sum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
sum_of() { sum "$1" | cut -c1-64; }
# refuse_other DIR: a file with the name of the locked archive has its sum, or is not used.
refuse_other() {
	[ "$(basename "$given")" != "$archive" ] || [ "${1##*/}" = "$sha256" ] ||
		fail "it has the sum ${1##*/}; engine.lock has $sha256: the file is damaged or was changed, and is not used"
}
# ways ends every message about a source that could not be had.
ways() {
	cat <<WAYS

llama.cpp $llama_cpp ($commit) can come from
  the registry of Python packages:  make                     needs python3 with pip and the network
  an archive that you copy here:    make ENGINE=/path/to/$archive
                                    (on another machine: python3 -m pip download --no-deps --no-binary :all:
                                    $package==$package_version)
  its repository:                   make ENGINE=git          needs git and the network; or ENGINE=/path/to/llama.cpp
WAYS
}

# settle TREE DIR puts a finished tree into the cache; its last step, a rename, makes it visible. The times of files in
# an archive are those of another year, which makes build programs rebuild for ever; "sources" is compared before each
# build.
settle() {
	[ -f "$1/include/llama.h" ] && [ -f "$1/ggml/CMakeLists.txt" ] ||
		fail "there is no llama.cpp in it: include/llama.h and ggml/CMakeLists.txt are expected"
	[ -z "$(find "$1" -name $'*\n*' | head -c 1)" ] || fail "a name in it has a line end: it is not used"
	# Only files and folders: a link may lead out of the tree, and "sources" would not cover what is there.
	find "$1" ! -type f ! -type d -exec rm -f {} +
	find "$1" -exec touch {} +
	scripts/engine-sum.sh "$1" >"$new/sources"
	mkdir -p "$2"
	mv "$new/sources" "$2/sources"
	[ -d "$2/tree" ] || mv "$1" "$2/tree" # without flock another make may have been faster
}
# unpack ARCHIVE DIR
unpack() {
	echo "unpacking ${given:-$archive}" >&2
	mkdir "$new/unpacked"
	local listing root
	listing=$(tar -tf "$1") || fail "the archive is damaged"
	if grep -E '^/|(^|/)\.\.(/|$)' <<<"$listing" >&2; then
		fail "a name in the archive leads out of it (see above): it is not used"
	fi
	# The folder with llama.cpp alone, the uppermost where there are several.
	root=$(grep -E '(^|/)include/llama\.h$' <<<"$listing" | awk '{ print length, $0 }' | sort -n |
		sed -n '1s/^[0-9]* //p') || fail "there is no llama.cpp in it: include/llama.h is expected"
	root=${root%include/llama.h}
	tar -xf "$1" -C "$new/unpacked" --no-same-owner --no-same-permissions ${root:+-- "${root%/}"} ||
		fail "unpacking failed; is the disk full? $(df -h "$cache" | awk 'NR == 2 { print $4 " are free in " $6 }')"
	root=$new/unpacked/${root%/}
	settle "${root%/.}" "$2"
}
# found DIR ends with the tree in DIR of the cache, if it is there. Nothing is written then: the cache may be read-only.
found() {
	if [ -d "$1/tree" ]; then
		echo "$1/tree"
		exit
	fi
}

case $given in
'') dir=$cache/$sha256 ;;
git) dir=$cache/git-$commit ;;
*)
	case $given in -*) given=./$given ;; esac
	[ -e "$given" ] || fail "no such file or folder$(ways)"
	if [ -d "$given" ]; then
		(cd "$given" && pwd -P)
		exit
	fi
	[ -f "$given" ] || fail "it is neither a file nor a folder"
	dir=$cache/$(sum_of "$given")
	refuse_other "$dir"
	;;
esac
found "$dir"

mkdir -p "$cache" || fail "the cache cannot be written: $cache (XDG_CACHE_HOME names another)"
if command -v flock >/dev/null; then # make may be run twice at a time
	exec 9>"$cache/lock"
	flock -n 9 || { echo "waiting for another make that fetches llama.cpp" >&2 && flock 9; }
	found "$dir" # it was the same one
	rm -rf "$cache"/.new-* # what an interrupted run left
else
	for left in "$cache"/.new-*; do
		kill -0 "${left##*.new-}" 2>/dev/null || rm -rf "$left"
	done
fi
new=$cache/.new-$$
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$new"

case $given in
'')
	"$python" -m pip --version >/dev/null 2>&1 ||
		fail "$python has no pip; Debian: apt install python3-pip, macOS: brew install python$(ways)"
	echo "fetching llama.cpp $llama_cpp (${package} ${package_version}, 76 MB) into $cache" >&2
	PYTHON=$python scripts/engine-pip.sh "$package" "$package_version" "$sha256" "$new" 9>&- ||
		fail "pip could not fetch $package $package_version (its reason is above)$(ways)"
	[ -f "$new/$archive" ] || fail "pip gave another file than $archive: it is not used"
	actual=$(sum_of "$new/$archive")
	[ "$actual" = "$sha256" ] ||
		fail "pip gave an $archive with the sum $actual; engine.lock has $sha256: it is not used"
	unpack "$new/$archive" "$dir"
	;;
git)
	command -v git >/dev/null || fail "git is missing$(ways)"
	echo "fetching commit $commit of $repository into $cache" >&2
	git init -q "$new/clone"
	git -C "$new/clone" config core.autocrlf false
	git -C "$new/clone" fetch -q --depth 1 "$repository" "$commit" 9>&- &&
		git -C "$new/clone" -c advice.detachedHead=false checkout -q FETCH_HEAD 9>&- ||
		fail "git could not fetch the commit from $repository (its reason is above)$(ways)"
	[ "$(git -C "$new/clone" rev-parse HEAD)" = "$commit" ] ||
		fail "$repository gave another commit than $commit: it is not used"
	rm -rf "$new/clone/.git"
	settle "$new/clone" "$dir"
	;;
*)
	# A copy: nothing else changes it between the sum and the unpacking.
	cp "$given" "$new/archive" || fail "copying it into $new failed"
	dir=$cache/$(sum_of "$new/archive")
	refuse_other "$dir"
	found "$dir"
	unpack "$new/archive" "$dir"
	;;
esac
echo "$dir/tree"
