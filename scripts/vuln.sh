#!/usr/bin/env bash
# Known vulnerabilities in the code that the programs call, by govulncheck. It needs the network: for itself (once) and
# for the database at vuln.go.dev. Without the network the check is skipped with a warning; it never fails for that.
#
# govulncheck is no tool of go.mod: there its dependencies would have to agree with staticcheck's, and nothing works
# without the network anyway.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.8.0

skipped() {
	printf '\n*** govulncheck was SKIPPED: %s\n*** %s\n\n' "$1" \
		'Known vulnerabilities were NOT looked for; run make lint where the network allows it.' >&2
	exit 0
}

# timeout belongs to GNU coreutils; macOS and BSD have none.
limited() { if command -v timeout >/dev/null; then timeout "$@"; else shift; "$@"; fi; }

program=${GOVULNCHECK:-build/tools/govulncheck-$version}
if [ ! -x "$program" ]; then
	# Building it takes a minute: not where the database cannot be reached.
	if command -v curl >/dev/null && ! curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json 2>/dev/null; then
		skipped "govulncheck $version is not installed, and the database at vuln.go.dev does not answer"
	fi
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	said=$(GOBIN="$dir" GOFLAGS='' limited 120 go install "golang.org/x/vuln/cmd/govulncheck@$version" 2>&1) ||
		skipped "govulncheck $version cannot be installed: ${said##*$'\n'}"
	mkdir -p "$(dirname "$program")"
	mv "$dir/govulncheck" "$program"
fi

# Asking for the database's date is quick; the scan loads every package before it asks for anything.
limited 60 "$program" -version 2>&1 | grep -q '^DB updated:' || skipped "the database at vuln.go.dev does not answer"

# Without cgo: what is left out is C, which the database does not cover.
status=0
said=$(CGO_ENABLED=0 limited 300 "$program" ./... 2>&1) || status=$?
case $status in
0) printf '%s\n' "${said##*$'\n'}" ;;
3)
	printf '%s\n' "$said" >&2
	exit 1
	;;
124) skipped "no answer within 5 minutes" ;;
*)
	case $said in
	*'fetching vulnerabilities'*) skipped "${said%%$'\n'*}" ;;
	esac
	printf '%s\n' "$said" >&2
	exit "$status"
	;;
esac
