#!/usr/bin/env bash
# A newcomer's installation in a clean Debian: get.sh as one line from a server on this machine, an answer, upgrade,
# rollback, doctor, uninstall. Then the tree of files must be what it was before. Needs root and debootstrap.
#
#   scripts/install-check.sh           the archive of a release
#   SOURCE=1 scripts/install-check.sh  also a build from source, with this machine's Go, module cache and engine cache
#
# MIRROR and SUITE name the Debian to install, BASE a folder of debootstrap that is copied instead. The releases are two
# builds of this checkout for this processor's kind, in ~4 minutes the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
	echo "scripts/install-check.sh is SKIPPED: it needs root and debootstrap" >&2
	exit 0
fi
work=$(mktemp -d)
root=$work/root
pids=()
mounts=()
cleanup() {
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
	done
	for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do umount "${mounts[i]}" 2>/dev/null || true; done
	# Nothing of this machine is below root when it is removed.
	if grep -q " $root/" /proc/mounts; then
		echo "install-check: $root has mounts; it is left" >&2
	else
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
fail() { echo "install-check: $*" >&2 && exit 1; }

echo "== two releases, signed"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
port=$((20000 + $$ % 20000))
url=http://127.0.0.1:$port
for version in v0.0.1 v0.0.2; do
	KEY=$work/key URL=$url ARCHS=amd64 VERSION=$version scripts/release.sh >"$work/log" 2>&1 ||
		{ tail -5 "$work/log" >&2; fail "make release failed"; }
	mv dist/release "$work/$version"
done
ln -s v0.0.1 "$work/www"
(cd "$work" && exec python3 -m http.server --bind 127.0.0.1 --directory www "$port") >"$work/http.log" 2>&1 &
pids+=($!)

echo "== a clean Debian"
if [ -n "${BASE:-}" ]; then
	cp -a "$BASE" "$root"
else
	debootstrap --variant=minbase --include=curl,ca-certificates,openssl "${SUITE:-bookworm}" "$root" \
		"${MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail -5 "$work/log" >&2; fail "debootstrap"; }
fi
for fs in proc dev; do
	mkdir -p "$root/$fs"
	if [ $fs = proc ]; then mount -t proc proc "$root/proc"; else mount --bind /dev "$root/dev"; fi
	mounts+=("$root/$fs")
done
chroot "$root" useradd --create-home --shell /bin/bash newcomer
# A home in use has these. The installation makes them where they are missing, and leaves them when they are empty: they
# are the user's, and may be links.
chroot "$root" install -d -m 0755 -o newcomer -g newcomer /home/newcomer/.local /home/newcomer/.cache
chroot "$root" sh -c 'install -d -m 0755 ~root/.cache'
# A directory's size and the times say nothing of what is in it. The module cache is this machine's, in use by others.
listing() {
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./dev -o -path ./mod \) -prune -o \
		\( -type d -printf '%p %y %m %U\n' -o -printf '%p %y %m %U %s %l\n' \) | sort)
}
# as USER COMMAND [VARIABLE…]: a login shell's environment. With EXEC=exec it becomes the command, which has its pid.
as() {
	local home=/home/newcomer
	[ "$1" = root ] && home=/root
	${EXEC:-} chroot --userspec="$1" "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=$home \
		USER="$1" TMPDIR=/tmp "${@:3}" bash -c "cd; $2"
}
# served USER PREFIX: a daemon of the prefix answers, then ends.
served() {
	EXEC="exec" as "$1" "exec $2/bin/uma-serve" >"$work/serve.log" 2>&1 &
	local pid=$!
	pids+=("$pid")
	for _ in $(seq 300); do
		as "$1" "$2/bin/uma-cli health" >/dev/null 2>&1 && break
		kill -0 "$pid" 2>/dev/null || { cat "$work/serve.log" >&2; fail "uma-serve ended"; }
		sleep 0.1
	done
	answer=$(as "$1" "$2/bin/uma-cli run --temp 0 'What is 4821 + 977?'")
	[[ $answer == *5798* ]] || fail "What is 4821 + 977? $answer"
	as "$1" "$2/bin/uma-cli doctor" || fail "doctor finds a fault"
	kill "$pid"
	wait "$pid" || true
}
# same BEFORE: the tree is as it was.
same() {
	local now
	now=$(listing)
	[ "$1" = "$now" ] || {
		diff <(echo "$1") <(echo "$now") >&2 || true
		fail "uninstall leaves the tree of files changed"
	}
	echo "the tree of $(wc -l <<<"$now") files is what it was"
}

