#!/bin/sh
# Install uma-serve: curl -fsSL https://…/get.sh | sh
#
# It takes the release's archive for this machine, verifies its signature and its SHA-256, and installs it. Where no
# release is known it builds from source. Options go behind "sh -s --", as in curl … | sh -s -- --system:
#
#   --prefix DIR   install there (default: ~/.local; for root /usr/local)
#   --system       the same as --prefix /usr/local
#   --from URL     the release's folder: SHA256SUMS, SHA256SUMS.sig and archives; with --key
#   --key KEY      the public key that signs it: a line ssh-ed25519 BASE64
#   --source       build from source: in this checkout, or of --git URL
#   --git URL      the repository to clone
#   --no-service   install no service of systemd or launchd
#   --uninstall    remove what was installed; with --purge --yes also models, caches and settings
#
# It writes below the prefix, the folder of service files, and a temporary folder that it removes; a build also writes
# into the checkout and the caches of uma-serve and Go.
set -eu
umask 022 # other users run what an administrator installs

# scripts/release.sh writes these two into the copy that lies beside the archives.
RELEASE_URL=''
RELEASE_KEY=''

say() { printf '%s\n' "$*" >&2; }
fail() {
	say "get.sh: $*"
	exit 1
}
usage() { sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" 2>/dev/null || say "see the comment at the top of get.sh"; }
need() { [ $# -ge 2 ] || fail "$1 needs a value"; }
has() { command -v "$1" >/dev/null 2>&1; }

main() {
	url=${UMA_RELEASE_URL:-$RELEASE_URL} key=${UMA_RELEASE_KEY:-$RELEASE_KEY}
	prefix='' from_source='' git='' service=yes uninstall='' purge=''
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix) need "$@" && prefix=$2 && shift ;;
		--system) prefix=/usr/local ;;
		--from) need "$@" && url=$2 && shift ;;
		--key) need "$@" && key=$2 && shift ;;
		--source) from_source=yes ;;
		--git) need "$@" && git=$2 && from_source=yes && shift ;;
		--no-service) service='' ;;
		--uninstall) uninstall=yes ;;
		--purge) purge="$purge --purge" ;;
		--yes) purge="$purge --yes" ;;
		-h | --help) usage && exit 0 ;;
		*) fail "there is no option $1; get.sh --help lists them" ;;
		esac
		shift
	done
	if [ -z "$prefix" ]; then
		prefix=/usr/local
		if [ "$(id -u)" != 0 ]; then
			[ -n "${HOME:-}" ] || fail "HOME is not set; choose a --prefix"
			prefix=$HOME/.local
		fi
	fi
	case $prefix in
	/*) ;;
	*) fail "--prefix is $prefix; it must be an absolute path" ;;
	esac
	case $prefix in
	*[[:space:]]* | *\'* | *\"* | *\\*) fail "--prefix is $prefix; blanks, quotes and backslashes are not supported" ;;
	esac
	if [ -n "$uninstall" ]; then
		[ -x "$prefix/bin/uma-cli" ] || fail "there is no $prefix/bin/uma-cli: nothing is installed there"
		# shellcheck disable=SC2086 # two options, or none
		exec "$prefix/bin/uma-cli" uninstall $purge
	fi
	[ -z "$purge" ] || fail "--purge and --yes go with --uninstall"

	work=$(mktemp -d "${TMPDIR:-/tmp}/uma-get.XXXXXX") || fail "no folder for temporary files; set TMPDIR"
	tree=''
	trap 'rm -rf "$work" ${tree:+"$tree"}; tidy' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	find_system
	mkdir -p "$prefix/lib/uma-serve/versions" 2>/dev/null && [ -w "$prefix/lib/uma-serve/versions" ] ||
		fail "$prefix cannot be written; run this as root, or choose another --prefix"
	if [ -n "$from_source" ]; then
		build
	elif [ -z "$url" ] || [ -z "$key" ]; then
		say "this copy of get.sh knows no release (--from URL --key KEY names one): building from source"
		url='' key=''
		build
	else
		download
	fi
	place
}

# find_system sets systems, the archives that fit this machine, best first.
find_system() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "there is no uma-serve for $(uname -s); under Windows use WSL" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64)
		systems=$os-amd64-v2
		if [ "$os" = darwin ] || grep -qw avx2 /proc/cpuinfo 2>/dev/null && grep -qw fma /proc/cpuinfo; then
			systems="$os-amd64 $os-amd64-v2"
		fi
		;;
	aarch64 | arm64) systems=$os-arm64 ;;
	*) fail "there is no archive for processors of the kind $(uname -m); try --source" ;;
	esac
}

# get URL FILE LIMIT: downloads at most LIMIT bytes.
get() {
	if has curl; then
		bounded "$3" curl -fsSL --retry 3 --connect-timeout 30 --speed-limit 1 --speed-time 60 --max-filesize "$3" \
			-o "$2" "$1" || fail "cannot download $1, or it has more than $3 bytes (curl: status $?)"
	elif has wget; then
		bounded "$3" wget -q -T 60 -t 3 -O "$2" "$1" ||
			fail "cannot download $1, or it has more than $3 bytes (wget: status $?)"
	else
		fail "curl or wget is needed: apt install curl"
	fi
	[ "$(wc -c <"$2")" -le "$3" ] || fail "$1 has more than $3 bytes"
}

# bounded LIMIT COMMAND…: the command writes no file of much more than LIMIT bytes, also where a server names no length.
bounded() (
	ulimit -f $(($1 / 512 + 1)) 2>/dev/null || : # a lower limit stays
	trap '' XFSZ                                 # the write fails, and no core is dumped
	shift
	exec "$@"
)

sha256() {
	if has sha256sum; then
		sha256sum "$1" | cut -d' ' -f1
	elif has shasum; then
		shasum -a 256 "$1" | cut -d' ' -f1
	elif has openssl; then
		openssl dgst -sha256 "$1" | sed 's/.*= *//'
	else
		fail "sha256sum, shasum or openssl is needed to verify the archive"
	fi
}

