#!/usr/bin/env bash
# Pins another llama.cpp in engine.lock: that of VERSION of the package llama-cpp-python. Builds it, runs engine-check,
# and prints what changed. The old engine.lock comes back where a step fails.
#
#   scripts/engine-bump.sh [--keep] [--lock-only] VERSION
#
# --keep leaves the new engine.lock where the build or a test fails; --lock-only writes it, says what changed in the
# sources and builds nothing. PYTHON names another program than python3, MAKE another than make.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() {
	echo "make engine-bump: $*" >&2
	exit 1
}
keep='' build=1
while :; do
	case ${1:-} in
	--keep) keep=1 ;;
	--lock-only) build='' keep=1 ;;
	*) break ;;
	esac
	shift
done
[ $# = 1 ] && [[ $1 =~ ^[0-9]+(\.[0-9]+)+([a-z0-9.]*)$ ]] ||
	fail "name a version of the package llama-cpp-python: make engine-bump VERSION=0.3.36"
wanted=$1
python=${PYTHON:-python3}
. ./engine.lock
"$python" -m pip --version >/dev/null 2>&1 || fail "$python has no pip; Debian: apt install python3-pip"

work=$(mktemp -d)
done=''
finish() {
	local status=$?
	if [ -z "$done" ] && [ -f "$work/engine.lock" ]; then
		if [ -n "$keep" ]; then
			echo "engine.lock names $package $wanted (--keep); git checkout engine.lock brings the old one back" >&2
		else
			cp "$work/engine.lock" engine.lock
			echo "engine.lock is what it was: $package $package_version" >&2
		fi
	fi
	rm -rf "$work"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

old_tree=$(scripts/engine-fetch.sh '')
old=$llama_cpp old_commit=$commit
echo "== $package $package_version: llama.cpp $old ($old_commit)"

# pip compares the file with the sum in the registry's index; that sum is recorded, and compared by each build.
new_archive=${package//-/_}-$wanted.tar.gz
mkdir "$work/download"
scripts/engine-pip.sh "$package" "$wanted" '' "$work/download" ||
	fail "pip could not fetch $package $wanted (its reason is above); the registry has $("$python" -m pip index \
		versions "$package" 2>/dev/null | sed -n 's/^Available versions: //p' | cut -d, -f1-12) …"
new_file=$work/download/$new_archive
[ -f "$new_file" ] || fail "pip fetched no $new_archive"
sum=$(command -v sha256sum || echo "shasum -a 256")
new_sum=$($sum "$new_file" | cut -c1-64)
# What is not in the lock yet is unpacked as an archive: into the folder of its sum, where the lock finds it then.
new_tree=$(scripts/engine-fetch.sh "$new_file")
tar -xzOf "$new_file" "${new_archive%.tar.gz}/CHANGELOG.md" >"$work/CHANGELOG.md" || : >"$work/CHANGELOG.md"
facts=$(scripts/engine-facts.sh "$new_tree" "$work/CHANGELOG.md" "$wanted")
new=$(sed -n 's/^version //p' <<<"$facts")
new_commit=$(sed -n 's/^commit //p' <<<"$facts")
[ -n "$new" ] || fail "CMakeLists.txt of $package $wanted has no LLAMA_VERSION: it is too old"
[ -n "$new_commit" ] || fail "the CHANGELOG.md of $package $wanted names no commit of llama.cpp"
# The list has the commit's first digits; make ENGINE=git needs all of them.
case $old_commit in "$new_commit"*) new_commit=$old_commit ;; esac
if [ ${#new_commit} -lt 40 ]; then
	api=https://api.github.com/repos/${repository#https://github.com/}/commits/$new_commit
	whole=$(curl -sf --max-time 20 -H 'Accept: application/vnd.github.sha' "$api" 2>/dev/null || :)
	case $whole in
	"$new_commit"*) new_commit=$whole ;;
	*) echo "the whole name of commit $new_commit cannot be asked for; make ENGINE=git needs it in engine.lock" >&2 ;;
	esac
fi

cp engine.lock "$work/engine.lock"
sed -e "s|^llama_cpp=.*|llama_cpp=$new|; s|^commit=.*|commit=$new_commit|" \
	-e "s|^package_version=.*|package_version=$wanted|; s|^archive=.*|archive=$new_archive|" \
	-e "s|^sha256=.*|sha256=$new_sum|; s|^folder=.*|folder=${new_archive%.tar.gz}/vendor/llama.cpp|" \
	"$work/engine.lock" >"$work/new.lock"
cp "$work/new.lock" engine.lock
echo "== $package $wanted: llama.cpp $new ($new_commit), SHA-256 $new_sum"

scripts/engine-changes.sh "$old_tree" "$new_tree"
if [ -z "$build" ]; then
	done=1
	exit
fi
# The variables of the make that runs this script are not those of the builds: VERSION is that of uma-serve there.
make() { env -u MAKEFLAGS -u MAKEOVERRIDES -u MAKELEVEL -u VERSION -u ENGINE "${MAKE:-make}" "$@"; }
make build
echo "== which parts fit (docs/engines.md)"
make -s env | sed -n 's/.*ENGINE_TAGS="\(.*\)"/\1/p' | tr , '\n' | sed -n 's/^llama_no_/left out: /p' |
	grep . || echo "all"
make engine-check
done=1
echo "engine.lock names llama.cpp $new ($new_commit), and engine-check is green. Left to do: docs/engines.md," \
	"CHANGELOG.md, make archs, make real"
