// Package sockpath holds the default path of the daemon's socket, which the daemon and its clients share.
package sockpath

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// Default returns the socket path without a configured one:
//
//   - $XDG_RUNTIME_DIR/uma-serve/uma.sock, private to the user, removed at logout;
//   - without that variable, for root: /run/uma-serve/uma.sock (/var/run on macOS and BSD);
//   - on macOS: $TMPDIR/uma-serve/uma.sock, since TMPDIR is private to the user there;
//   - otherwise uma-serve-UID/uma.sock in the directory for temporary files. The daemon refuses to listen in a
//     directory that another user can write.
func Default() string { return path(runtime.GOOS, os.Geteuid(), os.Getenv) }

func path(goos string, uid int, env func(string) string) string {
	const dir, name = "uma-serve", "uma.sock"
	if d := env("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, dir, name)
	}
	tmp := env("TMPDIR")
	switch {
	case uid == 0 && goos == "linux":
		return filepath.Join("/run", dir, name)
	case uid == 0:
		return filepath.Join("/var/run", dir, name)
	case goos == "darwin" && filepath.IsAbs(tmp):
		return filepath.Join(tmp, dir, name)
	case !filepath.IsAbs(tmp):
		tmp = "/tmp"
	}
	return filepath.Join(tmp, dir+"-"+strconv.Itoa(uid), name)
}