# verify FILE SIGNATURE: the signature is one of ssh-keygen -Y sign. Where there is no ssh-keygen, openssl (3.0 or
# later) checks the same signature: the last 64 bytes of it are Ed25519's over a text that FILE's SHA-512 ends.
verify() {
	case $key in
	"ssh-ed25519 "*) ;;
	*) fail "--key is $key; it must be a line ssh-ed25519 BASE64" ;;
	esac
	if has ssh-keygen && ! ssh-keygen -Y 2>&1 | grep -qE '(illegal|unknown|invalid) option'; then
		printf 'release namespaces="uma-serve" %s\n' "$key" >"$work/signers"
		ssh-keygen -Y verify -f "$work/signers" -I release -n uma-serve -s "$2" <"$1" >/dev/null 2>"$work/why" ||
			fail "the signature of $url/SHA256SUMS does not fit; nothing was installed ($(head -1 "$work/why"))"
		return
	fi
	has openssl && has base64 || fail "ssh-keygen (openssh-client) or openssl 3 is needed to verify the signature"
	sed '/^-----/d' "$2" | base64 -d >"$work/blob" 2>/dev/null || fail "SHA256SUMS.sig is no signature"
	tail -c 64 "$work/blob" >"$work/raw"
	{
		printf 'SSHSIG\000\000\000\011uma-serve\000\000\000\000\000\000\000\006sha512\000\000\000\100'
		openssl dgst -sha512 -binary "$1"
	} >"$work/signed"
	{
		printf '\060\052\060\005\006\003\053\145\160\003\041\000' # an Ed25519 key follows
		printf '%s' "$key" | cut -d' ' -f2 | base64 -d | tail -c 32
	} >"$work/key.der"
	openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key.der" -rawin -in "$work/signed" -sigfile "$work/raw" \
		>/dev/null 2>"$work/why" || fail "the signature of $url/SHA256SUMS does not fit, or openssl is older than 3.0" \
		"($(head -1 "$work/why")); nothing was installed"
}

# download leaves the unpacked archive in tree, and sets name.
download() {
	url=${url%/}
	case $url in
	https://* | http://*) ;;
	*) fail "--from is $url; it must be an https:// URL" ;;
	esac
	get "$url/SHA256SUMS" "$work/SHA256SUMS" 262144
	get "$url/SHA256SUMS.sig" "$work/SHA256SUMS.sig" 16384
	verify "$work/SHA256SUMS" "$work/SHA256SUMS.sig"
	archive=''
	for system in $systems; do
		[ -n "$archive" ] || archive=$(sed -nE "s/^[0-9a-f]{64}  (uma-serve-[0-9A-Za-z.+~-]+-$system\.tar\.gz)\$/\1/p" \
			"$work/SHA256SUMS" | head -1)
	done
	[ -n "$archive" ] || fail "$url has no archive for ${systems%% *}; build from source with --source"
	sum=$(sed -n "s/^\([0-9a-f]*\)  $(printf '%s' "$archive" | sed 's/[.+]/\\&/g')\$/\1/p" "$work/SHA256SUMS" | head -1)
	say "downloading $archive"
	get "$url/$archive" "$work/$archive" 1073741824
	[ "$(sha256 "$work/$archive")" = "$sum" ] ||
		fail "$archive does not have the SHA-256 of SHA256SUMS: it is damaged or was exchanged; nothing was installed"
	unpack "$work/$archive"
	version=$(printf '%s' "$archive" | sed -E 's/^uma-serve-(.*)-(linux|darwin)-(amd64|arm64)(-v[0-9])?\.tar\.gz$/\1/')
	name=${version}_$(printf '%s' "$sum" | cut -c1-12)
}

