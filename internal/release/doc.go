// Package release takes a release of uma-serve to a machine and off it again: it fetches an archive, verifies it,
// installs it, replaces it by a newer one, and removes it.
//
// A release is a folder on any web server: archives (uma-serve-VERSION-OS-ARCH.tar.gz), SHA256SUMS with their sums, and
// SHA256SUMS.sig, a signature that ssh-keygen -Y sign made with an Ed25519 key in the namespace "uma-serve".
// scripts/release.sh writes it. Nothing of an archive is unpacked before the signature and the archive's sum are
// verified.
//
// An installation below a prefix:
//
//	PREFIX/lib/uma-serve/versions/NAME   an unpacked archive
//	PREFIX/lib/uma-serve/current         a link to the one in use
//	PREFIX/lib/uma-serve/previous        a link to the one before it, for Rollback
//	PREFIX/lib/uma-serve/receipt.json    every path outside of this folder, for Remove
//	PREFIX/bin/uma-cli, …                links through current
//
// An upgrade therefore takes effect with the renaming of one link.
package release
