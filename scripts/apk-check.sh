#!/usr/bin/env bash
# Install the package of make apk into a root that has busybox and no C library, as apk would: check its sums, run its
# scripts, chat as its user, remove it. There is no apk and no OpenRC here: the service file is only parsed. Needs root,
# python3 and a static busybox (Debian: busybox-static).
set -euo pipefail
cd "$(dirname "$0")/.."
busybox=$(command -v busybox || true)
if [ "$(id -u)" != 0 ] || [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then
	echo "scripts/apk-check.sh is SKIPPED: it needs root and a static busybox" >&2
	exit 0
fi
apk=$(ls -t dist/uma-serve_*_"$(go env GOARCH)".apk 2>/dev/null | head -1) || true
[ -n "$apk" ] || { echo "apk-check: dist/ has no package for this machine; make apk writes it" >&2 && exit 1; }
work=$(mktemp -d)
root=$work/root
server=
cleanup() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	umount "$root/proc" 2>/dev/null || true
	grep -q " $root/" /proc/mounts || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
fail() { echo "apk-check: $*" >&2 && exit 1; }
as_root() { chroot "$root" /bin/env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root "$@"; }

echo "== a root without a C library"
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,etc/init.d,proc,dev,root,run/uma-serve,tmp,var/cache/uma-serve,var/lib}
install -m 0755 "$busybox" "$root/bin/busybox"
for name in sh env cat grep sed uname mv id; do ln -s busybox "$root/bin/$name"; done
# The applets of Alpine's busybox that Debian's lacks.
printf '#!/bin/sh\necho "uma-serve:x:101:" >>/etc/group\n' >"$root/usr/sbin/addgroup"
printf '#!/bin/sh\necho "uma-serve:x:100:101::/:/sbin/nologin" >>/etc/passwd\n' >"$root/usr/sbin/adduser"
printf '#!/bin/sh\nsed -i /^uma-serve:/d /etc/passwd\n' >"$root/usr/sbin/deluser"
printf '#!/bin/sh\nsed -i /^uma-serve:/d /etc/group\n' >"$root/usr/sbin/delgroup"
chmod 0755 "$root"/usr/sbin/*
echo 'root:x:0:0::/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
mknod -m 0666 "$root/dev/null" c 1 3
mknod -m 0666 "$root/dev/urandom" c 1 9
mount -t proc proc "$root/proc"
chown 100:101 "$root/run/uma-serve" "$root/var/cache/uma-serve"
listing() {
	(cd "$root" && find . -xdev -path ./proc -prune -o -type d -printf '%p %y %m\n' -o -printf '%p %y %m %s\n' | sort)
}
before=$(listing)

echo "== install $apk"
# A package is gzip streams, one after the other: the control files, then the files to install.
python3 - "$apk" "$work" <<'END'
import hashlib, io, os, re, sys, tarfile, zlib

data, streams = open(sys.argv[1], "rb").read(), []
while data:
    d = zlib.decompressobj(31)
    streams.append((data, d.decompress(data)))
    data = d.unused_data
    streams[-1] = (streams[-1][0][:len(streams[-1][0]) - len(data)], streams[-1][1])
control, files = streams[-2], streams[-1]
with tarfile.open(fileobj=io.BytesIO(control[1])) as t:
    info = t.extractfile(".PKGINFO").read().decode()
    t.extractall(os.path.join(sys.argv[2], "control"), filter="fully_trusted")
with tarfile.open(fileobj=io.BytesIO(files[1])) as t:
    for m in t:  # apk compares the sum of each file
        want = m.pax_headers.get("APK-TOOLS.checksum.SHA1")
        if m.isreg() and want != hashlib.sha1(t.extractfile(m).read()).hexdigest():
            sys.exit(f"{m.name}: the sum is {want}")
open(os.path.join(sys.argv[2], "files.tar"), "wb").write(files[1])
field = dict(re.findall(r"^(\w+) = (.*)$", info, re.M))
if field["datahash"] != hashlib.sha256(files[0]).hexdigest():
    sys.exit("datahash is not the sum of the files")
version = r"\d+(\.\d+)*(_p\d+)?(-r\d+)?"
if field["pkgname"] != "uma-serve" or not re.fullmatch(version, field["pkgver"]) or "depend" in field:
    sys.exit(info)
print(field["pkgname"], field["pkgver"], field["arch"])
END
run() { # a script of the package, in the root
	[ -f "$work/control/.$1" ] || fail "the package has no $1"
	install -m 0755 "$work/control/.$1" "$root/tmp/script"
	as_root /tmp/script 0.0.1 || fail "$1"
	rm "$root/tmp/script"
}
run pre-install
tar -xf "$work/files.tar" -C "$root" --warning=no-unknown-keyword 2>"$work/tar.log" ||
	{ cat "$work/tar.log" >&2; fail "the files cannot be unpacked"; }
run post-install
sh -n "$root/etc/init.d/uma-serve"
[ ! -e "$root/usr/lib/systemd" ] || fail "it has units of systemd"
for name in uma-serve uma-cli uma-sim uma-bench; do
	as_root /usr/bin/$name --version >/dev/null || fail "$name does not run"
done
[ -z "$(find "$root" -path "$root/proc" -prune -o \( -name 'lib*.so*' -o -name 'ld-*' \) -print)" ] ||
	fail "the root has libraries"

echo "== chat"
chroot --userspec=100:101 "$root" /bin/env -i PATH=/usr/bin:/bin HOME=/ XDG_CACHE_HOME=/var/cache \
	/usr/bin/uma-serve --socket /run/uma-serve/uma.sock --socket-mode 0660 >"$work/log" 2>&1 &
server=$! # chroot and env become it
for _ in $(seq 300); do
	as_root /usr/bin/uma-cli --socket /run/uma-serve/uma.sock health >/dev/null 2>&1 && break
	kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2 && fail "uma-serve ended"; }
	sleep 0.1
done
answer=$(as_root /usr/bin/uma-cli --socket /run/uma-serve/uma.sock run --temp 0 "What is 4821 + 977?")
[[ $answer == *5798* ]] || fail "What is 4821 + 977? $answer"
as_root /usr/bin/uma-cli --socket /run/uma-serve/uma.sock info | grep -i kernels
kill "$server"
wait "$server" || true
server=

echo "== remove"
run pre-deinstall
tar -tf "$work/files.tar" --warning=no-unknown-keyword 2>/dev/null | grep -v '^\./*$' | sort -r | while read -r path; do
	[ -n "$path" ] || continue
	if [ -d "$root/$path" ] && [ ! -L "$root/$path" ]; then
		grep -q "^\./${path%/} d" <<<"$before" || rmdir "$root/$path"
	else
		rm "$root/$path"
	fi
done
run post-deinstall
rm -rf "$root"/var/cache/uma-serve/* "$root"/run/uma-serve/* "$root/var/lib/uma-serve"
diff <(echo "$before") <(listing) || fail "removing it leaves the tree of files changed"
echo "apk-check: installed, answered and removed"
