#!/usr/bin/env bash
# Install the package of make deb into a clean Debian, check the service, chat, upgrade, remove. Needs root and
# debootstrap (Debian: debootstrap). MIRROR and SUITE name the Debian to install.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
	echo "scripts/deb-check.sh is SKIPPED: it needs root and debootstrap" >&2
	exit 0
fi
deb=$(ls -t dist/uma-serve_*_"$(dpkg --print-architecture)".deb 2>/dev/null | head -1) || true
[ -n "$deb" ] || { echo "deb-check: dist/ has no package for this machine; make deb writes it" >&2 && exit 1; }
root=$(mktemp -d)
server=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	umount "$root/proc" 2>/dev/null || true
	rm -rf "$root" "$root.log"
}
trap cleanup EXIT
fail() { echo "deb-check: $*" >&2 && exit 1; }
inside() { chroot "$root" env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root XDG_RUNTIME_DIR=/run "$@"; }

echo "== a clean Debian"
debootstrap --variant=minbase --include=systemd "${SUITE:-bookworm}" "$root" \
	"${MIRROR:-http://deb.debian.org/debian}" >"$root.log" || { tail -5 "$root.log" >&2; fail "debootstrap failed"; }
mount -t proc proc "$root/proc"
listing() { (cd "$root" && find . -xdev -path ./proc -prune -o -print | sort); }
before=$(listing)
cp "$deb" "$root/tmp/uma-serve.deb"

echo "== install $deb"
inside dpkg -i /tmp/uma-serve.deb
[ "$(inside dpkg-query -W -f '${Status}' uma-serve)" = "install ok installed" ] || fail "dpkg says it is not installed"
! inside sh -c 'command -v gcc cc g++' || fail "the clean root has a compiler"
inside getent passwd uma-serve >/dev/null || fail "no user uma-serve"
inside systemd-analyze verify --man=no /usr/lib/systemd/system/uma-serve.{service,socket}
inside systemd-analyze verify --man=no --user /usr/share/systemd/user/uma-serve.{service,socket}
for file in /usr/share/man/man1/uma-serve.1.gz /usr/share/bash-completion/completions/uma-cli \
	/etc/uma-serve/uma-serve.toml; do
	[ -e "$root$file" ] || fail "no $file"
done

echo "== chat"
chroot "$root" env -i PATH=/usr/bin HOME=/root XDG_RUNTIME_DIR=/run uma-serve --socket /run/uma.sock \
	2>"$root/tmp/log" &
server=$! # chroot and env become it
for _ in $(seq 300); do
	inside uma-cli --socket /run/uma.sock health >/dev/null 2>&1 && break
	kill -0 "$server" 2>/dev/null || { cat "$root/tmp/log" >&2 && fail "uma-serve ended"; }
	sleep 0.1
done
answer=$(inside uma-cli --socket /run/uma.sock run --temp 0 "What is 4821 + 977?")
[[ $answer == *5798* ]] || fail "What is 4821 + 977? $answer"
kernels=$(inside uma-cli --socket /run/uma.sock info | grep -i kernels)
echo "$kernels"
if grep -qw avx512_vnni /proc/cpuinfo && [[ $kernels != *avx512* && $kernels != *amx* ]]; then
	fail "the processor has AVX-512 VNNI; the daemon uses: $kernels"
fi

echo "== upgrade and remove"
echo "# changed here" >>"$root/etc/uma-serve/uma-serve.toml"
inside dpkg -i /tmp/uma-serve.deb >"$root.log" || { tail -5 "$root.log" >&2; fail "debootstrap failed"; }
grep -q "changed here" "$root/etc/uma-serve/uma-serve.toml" || fail "the upgrade replaced the configuration"
kill "$server"
wait "$server" || true
server=
mkdir -p "$root/var/cache/uma-serve"
touch "$root/var/cache/uma-serve/snapshot"
inside dpkg --purge uma-serve
rm -f "$root/tmp/uma-serve.deb" "$root/tmp/log"
# What the daemon saved may stay, and what dpkg and the system note for themselves.
own='^\./(var/cache/uma-serve|var/lib/dpkg|var/log|run|root/\.cache|etc/(passwd|group|shadow|gshadow|subuid|subgid))'
left=$(comm -13 <(echo "$before") <(listing) | grep -vE "$own" || true)
[ -z "$left" ] || fail "left behind: $left"
! inside getent passwd uma-serve || fail "the user uma-serve is left"
echo "deb-check: installed, answered, upgraded and removed"
