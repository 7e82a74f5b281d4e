#!/usr/bin/env bash
# Packages (Debian, RPM, Alpine) or a tarball of binaries that run on other machines than this one: make deb, make
# rpm, make apk, make tarball. Alpine has another C library, musl: its package has glibc linked in (STATIC=1). ARCH is
# amd64 (processors with AVX2; the kernels of AVX-512 and AVX-VNNI are chosen when the daemon starts), amd64-v2 (a
# tarball for older ones: ggml's code computes there) or arm64 (ARMv8.2 with dot products, compiled by Debian's
# g++-aarch64-linux-gnu). The result is in dist/, or the file OUT. MARCH compiles for another processor.
#
# Two runs on one commit give the same bytes: no path of the checkout is in the programs, and every file has the time of
# the commit (SOURCE_DATE_EPOCH).
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-}
case $kind in
deb | rpm | apk | tarball) ;;
*) echo "$kind: deb, rpm, apk or tarball" >&2 && exit 1 ;;
esac
arch=${ARCH:-amd64}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
level=''
case $arch in
amd64-v2)
	[ "$kind" = tarball ] || { echo "ARCH is $arch: only a tarball can be made for it" >&2 && exit 1; }
	arch=amd64 level=-v2
	march=x86-64-v2
	needs="SSE4.2 (x86-64-v2)"
	;;
amd64)
	march=x86-64-v3
	needs="AVX2 (x86-64-v3)"
	;;
arm64)
	march=armv8.2-a+dotprod+fp16
	needs="ARMv8.2 with dot products"
	;;
*) echo "ARCH is $arch; it must be amd64, amd64-v2 or arm64" >&2 && exit 1 ;;
esac
if [ "$(go env GOARCH)" != "$arch" ]; then
	export GOARCH=$arch
	if [ "$arch" = arm64 ]; then
		export CC=${CC:-aarch64-linux-gnu-gcc} CXX=${CXX:-aarch64-linux-gnu-g++}
	else
		export CC=${CC:-x86_64-linux-gnu-gcc} CXX=${CXX:-x86_64-linux-gnu-g++}
	fi
	command -v "$CXX" >/dev/null || { echo "$CXX is missing; Debian: g++-${CXX%-g++}" >&2 && exit 1; }
fi
march=${MARCH:-$march}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
built=build/package/$arch$level
tags=otlp static=''
# The C library's look-ups of names and users load libraries, Go's do not.
[ "$kind" != apk ] || { built+=-static tags+=,netgo,osusergo static=1; }
mkdir -p dist
echo "building for $arch in $built: the first time llama.cpp is compiled, five minutes on two cores"
CGO_ENABLED=1 make build TAGS="$tags" STATIC="$static" BIN="$built/bin" MARCH="$march" VERSION="$version" TRIMPATH=1 \
	RELEASE_URL="${RELEASE_URL:-}" RELEASE_KEY="${RELEASE_KEY:-}"
# Completions and manual pages are written by programs of this machine.
native=$built/bin
if [ -n "${GOARCH:-}" ]; then
	native=build/package/native
	mkdir -p "$native"
	env -u GOARCH -u CC -u CXX CGO_ENABLED=0 go build -o "$native" ./cmd/...
fi

case $kind in
deb | rpm | apk)
	root=$built/root
	rm -rf "$root"
	HOME=/ DESTDIR=$PWD/$root PREFIX=/usr BIN=$built/bin HELPERS=$native scripts/install.sh
	gzip -9n "$root"/usr/share/man/man1/*.1
	install -D -m 0644 LICENSE "$root/usr/share/doc/uma-serve/copyright"
	glibc=
	if [ "$kind" = apk ]; then # no C library, and OpenRC in place of systemd
		rm -rf "$root"/usr/lib/systemd "$root"/usr/lib/sysusers.d "$root"/usr/share/systemd
		install -D -m 0755 contrib/openrc/uma-serve "$root/etc/init.d/uma-serve"
	else
		glibc=$("${OBJDUMP:-objdump}" -T "$built"/bin/uma-serve | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
	fi
	# Debian's versions begin with a digit and sort by it: v0.2.0-5-g12ab becomes 0.2.0+5.g12ab, a bare commit 0~12ab.
	deb=$(sed -E 's/^v//; s/-([0-9]+)-g/+\1.g/; s/-/+/g; /^[0-9]+\./! s/^/0~/' <<<"$version")
	# Alpine's have numbers alone: v0.2.0-5-g12ab becomes 0.2.0_p5, a bare commit 0_p0.
	[ "$kind" != apk ] ||
		deb=$(sed -E 's/^v//; s/-dirty$//; s/-([0-9]+)-g.*/_p\1/; /^[0-9]+\./! s/.*/0_p0/' <<<"$version")
	PACKAGE_ARCH=$arch PACKAGE_VERSION=$deb PACKAGE_ROOT=$root PACKAGE_NEEDS=$needs PACKAGE_GLIBC=${glibc#GLIBC_} \
		go tool -modfile=packaging/go.mod nfpm package --config packaging/nfpm.yaml --packager "$kind" \
		--target "${OUT:-dist/uma-serve_${deb}_$arch.$kind}"
	;;
tarball)
	name=uma-serve-$version-linux-$arch$level
	out=${OUT:-dist/$name.tar.gz}
	root=build/package/$name
	scripts/stage.sh "$built/bin" "$native" "$root"
	order=(--sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH")
	# That of macOS cannot sort: an archive for this machine alone, as get.sh builds it there, needs no order.
	[[ $(tar --version) == *"GNU tar"* ]] || order=(--uid 0 --gid 0)
	COPYFILE_DISABLE=1 tar -C build/package "${order[@]}" --format=ustar -cf - "$name" | gzip -9n >"$out"
	rm -rf "$root"
	echo "$out: unpack it, then PREFIX=\$HOME/.local scripts/install.sh"
	;;
esac
