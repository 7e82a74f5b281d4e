package devices

import (
	"os"
	"strings"
)

// EngineEnvironment returns the environment for engine processes: without options, which they get over the link,
// without systemd's sockets and watchdog, which are the front's, and without secrets, because an engine process parses
// untrusted files.
func EngineEnvironment(environ []string) (out []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		upper := strings.ToUpper(name)
		switch {
		case strings.HasPrefix(upper, "UMA_") && upper != "UMA_BACKEND_DIR",
			strings.HasPrefix(upper, "LISTEN_"), strings.HasPrefix(upper, "WATCHDOG_"), upper == "NOTIFY_SOCKET":
			continue
		}
		secret := false
		for _, word := range []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY",
			"PRIVATE_KEY"} {
			secret = secret || strings.Contains(upper, word)
		}
		if !secret {
			out = append(out, kv)
		}
	}
	return out
}

// DriverEnvironment returns that of this process for processes that load drivers, which keep compiled kernels in a
// folder of uma-serve.
func DriverEnvironment() []string {
	return append(EngineEnvironment(os.Environ()), System().CacheEnv()...)
}
