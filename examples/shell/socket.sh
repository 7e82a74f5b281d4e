# Sets S to the daemon's socket: $UMA_SOCKET, else the path that uma-serve listens on by default. Source this file.
S=${UMA_SOCKET:-}
if [ -z "$S" ]; then
	if [ -n "${XDG_RUNTIME_DIR:-}" ]; then
		S=$XDG_RUNTIME_DIR/uma-serve/uma.sock
	elif [ "$(id -u)" = 0 ]; then
		S=/run/uma-serve/uma.sock
		[ -d /run ] || S=/var/run/uma-serve/uma.sock
	else
		S=${TMPDIR:-/tmp}/uma-serve-$(id -u)/uma.sock
	fi
fi