# unpack ARCHIVE: beside the versions, so that the folder can be renamed to one.
unpack() {
	tree=$prefix/lib/uma-serve/versions/.new-$$
	mkdir "$tree"
	tar -xzf "$1" -C "$tree" --strip-components=1 2>"$work/why" || fail "cannot unpack $1 into $tree" \
		"($(head -1 "$work/why")); is the disk full? Nothing was installed"
}

# tidy removes the folders of an installation that failed before there was one.
tidy() {
	[ -e "$prefix/lib/uma-serve/current" ] || [ -e "$prefix/lib/uma-serve/receipt.json" ] || {
		rm -f "$prefix/lib/uma-serve/lock"
		rmdir "$prefix/lib/uma-serve/versions" "$prefix/lib/uma-serve" 2>/dev/null || true
		[ "$prefix" = /usr/local ] || rmdir "$prefix/lib" 2>/dev/null || true
	}
}

# build makes an archive of a checkout for this machine's own processor.
build() {
	checkout=''
	here=''
	case $0 in # a script that is piped into sh lies nowhere
	*/get.sh) here=$(dirname "$0")/.. ;;
	get.sh) here=.. ;;
	esac
	if [ -z "$git" ] && [ -n "$here" ] && [ -f "$here/engine.lock" ] && [ -f "$here/scripts/package.sh" ]; then
		checkout=$here
	elif [ -z "$git" ] && [ -f ./engine.lock ] && [ -f ./scripts/package.sh ]; then
		checkout=.
	else
		missing git
		say "cloning ${git:=https://github.com/uma-serve/uma-serve.git}"
		git clone --quiet "$git" "$work/source" || fail "cannot clone $git; --git URL names another repository"
		checkout=$work/source
	fi
	missing go cmake make c++ python3 bash
	say "building in $checkout: some minutes the first time"
	(cd "$checkout" && OUT=$work/archive.tar.gz ARCH=$(go env GOARCH) MARCH=${MARCH:-native} \
		bash scripts/package.sh tarball >&2) || fail "the build has failed; see above"
	unpack "$work/archive.tar.gz"
	name=source_$(sha256 "$work/archive.tar.gz" | cut -c1-12)
}

missing() {
	lacks=''
	for tool in "$@"; do
		has "$tool" || lacks="$lacks $tool"
	done
	[ -z "$lacks" ] || fail "these programs are missing:$lacks; Debian: apt install git golang cmake make g++" \
		"python3-pip, macOS: xcode-select --install && brew install go cmake python"
}

# place hands the unpacked archive to its own uma-cli, which installs, upgrades and removes.
place() {
	if [ -n "$service" ] && [ "$os" = linux ] && ! systemd_runs; then
		service=''
	fi
	"$tree/bin/uma-cli" __install --tree "$tree" --prefix "$prefix" --name "$name" --url "$url" --key "$key" \
		${service:+--service} || fail "the installation has failed; see above"
	say "uma-serve is installed in $prefix"
	case :$PATH: in
	*":$prefix/bin:"*) ;;
	*) say "add it to your PATH: export PATH=\"$prefix/bin:\$PATH\"" ;;
	esac
	[ -n "$service" ] || say "start it: uma-serve"
	say "chat: uma-cli    in the browser: uma-cli open    a model: uma-cli pull qwen3:4b    checks: uma-cli doctor"
	say "newer: uma-cli upgrade    away: uma-cli uninstall"
}

systemd_runs() {
	if [ "$prefix" = "${HOME:-/}/.local" ]; then
		systemctl --user show-environment >/dev/null 2>&1
	else
		[ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]
	fi
}

main "$@" # at the end: a script that was cut off on its way does nothing
