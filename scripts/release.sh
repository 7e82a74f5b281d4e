#!/usr/bin/env bash
# Write a release into dist/release: archives, SHA256SUMS, its signature, and get.sh with the release's address and key.
# Upload the folder to the address, and `curl -fsSL URL/get.sh | sh` installs it.
#
#   make release KEY=~/.ssh/id_ed25519 URL=https://example.org/uma-serve [ARCHS="amd64 amd64-v2 arm64"]
#
# KEY is an Ed25519 key of ssh-keygen, or its .pub file when an agent has it. Two runs on one commit give the same
# archives; scripts/reproducible.sh checks that.
set -euo pipefail
cd "$(dirname "$0")/.."
key=${KEY:-} url=${URL:-} archs=${ARCHS:-amd64 amd64-v2 arm64}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
[ -n "$key" ] && [ -n "$url" ] || {
	echo "release: KEY=FILE (an Ed25519 key of ssh-keygen) and URL=https://… (of the folder) are needed" >&2
	exit 1
}
[[ $url =~ ^https?://[A-Za-z0-9./:_~-]+$ ]] || {
	echo "release: URL is $url; it must be an https:// address" >&2
	exit 1
}
public=$(ssh-keygen -y -f "${key%.pub}" 2>/dev/null || cat "${key%.pub}.pub")
public=$(cut -d' ' -f1,2 <<<"$public")
[[ $public == "ssh-ed25519 "* ]] || {
	echo "release: $key is no Ed25519 key; ssh-keygen -t ed25519 makes one" >&2
	exit 1
}
out=dist/release
rm -rf "$out"
mkdir -p "$out"
for arch in $archs; do
	OUT=$PWD/$out/uma-serve-$version-linux-$arch.tar.gz ARCH=$arch VERSION=$version RELEASE_URL=$url \
		RELEASE_KEY=$public scripts/package.sh tarball
done
sed -e "s|^RELEASE_URL=.*|RELEASE_URL='$url'|" -e "s|^RELEASE_KEY=.*|RELEASE_KEY='$public'|" \
	scripts/get.sh >"$out/get.sh"
chmod 0755 "$out/get.sh"
(cd "$out" && LC_ALL=C sha256sum -- *.tar.gz get.sh >SHA256SUMS)
ssh-keygen -q -Y sign -f "$key" -n uma-serve "$out/SHA256SUMS"
echo "$out: upload it to $url; then: curl -fsSL $url/get.sh | sh"