# release USER PREFIX: the whole life of an installation.
release() {
	echo "== $1: curl -fsSL $url/get.sh | sh"
	rm "$work/www" && ln -s v0.0.1 "$work/www"
	local before version
	before=$(listing)
	as "$1" "curl -fsSL $url/get.sh | sh" || fail "get.sh"
	served "$1" "$2"
	as "$1" "$2/bin/uma-cli upgrade --check" && fail "there is no newer release, and upgrade --check says so"
	rm "$work/www" && ln -s v0.0.2 "$work/www"
	as "$1" "$2/bin/uma-cli upgrade --check" || fail "upgrade --check finds no newer release"
	for step in "upgrade 0.0.2" "upgrade-again 0.0.2" "rollback 0.0.1"; do
		case $step in
		rollback*) as "$1" "$2/bin/uma-cli upgrade --rollback" || fail "$step" ;;
		*) as "$1" "$2/bin/uma-cli upgrade" || fail "$step" ;;
		esac
		version=$(as "$1" "$2/bin/uma-serve --version")
		[[ $version == *"${step#* }"* ]] || fail "after ${step% *}: $version"
	done
	served "$1" "$2"
	as "$1" "$2/bin/uma-cli uninstall --purge --yes" || fail "uninstall"
	same "$before"
}
release newcomer /home/newcomer/.local
release root /usr/local

if [ "${SOURCE:-}" = 1 ]; then
	echo "== newcomer: get.sh from source"
	before=$(listing)
	as newcomer "curl -fsSL $url/get.sh | sh -s -- --source" 2>"$work/log" && fail "a build without a compiler"
	grep -q "these programs are missing" "$work/log" || { cat "$work/log" >&2; fail "the error names no program"; }
	sed 's/^/without tools: /' "$work/log"
	same "$before"
	chroot "$root" sh -c 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
		--no-install-recommends git cmake make g++ python3-pip' >"$work/log" 2>&1 ||
		{ tail -5 "$work/log" >&2; fail "apt-get"; }
	mkdir -p "$root/usr/local/go" "$root/mod" "$root/repo"
	for pair in "$(go env GOROOT) usr/local/go" "$(go env GOMODCACHE) mod"; do
		mount --bind -o ro "${pair% *}" "$root/${pair#* }"
		mounts+=("$root/${pair#* }")
	done
	# A hard link would give this repository's objects to the newcomer.
	git clone -q --no-hardlinks "$repo" "$root/repo/uma-serve"
	chroot "$root" chown -R newcomer:newcomer /repo # git reads no other user's repository
	before=$(listing)
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/uma-serve/engine
	mkdir -p "$root/home/newcomer/.cache/uma-serve"
	[ ! -d "$cache" ] || cp -a "$cache" "$root/home/newcomer/.cache/uma-serve/"
	chroot "$root" chown -R newcomer:newcomer /home/newcomer/.cache
	as newcomer "curl -fsSL $url/get.sh | sh -s -- --git /repo/uma-serve" \
		PATH=/usr/local/go/bin:/usr/bin:/bin GOMODCACHE=/mod GOPROXY=off \
		GOFLAGS=-mod=mod GONOSUMDB='*' >"$work/log" 2>&1 ||
		{ tail -20 "$work/log" >&2; fail "get.sh --git"; }
	tail -5 "$work/log"
	served newcomer /home/newcomer/.local
	as newcomer "/home/newcomer/.local/bin/uma-cli upgrade" 2>&1 | head -3 || true
	as newcomer "/home/newcomer/.local/bin/uma-cli uninstall --purge --yes" || fail "uninstall"
	as newcomer "rm -rf .cache/go-build .config/go go; rmdir .config" || true # what Go makes
	same "$before"
fi
echo "install-check: installed, answered, upgraded, went back, uninstalled"
